/*
 * Idletime plan: at which ages of an idle gap to start, computed in steps.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A plan takes some 30,000 units of work, 50,000 on a disk with an arm: 0.4 to
 * 0.9 ms.  Nobody may wait for that, so it is made a bounded number of units at
 * a time, from a copy of the distribution.  Pure.
 */
#ifndef IDLETIME_PLAN_H
#define IDLETIME_PLAN_H

#include "idletime/learner/window.h"

/*
 * The windows of a cycle (cycle.c) start in a gap that may be one of a burst:
 * so their budget pays for those, too.
 */
typedef struct IdletimeBurst {
    const IdletimeWindows *by_age;      /* of gaps of all lengths */
    unsigned end;               /* first bin that is in no burst's gap */
    double gaps;                /* a cycle, of all lengths */
    double lead_ns;             /* from the begin of a cycle to its idle time */
} IdletimeBurst;

/* What may be spent, in delay of the first foreground request after a gap. */
typedef struct IdletimeTerms {
    double budget_ns;           /* on average over the gaps */
    double request_ns;          /* foreground's time in service, a gap */
    double seek_ns;             /* what it costs to use a gap at all */
} IdletimeTerms;

typedef enum IdletimePlanStage {
    IDLETIME_PLAN_IDLE,         /* nothing to do */
    IDLETIME_PLAN_SMOOTH,       /* the distribution */
    IDLETIME_PLAN_SUM,          /* its prefix sums: expected delays */
    IDLETIME_PLAN_TABLE,        /* of expected delays, a bin each */
    IDLETIME_PLAN_STARTS,       /* one price: from the longest age down */
    IDLETIME_PLAN_FIRST,        /* the same for the first start in a gap */
    IDLETIME_PLAN_BURST,        /* a cycle: how long to wait for its burst */
    IDLETIME_PLAN_PRICE,        /* what the price has bought: the next one */
    IDLETIME_PLAN_WINDOWS,      /* the answer */
} IdletimePlanStage;

/* What one price buys: from an age on, until the foreground returns. */
typedef struct IdletimeYield {
    double value_ns, delay_ns, starts;
} IdletimeYield;

typedef struct IdletimePlan {
    IdletimePlanStage stage;
    int bin;                    /* the stage's next */
    uint64_t work;              /* units done, ever */
    IdletimeTerms terms;
    IdletimeBurst burst;        /* by_age NULL: ages are those of a gap */
    IdletimeHistogram gaps;
    double left;                /* of their weight, from here on */
    unsigned from;              /* first bin of idle time */

    float smooth[IDLETIME_BINS];
    float ratio[IDLETIME_BINS];         /* c/d in the bin's middle */
    float after_part[IDLETIME_BINS];    /* where t + r lies: bin and part */
    uint16_t after[IDLETIME_BINS];

    /* The search for the price. */
    int low, high, step;        /* of prices */
    double price;               /* at this step */
    bool over;                  /* at low */
    IdletimeYield at_high;

    /* At this price. */
    IdletimeYield yield[IDLETIME_BINS + 1];
    IdletimeYield total;                /* a gap, or a cycle */
    bool first[IDLETIME_BINS], open[IDLETIME_BINS];
    double least_ns, once_ns;           /* of a burst */
    unsigned begin;                     /* bin of gaps: it is likely over */

    IdletimeWindows windows;            /* the answer, when it is done */
} IdletimePlan;

/**
 * idletime_plan_begin: choose the windows for @gaps.
 * @burst: NULL: ages are those of a gap; of it, by_age has to stay
 */
void idletime_plan_begin(IdletimePlan *plan, const IdletimeHistogram *gaps,
                         IdletimeService service, const IdletimeBurst *burst,
                         const IdletimeTerms *terms);

/**
 * idletime_plan_step: do @work units, IDLETIME_PLAN_BIN_MAX - 1 more at most.
 * Returns what is left of @work; more than 0: plan->windows is the answer.
 */
int idletime_plan_step(IdletimePlan *plan, int work);

/**
 * idletime_plan_exchange: by how many percent more background a percent of
 * foreground delay has to bring, at a budget of @share.
 */
double idletime_plan_exchange(double share);

/* The most that one bin takes, in units: the widest that is smoothed. */
#define IDLETIME_PLAN_BIN_MAX   40

#endif
