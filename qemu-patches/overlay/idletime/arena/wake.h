/*
 * Idletime arena: wake a participant in another process.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Who may write the background board may wake everybody on it, as often as it
 * likes: the sleeper bounds how often it hears of it.
 */
#ifndef IDLETIME_WAKE_H
#define IDLETIME_WAKE_H

#include "idletime/arena/scan.h"

/*
 * A sleeper returns at most once in this time; what comes in between is one
 * wake, delivered at its end.  So a flood costs a process at most 10,000
 * turns of its event loop a second.  Two participants that take turns wake
 * each other after every second request, so only a device that takes less
 * than 50 us for one waits for this, and by 100 us at most.
 */
#define IDLETIME_WAKE_GAP_NS    (100 * 1000LL)

/* What a sleeper has heard; one a sleeping thread. */
typedef struct IdletimeSleep {
    uint32_t seen;              /* wake count that was handled last */
    int64_t not_before_ns;      /* CLOCK_MONOTONIC; returns no earlier */
} IdletimeSleep;

/** idletime_bg_wake: wake @index's owner out of idletime_bg_sleep(). */
void idletime_bg_wake(const IdletimeBoard *bg, uint32_t index);

/** idletime_bg_sleep_begin: wakes up to now count as handled. */
void idletime_bg_sleep_begin(const IdletimeScan *scan, IdletimeSleep *sleep);

/**
 * idletime_bg_sleep: sleep until woken, in our own slot.
 * Returns true if somebody woke us since the last call, false after
 * @timeout_ms, or for no reason; no sooner than IDLETIME_WAKE_GAP_NS after it
 * returned last.  Context: a thread of its own.
 */
bool idletime_bg_sleep(const IdletimeScan *scan, IdletimeSleep *sleep,
                       int timeout_ms);

#endif
