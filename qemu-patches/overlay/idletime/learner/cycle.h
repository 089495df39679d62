/*
 * Idletime cycle: the second clock, time since the last burst began.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pure.
 */
#ifndef IDLETIME_CYCLE_H
#define IDLETIME_CYCLE_H

#include "idletime/learner/gaps.h"
#include "idletime/learner/plan.h"

typedef struct IdletimeCycle {
    IdletimeHistogram length;   /* from the begin of a burst to the next */
    IdletimeWindows windows;    /* ages are times since a burst began */
    int64_t onset_ns;           /* of the last burst; INT64_MIN: not known */
    double lead_ns;             /* from there until the burst is over, mean */
    double gaps;                /* idle gaps a cycle, mean */
    uint32_t gap_count;         /* of this cycle so far */
    bool built;
    double gain_ns, other_ns;   /* by this clock, and by the age of the gap */
    double ahead_ns;            /* in this cycle, so far */
    double square;              /* sum over cycles of its squares */
} IdletimeCycle;

void idletime_cycle_init(IdletimeCycle *c);

/**
 * idletime_cycle_note: a gap has ended.
 * @by_age: the windows of the other clock
 * @request_ns: time of foreground requests in service, on average a gap
 */
void idletime_cycle_note(IdletimeCycle *c, const IdletimeGap *gap,
                         const IdletimeWindows *by_age, double request_ns);

/**
 * idletime_cycle_plan: begin a plan for the second clock.
 * @by_age: the windows of the other clock; they have to stay until it is made
 * @terms: for a gap
 * Returns false if there have been too few cycles.
 */
bool idletime_cycle_plan(const IdletimeCycle *c, IdletimePlan *plan,
                         const IdletimeWindows *by_age,
                         const IdletimeTerms *terms);

/** idletime_cycle_planned: it is made; @windows are in force. */
void idletime_cycle_planned(IdletimeCycle *c, const IdletimeWindows *windows);

/** idletime_cycle_better: would it have gained more than the age of the gap? */
bool idletime_cycle_better(const IdletimeCycle *c);

/** idletime_cycle_lost: some gaps were not seen. */
void idletime_cycle_lost(IdletimeCycle *c);

#endif
