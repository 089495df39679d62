/*
 * Idletime arena: one look at both boards.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_LOOK_H
#define IDLETIME_LOOK_H

#include "idletime/arena/scan.h"
#include "idletime/core/core.h"

/**
 * idletime_scan: the facts of a decision.
 * @rule: interval (for turns), max_inflight, lease (max_hold)
 * @now_ns: CLOCK_MONOTONIC
 * Context: background only.  About 10 ns a slot; a system call for each slot
 * that seems to block us, to ask whether its owner lives.
 */
IdletimeView idletime_scan(IdletimeScan *scan, const IdletimeRule *rule,
                           int64_t now_ns);

/* Sums over the background slots; they shrink when one leaves. */
typedef struct IdletimeBgTotals {
    uint64_t started;           /* requests */
    uint64_t cost_ns;           /* foreground waited so long for them */
} IdletimeBgTotals;

/** idletime_scan_background: what all background participants did. */
IdletimeBgTotals idletime_scan_background(IdletimeScan *scan);

#endif
