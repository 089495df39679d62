/*
 * Idletime waker: a thread that sleeps on a slot's futex for an event loop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Background participants of other processes wake us when a token is free
 * and it is our turn.  A futex cannot be polled, hence the thread; only
 * background participants have one.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/atomic.h"
#include "idletime/gate/sigbus.h"
#include "idletime/gate/waker.h"

/*
 * How often the thread looks for orders when nobody can wake it any more,
 * because its board was lost.
 */
#define WAKER_TIMEOUT_MS 500

/* Go to the other board, if so ordered; wakes there count from now on. */
static void follow_order(IdletimeWaker *waker, IdletimeSleep *sleep)
{
    if (qatomic_load_acquire(&waker->move)) {
        waker->scan = waker->next_scan;
        qatomic_store_release(&waker->move, false);
        idletime_bg_sleep_begin(&waker->scan, sleep);
    }
}

static void *waker_run(void *opaque)
{
    IdletimeWaker *waker = opaque;
    IdletimeSleep sleep = { 0 };

    idletime_guard_thread();
    idletime_bg_sleep_begin(&waker->scan, &sleep);
    while (!qatomic_read(&waker->stop)) {
        if (idletime_bg_sleep(&waker->scan, &sleep, WAKER_TIMEOUT_MS)) {
            qatomic_set(&waker->woken, true);
            event_notifier_set(&waker->notifier);
        }
        follow_order(waker, &sleep);
    }
    return NULL;
}

bool idletime_waker_start(IdletimeWaker *waker, const IdletimeScan *scan,
                          Error **errp)
{
    int ret = event_notifier_init(&waker->notifier, false);

    if (ret < 0) {
        error_setg_errno(errp, -ret, "idletime: cannot create an eventfd; "
                         "raise the limit of open files");
        return false;
    }
    waker->scan = *scan;
    qemu_thread_create(&waker->thread, "idletime-wake", waker_run, waker,
                       QEMU_THREAD_JOINABLE);
    return true;
}

void idletime_waker_stop(IdletimeWaker *waker)
{
    qatomic_set(&waker->stop, true);
    /* Where it sleeps, or is about to. */
    if (!idletime_waker_moved(waker)) {
        idletime_bg_wake(waker->next_scan.bg, waker->next_scan.self);
    }
    idletime_bg_wake(waker->scan.bg, waker->scan.self);
    qemu_thread_join(&waker->thread);
    event_notifier_cleanup(&waker->notifier);
}

void idletime_waker_move(IdletimeWaker *waker, const IdletimeScan *scan)
{
    /* Once ordered to move, the thread may write its scan at any time. */
    const IdletimeBoard *bg = waker->scan.bg;
    uint32_t self = waker->scan.self;

    waker->next_scan = *scan;
    qatomic_store_release(&waker->move, true);
    idletime_bg_wake(bg, self);
}
