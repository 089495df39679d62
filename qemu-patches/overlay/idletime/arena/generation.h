/*
 * Idletime arena: generations, where builds of different layouts share a path.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   PATH/foreground, ...           generation 3, the first that was released
 *   PATH/abi-4/foreground, ...     generation 4; and so on
 *
 * A build whose layout is another one (IDLETIME_ARENA_ABI) uses boards of its
 * own, so nothing that is there keeps it from starting.  Participants of two
 * generations do not see each other: what is foreground in one is load from
 * outside to the other.  So one can ask whether others are there.
 *
 * Common to all generations: names of the files, magic and version at the
 * begin of a board, and locks in *.alive while a participant lives.
 */
#ifndef IDLETIME_GENERATION_H
#define IDLETIME_GENERATION_H

#include "idletime/arena/directory.h"

/* More than ever met; those above it are not listed. */
#define IDLETIME_GENERATIONS 16

/**
 * idletime_generation_enter: from arena->base, the directory that 'path' says,
 * go to the place of this build's generation.  Its directory is made with the
 * boards.  Returns false with @err set.
 */
bool idletime_generation_enter(IdletimeArena *arena, IdletimeError *err);

/**
 * idletime_generation_others: versions that are beside @arena's own and have
 * a participant, or one cannot know; in order.
 * Returns how many are in @abi.  A few system calls.
 */
unsigned idletime_generation_others(const IdletimeArena *arena,
                                    uint32_t abi[IDLETIME_GENERATIONS]);

#endif
