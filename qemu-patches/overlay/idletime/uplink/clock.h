/*
 * Idletime uplink: when will the link have sent what it was given?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Shared by all background participants through the background board.
 */
#ifndef IDLETIME_UPLINK_CLOCK_H
#define IDLETIME_UPLINK_CLOCK_H

#include "idletime/arena/scan.h"

/**
 * idletime_uplink_clock_take: the link gets @bytes more of the background.
 * Returns the time at which it will have sent them; it may lie in the past,
 * by 250 us at most, where a late timer is made up for.
 */
int64_t idletime_uplink_clock_take(const IdletimeScan *scan, uint64_t rate_bps,
                           uint64_t bytes, int64_t now_ns);

/* What is known of the foreground's share of a link; zero-initialise. */
typedef struct IdletimeUplinkClock {
    uint64_t bytes;             /* of all foreground participants */
    int64_t look_ns;            /* when that was; 0: never */
    int64_t free_ns;
} IdletimeUplinkClock;

/**
 * idletime_uplink_clock_foreground: look at what the foreground sent.
 * Returns the time at which the link will have sent it, 100 ms ahead at most;
 * somewhat too early where it was sent long after the last look.
 */
int64_t idletime_uplink_clock_foreground(IdletimeUplinkClock *link, const IdletimeScan *scan,
                                 uint64_t rate_bps, int64_t now_ns);

#endif
