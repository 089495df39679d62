/*
 * Idletime arena: what a foreground participant writes into its slot.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * This is on the path of every foreground request: no call, no lock and no
 * shared read-modify-write, only stores into a line that nobody else writes.
 */
#ifndef IDLETIME_FOREGROUND_H
#define IDLETIME_FOREGROUND_H

#include "idletime/arena/board.h"
#include "idletime/arena/slot.h"

typedef struct IdletimeFgWriter {
    IdletimeFgLine *line;
    IdletimeFgPage *page;
    /* The truth; the board only gets copies, so scribbles there heal. */
    uint32_t in_service;
    uint64_t started;
    uint64_t bytes;
    uint64_t ring_head;
    uint64_t request_ns;
    int64_t last_ns;
} IdletimeFgWriter;

/** idletime_fg_attach: write @slot from now on; nothing is in service. */
void idletime_fg_attach(IdletimeFgWriter *w, IdletimeBoard *board,
                        const IdletimeSlot *slot);

/**
 * idletime_fg_move: go on in another slot, of another arena perhaps.
 * The new slot shows at once what is in service.  Context: the slot's thread.
 */
void idletime_fg_move(IdletimeFgWriter *w, IdletimeBoard *board,
                      const IdletimeSlot *slot, int64_t now_ns);

static inline void idletime_fg_transition(IdletimeFgWriter *w, int64_t now_ns,
                                          bool busy)
{
    uint64_t entry = (uint64_t)now_ns << 1 | busy;

    __atomic_store_n(&w->page->ring[w->ring_head % IDLETIME_RING], entry,
                     __ATOMIC_RELAXED);
    __atomic_store_n(&w->line->ring_head, ++w->ring_head, __ATOMIC_RELEASE);
}

/*
 * The sum over all requests of the time each was in service, kept without a
 * time stamp for each: as many as there are, for as long as there are.
 * Block accounting keeps one time for all threads of a device, so another
 * thread's earlier one may be read: time stands still then.
 * Returns the time that counts.
 */
static inline int64_t idletime_fg_account(IdletimeFgWriter *w, int64_t now_ns)
{
    now_ns = MAX(now_ns, w->last_ns);
    w->request_ns += (uint64_t)(now_ns - w->last_ns) * w->in_service;
    w->last_ns = now_ns;
    __atomic_store_n(&w->line->request_ns, w->request_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&w->line->last_ns, now_ns, __ATOMIC_RELAXED);
    return now_ns;
}

/**
 * idletime_fg_begin: a foreground request is being issued.
 * @now_ns: CLOCK_MONOTONIC, as read by block accounting
 * Context: the one thread that owns the slot.
 */
static inline void idletime_fg_begin(IdletimeFgWriter *w, int64_t now_ns,
                                     uint64_t bytes)
{
    IdletimeFgLine *line = w->line;

    w->bytes += bytes;
    now_ns = idletime_fg_account(w, now_ns);
    __atomic_store_n(&line->started, ++w->started, __ATOMIC_RELAXED);
    __atomic_store_n(&line->bytes, w->bytes, __ATOMIC_RELAXED);
    if (w->in_service++ == 0) {
        idletime_fg_transition(w, now_ns, true);
    }
    __atomic_store_n(&line->in_service, w->in_service, __ATOMIC_RELEASE);
}

/** idletime_fg_end: it completed.  Context: as idletime_fg_begin(). */
static inline void idletime_fg_end(IdletimeFgWriter *w, int64_t now_ns)
{
    IdletimeFgLine *line = w->line;

    now_ns = idletime_fg_account(w, now_ns);
    if (--w->in_service == 0) {
        idletime_fg_transition(w, now_ns, false);
    }
    __atomic_store_n(&line->in_service, w->in_service, __ATOMIC_RELEASE);
}

#endif
