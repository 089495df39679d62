/*
 * Idletime scale: what collisions really cost, for each ns that was reckoned.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Measured from busy periods of the foreground, on one server.  Pure.
 */
#ifndef IDLETIME_SCALE_H
#define IDLETIME_SCALE_H

#include "idletime/learner/cost.h"

/* Of a busy period: a burst is one, with a piece for each of its requests. */
typedef struct IdletimePeriod {
    double done;                /* foreground requests */
    double pieces;              /* stretches of time without a pause */
    double busy_ns;
} IdletimePeriod;

typedef struct IdletimeScale {
    /* Since the foreground came back. */
    IdletimePeriod now;
    double delay_ns;            /* of collisions, as reckoned */
    bool used, next_used;       /* background ran before this one, the next */
    bool over;                  /* what comes now is another period */
    bool idle;                  /* foreground was, at the last look */
    bool beside;                /* background that began beside it goes on */
    bool unclear;               /* more has delayed it than own collisions */

    /* Periods without a collision: how many, and sums of products. */
    double clear;
    double done_done, done_pieces, pieces_pieces, done_busy, pieces_busy;
    double busy_busy;

    /* Periods with one: how many, sums, and squares of what was wrong. */
    double met, met_done, met_delay_ns, met_lost_ns, met_square;
    double less;                /* 1 less the scale */
} IdletimeScale;

/* What else is known of a span. */
typedef struct IdletimeReckoned {
    double delay_ns;            /* by own collisions that are over */
    double others_ns;           /* what other processes say it has cost */
    double pieces;              /* of busy time that began */
    double started;             /* background requests */
    bool in_service;            /* one of these is */
    bool away;                  /* foreground, for a service time */
} IdletimeReckoned;

/** idletime_scale_look: @service_ns of a background request, on average. */
void idletime_scale_look(IdletimeScale *s, const IdletimeSpan *span,
                         const IdletimeReckoned *reckoned, double service_ns);

/** idletime_scale_doubt: the workload changed; what was learned weighs less */
void idletime_scale_doubt(IdletimeScale *s);

/** idletime_scale: ns lost for each ns reckoned, 0.5 to 1. */
static inline double idletime_scale(const IdletimeScale *s)
{
    return 1 - s->less;
}

#endif
