/*
 * Idletime arena: what a background participant looks with, and its own slot.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_SCAN_H
#define IDLETIME_SCAN_H

#include "idletime/arena/board.h"
#include "idletime/arena/observer.h"

/* A slot that had its turn and let it pass (turns.h). */
typedef struct IdletimeSkip {
    uint64_t started;           /* its requests then */
    int64_t until_ns;
    uint32_t times;             /* in a row; 0: never */
} IdletimeSkip;

/*
 * Both boards, our slot, and what a look remembers from the one before.
 * Context: one thread at a time.
 */
typedef struct IdletimeScan {
    const IdletimeBoard *fg;    /* read-only is enough */
    const IdletimeBoard *bg;    /* writable */
    const IdletimeObserver *observer;   /* NULL: none is looked for */
    uint32_t self;              /* our background slot */
    uint32_t fg_high;           /* slots to read; only grows, so that a */
    uint32_t bg_high;           /* scribbled header cannot hide one */
    IdletimeSkip skip[IDLETIME_SLOTS];
} IdletimeScan;

/** idletime_scan_own: the line that we write. */
static inline IdletimeBgLine *idletime_scan_own(const IdletimeScan *scan)
{
    return &idletime_bg_board(scan->bg)->line[scan->self];
}

#endif
