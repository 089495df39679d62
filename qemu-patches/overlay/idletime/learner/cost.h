/*
 * Idletime cost: what a collision costs all foreground requests together.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Measured afterwards, from sums.  Pure.
 */
#ifndef IDLETIME_COST_H
#define IDLETIME_COST_H

/* What happened between two looks. */
typedef struct IdletimeSpan {
    double done;                /* foreground requests completed */
    double request_ns;          /* their time in service, with waiting */
    double busy_ns;             /* at least one of them was in service */
    bool background;            /* some was, too, or began */
    bool quiet;                 /* nothing is in service now */
} IdletimeSpan;

typedef struct IdletimeCost {
    /* Foreground that met no background. */
    double clean_done, clean_busy_ns;
    /* Since something of the background was in service. */
    bool dirty;
    double dirty_done, dirty_ns, dirty_delay_ns;
    /* Of collisions: delays of the first request, and of all that wait. */
    double delay_ns, lost_ns;
    /*
     * Long busy periods with a collision: n requests, delay d of the first,
     * y the mean time of a request; sums of their products.
     */
    double periods, n, nd, ny, ndd, ndy, nyy;
    double service_ns;          /* of a background request, on average */
} IdletimeCost;

/** idletime_cost_look: @service_ns of a background request, on average. */
void idletime_cost_look(IdletimeCost *c, const IdletimeSpan *span,
                        double service_ns);

/**
 * idletime_cost_collision: the first foreground request that came while one
 * was in service waited for @delay_ns; from its end until the foreground was
 * idle it took @drain_ns.
 * Returns what that cost all of them, in ns.
 */
double idletime_cost_collision(IdletimeCost *c, double delay_ns,
                               double drain_ns);

/** idletime_cost_doubt: the workload changed; what was learned weighs less */
void idletime_cost_doubt(IdletimeCost *c);

/** idletime_cost_factor: ns of foreground time per ns of the first's delay. */
double idletime_cost_factor(const IdletimeCost *c);

#endif
