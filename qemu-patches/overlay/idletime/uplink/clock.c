/*
 * Idletime uplink clock: when will the uplink have sent what it was given?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Where the host does not tell when a packet has left, its rate does: the
 * background board has the time at which the uplink will have sent what the
 * background gave it, all processes together.  What the foreground gave it
 * each background process works out for itself, from the bytes on the
 * foreground board and what an observer saw.
 */
#include "qemu/osdep.h"
#include "idletime/uplink/clock.h"

/*
 * A timer comes late, and the uplink was idle meanwhile: so much of that may
 * be made up for.  Two full packets at 100 Mbit/s.
 */
#define CREDIT_NS       (250 * 1000LL)
/* No queue is so long: a time further ahead is scribbled. */
#define AHEAD_MAX_NS    (1000 * 1000 * 1000LL)
/* Longer queues drop, and we do not know what. */
#define QUEUE_MAX_NS    (100 * 1000 * 1000LL)
#define NS_PER_S        (1000 * 1000 * 1000ULL)

static int64_t cost_ns(uint64_t bytes, uint64_t rate_bps)
{
    unsigned __int128 ns = (unsigned __int128)bytes * 8 * NS_PER_S /
                           MAX(rate_bps, 1);

    return MIN(ns, AHEAD_MAX_NS);
}

int64_t idletime_uplink_clock_take(const IdletimeScan *scan,
                                   uint64_t rate_bps, uint64_t bytes,
                                   int64_t now_ns)
{
    int64_t *clock = &idletime_bg_board(scan->bg)->header.uplink_free_ns;
    int64_t cost = cost_ns(bytes, rate_bps);
    int64_t seen = __atomic_load_n(clock, __ATOMIC_RELAXED);
    int64_t free_ns;

    do {
        free_ns = seen > now_ns + AHEAD_MAX_NS ? now_ns :
                  MAX(seen, now_ns - CREDIT_NS);
        free_ns += cost;
    } while (!__atomic_compare_exchange_n(clock, &seen, free_ns, false,
                                          __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return free_ns;
}

static uint64_t foreground_bytes(const IdletimeScan *scan)
{
    const IdletimeFgBoard *fg = idletime_fg_board(scan->fg);
    uint32_t high = __atomic_load_n(&fg->header.slots_high, __ATOMIC_ACQUIRE);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < MIN(high, IDLETIME_SLOTS); i++) {
        bytes += __atomic_load_n(&fg->line[i].bytes, __ATOMIC_RELAXED);
    }
    /* One that comes brings what it saw before: a full queue, once. */
    if (scan->observer && idletime_observer_intact(scan->observer)) {
        bytes += __atomic_load_n(&scan->observer->page->bytes,
                                 __ATOMIC_RELAXED);
    }
    return bytes;
}

int64_t idletime_uplink_clock_foreground(IdletimeUplinkClock *clock,
                                         const IdletimeScan *scan,
                                         uint64_t rate_bps, int64_t now_ns)
{
    uint64_t bytes = foreground_bytes(scan);
    /* One that left takes its bytes along. */
    uint64_t sent = clock->look_ns && bytes > clock->bytes ?
                    bytes - clock->bytes : 0;

    if (sent) {
        clock->free_ns = MAX(clock->free_ns, clock->look_ns) +
                        cost_ns(sent, rate_bps);
        clock->free_ns = MIN(clock->free_ns, now_ns + QUEUE_MAX_NS);
    }
    clock->bytes = bytes;
    clock->look_ns = now_ns;
    return clock->free_ns;
}
