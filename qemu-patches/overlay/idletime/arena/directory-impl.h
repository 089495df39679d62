/*
 * Idletime arena: what directory.c and create.c share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_DIRECTORY_IMPL_H
#define IDLETIME_DIRECTORY_IMPL_H

#include "idletime/arena/directory.h"

/* The name of a file relative to the root; of a path that is too long: "". */
typedef struct IdletimeName {
    char text[PATH_MAX];
} IdletimeName;

static inline IdletimeName idletime_name_of(const IdletimeArena *arena,
                                            const char *file)
{
    IdletimeName name;

    if (snprintf(name.text, sizeof(name.text), "%s/%s", arena->place, file) >=
        (int)sizeof(name.text)) {
        name.text[0] = '\0';
    }
    return name;
}

/**
 * idletime_make_directories: the arena's directory and all above it, where
 * absent.  Returns false with @err set.
 */
bool idletime_make_directories(const IdletimeArena *arena, IdletimeError *err);

/**
 * idletime_create_boards: both boards with their lock files, where absent.
 * Returns false with @err set.
 */
bool idletime_create_boards(const IdletimeArena *arena, IdletimeError *err);

#endif
