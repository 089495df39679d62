/*
 * Idletime learner: the time in service of what an observer saw.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/learner/observed.h"

/*
 * Events between the reading of the clock and that of the page: the sum is
 * short by that time.  A look takes microseconds; a thread may lose its
 * processor in it.
 */
#define READ_NS (1000 * 1000)

/* More in service at once than any queue of a disk holds: not believed. */
#define REQUESTS_MAX (1 << 16)

static double requests_of(const IdletimeObservedTime *t,
                          const IdletimeObservedFacts *facts)
{
    uint64_t started = facts->started > t->last.started ?
                       facts->started - t->last.started : 0;

    return (double)MIN(t->last.in_service, REQUESTS_MAX) +
           MIN(started, REQUESTS_MAX);
}

uint64_t idletime_observed_time(IdletimeObservedTime *t,
                                const IdletimeObservedFacts *facts,
                                int64_t now_ns)
{
    int64_t elapsed_ns = MAX(now_ns - t->now_ns, 0);
    int64_t grown_ns = (int64_t)(facts->request_ns - t->last.request_ns);
    double most_ns = requests_of(t, facts) * (elapsed_ns + READ_NS);
    uint32_t before = MIN(t->last.in_service, REQUESTS_MAX);

    if (grown_ns < -READ_NS || grown_ns > most_ns) {
        grown_ns = MIN(elapsed_ns, INT64_MAX / REQUESTS_MAX) * before;
    }
    t->total_ns += MAX(grown_ns, 0);
    t->last = *facts;
    t->now_ns = now_ns;
    return t->total_ns;
}
