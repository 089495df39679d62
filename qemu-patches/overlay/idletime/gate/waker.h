/*
 * Idletime waker: a thread that sleeps on a slot's futex for an event loop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_WAKER_H
#define IDLETIME_WAKER_H

#include "block/aio.h"
#include "idletime/arena/wake.h"
#include "qemu/event_notifier.h"
#include "qemu/thread.h"

typedef struct IdletimeWaker {
    EventNotifier notifier;     /* set when another participant woke us */
    bool woken;                 /* qatomic: the same, for who polls */
    QemuThread thread;
    IdletimeScan scan;          /* the thread's own */
    IdletimeScan next_scan;     /* where to go on; valid while move is set */
    bool move;                  /* qatomic */
    bool stop;                  /* qatomic */
} IdletimeWaker;

/** idletime_waker_start: Context: BQL.  Returns false with @errp set. */
bool idletime_waker_start(IdletimeWaker *waker, const IdletimeScan *scan,
                          Error **errp);

/** idletime_waker_stop: waits for the thread.  Context: BQL. */
void idletime_waker_stop(IdletimeWaker *waker);

/** idletime_waker_move: sleep on another slot from now on.  Context: BQL. */
void idletime_waker_move(IdletimeWaker *waker, const IdletimeScan *scan);

/** idletime_waker_moved: the old board is no longer touched.  Any thread. */
static inline bool idletime_waker_moved(const IdletimeWaker *waker)
{
    return !qatomic_load_acquire(&waker->move);
}

#endif
