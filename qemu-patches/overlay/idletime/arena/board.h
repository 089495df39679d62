/*
 * Idletime arena: a board, mapped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_BOARD_H
#define IDLETIME_BOARD_H

#include "idletime/arena/directory.h"

/* A mapped board.  Zero-initialise; idletime_board_open() fills it. */
typedef struct IdletimeBoard {
    IdletimeArena *arena;
    IdletimeBoardKind kind;
    char *path;                 /* of the file, for messages */
    bool writable;
    void *map;
    size_t size;
    uint64_t inode;
    uint64_t device;
    int guard;                  /* index in the SIGBUS guard; -1: none */
} IdletimeBoard;

/**
 * idletime_board_open: map a board of @arena.
 * @arena: must stay at its address as long as the board is open
 * @writable: needed to claim a slot
 * Size, magic, ABI version and kind are checked, and that the lock files are
 * there.  Opens no path.  Returns false with @err set.
 */
bool idletime_board_open(IdletimeBoard *board, IdletimeArena *arena,
                         IdletimeBoardKind kind, bool writable,
                         IdletimeError *err);
/** idletime_board_close: idempotent. */
void idletime_board_close(IdletimeBoard *board);

/**
 * idletime_board_intact: is this still the board that others see?
 * Checks magic and version, and (@deep, up to four system calls) that it has
 * its size, that the files still have names, and that the board is the one at
 * its path.  A false answer is final for this mapping.  Any thread.
 */
bool idletime_board_intact(const IdletimeBoard *board, bool deep);

static inline IdletimeFgBoard *idletime_fg_board(const IdletimeBoard *b)
{
    return b->map;
}

static inline IdletimeBgBoard *idletime_bg_board(const IdletimeBoard *b)
{
    return b->map;
}

/* The descriptors of this board. */
static inline IdletimeBoardFiles *idletime_board_files(const IdletimeBoard *b)
{
    return &b->arena->files[b->kind];
}

#endif
