/*
 * Idletime cost: what a collision costs all foreground requests together.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Measured while it goes on, from sums.  Pure.
 */
#ifndef IDLETIME_COST_H
#define IDLETIME_COST_H

/* What happened between two looks. */
typedef struct IdletimeSpan {
    double came;                /* foreground requests that began */
    double done;                /* foreground requests completed */
    double in_service;          /* foreground requests at the second look */
    double request_ns;          /* time in service of all, with waiting */
    double busy_ns;             /* at least one of them was in service */
    double worked_ns;           /* the same, until the last event of one */
    bool background;            /* some was, too, or began */
    double after;               /* part of it: after the collision was over */
    double came_after;          /* requests that began then, at least */
    bool settled;               /* foreground idle since a collision */
    bool quiet;                 /* nothing is in service now */
} IdletimeSpan;

typedef struct IdletimeCost {
    /* Foreground that met no background. */
    double clean_done, clean_busy_ns;
    /* Since something of the background was in service, not yet counted. */
    bool dirty;
    double came, done, request_ns;
    double in_service;          /* at most, at these looks */
    /* The collision that goes on: delays of the first, the next, and all. */
    double first_ns, left_ns, waits_ns;
    double most;                /* foreground requests in service, at most */
    double seen, mean, square;  /* the same: requests, mean and deviation */
    /* Of collisions: delays of the first request, and of all that wait. */
    double delay_ns, lost_ns;
    double service_ns;          /* of a background request, on average */
} IdletimeCost;

/**
 * idletime_cost_look: @service_ns of a background request, on average.
 * Returns what the collision that is over has cost all of them, in ns; 0 if
 * none is.
 */
double idletime_cost_look(IdletimeCost *c, const IdletimeSpan *span,
                          double service_ns);

/**
 * idletime_cost_collision: the first foreground request that came while
 * background was in service waited for @delay_ns, until its end.  Again, if
 * more of it was in service and ends later.
 */
void idletime_cost_collision(IdletimeCost *c, double delay_ns);

/**
 * idletime_cost_return: the first one after an idle gap waits for @delay_ns,
 * and met nothing: what is not counted yet came before, and not behind it.
 */
void idletime_cost_return(IdletimeCost *c, double delay_ns);

/** idletime_cost_doubt: the workload changed; what was learned weighs less */
void idletime_cost_doubt(IdletimeCost *c);

/**
 * idletime_cost_steady: as many foreground requests are in service all the
 * time: each is sent when one is done, and none on its own schedule.
 */
bool idletime_cost_steady(const IdletimeCost *c);

/** idletime_cost_factor: ns of foreground time per ns of the first's delay. */
double idletime_cost_factor(const IdletimeCost *c);

#endif
