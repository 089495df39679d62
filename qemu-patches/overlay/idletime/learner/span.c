/*
 * Idletime learner: what happened between two looks.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/learner/learner-impl.h"

/* When the foreground was idle first from @at_ns on; INT64_MAX: not yet. */
static int64_t idle_after(const IdletimeGaps *gaps, int64_t at_ns)
{
    for (uint32_t i = 0; i < gaps->count; i++) {
        if (gaps->gap[i].begin_ns >= at_ns) {
            return gaps->gap[i].begin_ns;
        }
    }
    return !gaps->busy && gaps->idle_since_ns >= at_ns ?
           gaps->idle_since_ns : INT64_MAX;
}

/* Requests that came after that: each piece of busy time begins with one. */
static uint32_t came_after(const IdletimeGaps *gaps, int64_t idle_ns)
{
    uint32_t i = gaps->count;

    while (i > 0 && gaps->gap[i - 1].end_ns > idle_ns) {
        i--;
    }
    return gaps->count - i;
}

/*
 * Which part of a span's foreground came after a collision that was over at
 * @end_ns: who holds nothing looks late, and much may have come since.
 */
static double part_after(const IdletimeLearner *l, int64_t end_ns,
                         int64_t now_ns)
{
    int64_t begin_ns = MAX(l->collision.arrival_ns, l->look_ns);
    double busy_ns = idletime_gaps_busy(&l->gaps, now_ns) - l->busy_ns;

    return busy_ns > 0 ? 1 - MIN(MAX(end_ns - begin_ns, 0) / busy_ns, 1) : 0;
}

int64_t idletime_learner_worked(const IdletimeLearner *l,
                                const IdletimeTotals *totals, int64_t now_ns)
{
    return idletime_gaps_busy(&l->gaps, MIN(totals->fg_last_ns, now_ns));
}

IdletimeSpan idletime_learner_span(const IdletimeLearner *l,
                                   const IdletimeTotals *totals,
                                   int64_t now_ns)
{
    const IdletimeTotals *last = l->budget.started ? &l->budget.last : totals;
    double done = idletime_grown(totals->fg_done, last->fg_done);
    int64_t idle_ns = l->collision.open ?
                      idle_after(&l->gaps, l->collision.arrival_ns) : INT64_MAX;
    bool settled = idle_ns != INT64_MAX;

    return (IdletimeSpan) {
        .came = done + totals->fg_in_service - last->fg_in_service,
        .done = done,
        .in_service = totals->fg_in_service,
        .request_ns = idletime_grown(totals->fg_request_ns,
                                     last->fg_request_ns),
        .busy_ns = l->gaps.busy_ns - l->busy_ns,
        /* Who leaves takes its last event along: it was busy all the same. */
        .worked_ns = MAX(idletime_learner_worked(l, totals, now_ns) -
                         l->worked_ns, 0),
        .background = totals->bg_in_service ||
                      totals->bg_started != l->bg_started,
        .settled = settled,
        .after = settled ? part_after(l, idle_ns, now_ns) : 0,
        .came_after = settled ? came_after(&l->gaps, idle_ns) : 0,
        .quiet = totals->quiet && (settled || !l->collision.open),
    };
}
