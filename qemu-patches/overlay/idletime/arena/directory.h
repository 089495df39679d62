/*
 * Idletime arena: the files of an arena, made where absent and kept open.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   foreground         the board
 *   foreground.lock    who owns a slot: exclusive locks, a byte a slot
 *   foreground.alive   whose owner lives: shared locks, a byte a slot
 *   background, background.lock, background.alive: the same
 *
 * Locks are not on the boards, since everybody may read these, and who may
 * read a file may lock it: a read lock would keep the foreground from its
 * slots.  So .lock is opened by those only who write the board.  To ask the
 * kernel for a lock one must have the file open, so .alive is opened by those
 * who read the board and take part.  What they can do with it is to let the
 * dead look alive, for which background waits and nobody else.
 *
 * Opened once.  Whatever comes later (a claim, a mapping, the question who
 * lives) uses the descriptors that are kept here: the process may have
 * changed its directory, its root directory or its user since.
 */
#ifndef IDLETIME_DIRECTORY_H
#define IDLETIME_DIRECTORY_H

#include "idletime/arena/arena.h"
#include "idletime/arena/error.h"

/* Where things are in the file of one kind of board; bytes. */
typedef struct IdletimeKind {
    const char *name;           /* of the file */
    const char *lock;
    const char *alive;
    size_t size;
    size_t line_offset;
    size_t line_size;
} IdletimeKind;

/* Indexed by IdletimeBoardKind. */
extern const IdletimeKind idletime_kinds[];

typedef struct IdletimeFile {
    int fd;                     /* -1: cannot be opened */
    int write_error;            /* errno of opening it for writing; 0: it is */
} IdletimeFile;

typedef struct IdletimeBoardFiles {
    IdletimeFile board;
    IdletimeFile lock;
    IdletimeFile alive;
    uint64_t own[IDLETIME_SLOTS / 64];  /* slots of this process (atomic) */
} IdletimeBoardFiles;

/* Zero-initialise; idletime_arena_open() fills it. */
typedef struct IdletimeArena {
    char *path;                 /* as given, and generation, for messages */
    char *base;                 /* without links, relative to root */
    char *place;                /* the same, of our generation */
    int root;                   /* the root directory when it was opened */
    IdletimeBoardFiles files[IDLETIME_BOARD_BACKGROUND + 1];    /* by kind */
} IdletimeArena;

/**
 * idletime_arena_open: make the directory and its files where absent, and
 * open what this user may.
 * @path: relative paths are resolved now
 * Files appear complete or not at all, so that any number of processes may
 * call this at once.  What may not be opened is an error of
 * idletime_board_open().  Returns false with @err set; then @arena is closed.
 */
bool idletime_arena_open(IdletimeArena *arena, const char *path,
                         IdletimeError *err);

/**
 * idletime_arena_reopen: as idletime_arena_open(), at the place of @lost.
 * The place is looked up anew from the root directory that @lost was opened
 * under, by the rights that the process has now.
 */
bool idletime_arena_reopen(IdletimeArena *arena, const IdletimeArena *lost,
                           IdletimeError *err);

/**
 * idletime_arena_close: its boards must be closed.  All slots claimed through
 * it are given back.  Idempotent.
 */
void idletime_arena_close(IdletimeArena *arena);

/**
 * idletime_arena_has: is the file @name in the arena still this one?
 * True also where the question may no longer be asked, after a change of the
 * user.  One system call.
 */
bool idletime_arena_has(const IdletimeArena *arena, const char *name,
                        uint64_t device, uint64_t inode);

#endif
