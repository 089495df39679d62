/*
 * What the tests of the learner's looks share: a disk of 5 ms that is known,
 * and a foreground participant that is seen by its ring and by the sums.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_LOOKS_H
#define IDLETIME_LOOKS_H

#include "test.h"
#include "idletime/learner/learner.h"

#define D (5 * MS)

static const IdletimeGoal goal = { 0.05, 20 * MS };

typedef struct World {
    IdletimeLearner l;
    IdletimeFgBoard *fg;
    IdletimeFgWriter w;
    IdletimeTotals totals;
    int64_t now;
} World;

static inline void near(double got, double want)
{
    g_assert_cmpfloat(ABS(got - want), <=, 1e-6 * MAX(ABS(want), 1));
}

/* A disk of 5 ms is known. */
static inline World *world(void)
{
    static World w;

    memset(&w, 0, sizeof(w));
    w.fg = aligned_alloc(IDLETIME_PAGE_BYTES, sizeof(*w.fg));
    memset(w.fg, 0, sizeof(*w.fg));
    w.w = (IdletimeFgWriter) { .line = &w.fg->line[0],
                               .page = &w.fg->page[0] };
    w.totals.quiet = true;
    idletime_learner_init(&w.l, 0);
    for (int i = 0; i < 10; i++) {
        idletime_service_note(&w.l.services, 4096, D);
    }
    return &w;
}

static inline void begin(World *w, int64_t later_ns)
{
    idletime_fg_begin(&w->w, w->now += later_ns, 4096);
    w->totals.fg_last_ns = w->now;
}

static inline void end(World *w, int64_t later_ns)
{
    idletime_fg_end(&w->w, w->now += later_ns);
    w->totals.fg_last_ns = w->now;
}

/* What has it cost? */
static inline uint64_t look(World *w)
{
    return idletime_learner_look(&w->l, &goal, w->fg, 1, &w->totals, w->now);
}

/* A request is served: it was in service for so long, in the sums. */
static inline void served(World *w, int64_t later_ns, int64_t request_ns)
{
    end(w, later_ns);
    w->totals.fg_done++;
    w->totals.fg_request_ns += request_ns;
}

/* A gap, a request, and a look at its end. */
static inline void burst(World *w, int64_t gap_ns)
{
    begin(w, gap_ns);
    served(w, D, D);
    look(w);
}

#endif
