/*
 * Idletime arena: turns among the background participants that wait.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * By virtual time, the service received divided by weight (start-time fair
 * queueing: P. Goyal, H. Vin, H. Cheng, SIGCOMM 1996).  Who is past its
 * deadline comes before all turns, the earliest deadline first: so what an
 * overdue request waits for at the cap is counted by what was held or in
 * service when it came.
 */
#ifndef IDLETIME_TURNS_H
#define IDLETIME_TURNS_H

#include "idletime/arena/scan.h"

/* ---- who is first; all times are CLOCK_MONOTONIC */

/**
 * idletime_turn_overdue: the slot that is past its deadline for longest; -1:
 * nobody that waits is.
 */
int idletime_turn_overdue(const IdletimeScan *scan, int64_t now_ns);

/**
 * idletime_turn_next: of those that wait and whose own interval is over, the
 * slot of the least virtual time; -1: nobody.
 * @fg_last_ns: the last foreground event
 */
int idletime_turn_next(const IdletimeScan *scan, int64_t fg_last_ns,
                       int64_t now_ns);

/** idletime_scan_next: the slot that is overdue, else next; -1: nobody. */
int idletime_scan_next(const IdletimeScan *scan, int64_t fg_last_ns,
                       int64_t now_ns);

/**
 * idletime_scan_skip: @index had its turn and let it pass.
 * It is skipped for 20 ms, twice as long each further time up to 1.28 s,
 * but only until it starts a request; a dead one is cleared.  So one that is
 * slow to wake loses little, and one that is stopped costs the others little.
 */
void idletime_scan_skip(IdletimeScan *scan, uint32_t index, int64_t now_ns);

/* ---- our own slot */

/**
 * idletime_bg_enter: we begin to wait, or our rule changed.
 * @due_ns: deadline of our first; INT64_MAX: none
 * Time that we did not want is not saved up, but for 50 ms.
 */
void idletime_bg_enter(const IdletimeScan *scan, int64_t interval_ns,
                       int64_t due_ns, uint32_t weight);
/** idletime_bg_leave: nothing is held any more. */
void idletime_bg_leave(const IdletimeScan *scan);

/** idletime_bg_started: we issue a request. */
void idletime_bg_started(const IdletimeScan *scan);
/** idletime_bg_done: it took @service_ns, charged at our weight. */
void idletime_bg_done(const IdletimeScan *scan, int64_t service_ns);

/** idletime_bg_cost: foreground has waited @cost_ns for an own request. */
void idletime_bg_cost(const IdletimeScan *scan, uint64_t cost_ns);

#endif
