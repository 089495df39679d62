/*
 * Idletime cost: what a collision costs all foreground requests together.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * THE FIRST ONE, AND THOSE BEHIND IT
 *
 *   ours        ########
 *   foreground       |-d-|11111|22222|33333|   idle again
 *
 * The first foreground request that arrives while ours is in service waits
 * d for the rest of it: that is seen.  On one server each one that arrives
 * before the foreground is idle again finds d more work before it.  So at most
 * n d is lost, n requests of this busy period.  It is over when the rings say
 * so; n is its length by the time that a request keeps the resource busy.
 *
 * Requests that arrive on their own schedule lose nearly all of that: idle
 * time between them takes up the rest (load 0.6, M/D/1: 3.1 d of 3.6 d).  A
 * guest that sends the next one when the last is done loses only what was
 * outstanding.  Which of both it is shows in sums: each foreground slot keeps
 * that of its requests' times in service (Little), and
 *
 *   excess = time in service - requests * time of a clean one
 *
 * is taken from the start of ours until all is quiet; a clean one came and
 * went while no background was in service.  The part that is lost is the sum
 * of these by the sum of n d.  One excess is full of chance, in a queue many
 * times what is looked for; so that it is not all of n d is believed only as
 * far as it is a standard error away.
 *
 * Below 1 for a single request: the device is free before our completion is
 * seen, by some 100 us.
 */
#include "qemu/osdep.h"
#include "idletime/learner/cost.h"
#include "idletime/core/recent.h"
#include "idletime/core/root.h"

/* Collisions that the start value is worth: all of n d, and n is one. */
#define PRIOR               4
#define FACTOR_MAX          64
/* In a busy period: a guest that never pauses has no end of it. */
#define REQUESTS_MAX        1e6
/* The first request did wait, but not until our completion was seen. */
#define FIRST_MIN           0.75
/* In a queue some wait much longer than the mean; a stall is longer still. */
#define NOISE               10
/* Half-lives: clean requests, and service times of delay. */
#define CLEAN_MAX           2048
#define DELAY_MAX           256
/* After a change so much is left. */
#define CLEAN_DOUBT         16
#define DELAY_DOUBT         2

/* ---- sums */

static void limit_clean(IdletimeCost *c, double most)
{
    double part = idletime_recent_part(c->clean_done, most);

    c->clean_done *= part;
    c->clean_ns *= part;
    c->clean_busy_ns *= part;
}

static void limit_collisions(IdletimeCost *c, double most)
{
    double part = idletime_recent_part(c->delay_ns, most * c->service_ns);

    c->delay_ns *= part;
    c->chain_ns *= part;
    c->excess_ns *= part;
    c->chain2 *= part;
    c->chain_excess *= part;
    c->excess2 *= part;
}

static void note_clean(IdletimeCost *c, const IdletimeSpan *span)
{
    c->clean_done += span->done;
    c->clean_ns += span->request_ns;
    c->clean_busy_ns += span->busy_ns;
    limit_clean(c, CLEAN_MAX);
}

/*
 * Of @n requests none waited for longer than one of ours takes; what lies far
 * beyond that is the host's noise.
 */
static double without_noise(double excess_ns, double n, double service_ns)
{
    double most_ns = NOISE * n * service_ns;

    return MIN(MAX(excess_ns, -most_ns), most_ns);
}

static void note_excess(IdletimeCost *c)
{
    if (c->clean_done >= CLEAN_DOUBT && c->dirty_delay_ns > 0) {
        double chain_ns = c->dirty_chain_ns;
        double excess_ns = without_noise(c->dirty_ns - c->dirty_done *
                                         c->clean_ns / c->clean_done,
                                         MAX(c->dirty_done, 1),
                                         c->service_ns);

        c->delay_ns += c->dirty_delay_ns;
        c->chain_ns += chain_ns;
        c->excess_ns += excess_ns;
        c->chain2 += chain_ns * chain_ns;
        c->chain_excess += chain_ns * excess_ns;
        c->excess2 += excess_ns * excess_ns;
        limit_collisions(c, DELAY_MAX);
    }
    c->dirty_done = c->dirty_ns = 0;
    c->dirty_delay_ns = c->dirty_chain_ns = 0;
    c->dirty = false;
}

void idletime_cost_look(IdletimeCost *c, const IdletimeSpan *span,
                        double service_ns)
{
    c->service_ns = service_ns;
    c->dirty |= span->background;
    if (!c->dirty) {
        note_clean(c, span);
        return;
    }
    c->dirty_done += span->done;
    c->dirty_ns += span->request_ns;
    if (span->quiet) {
        note_excess(c);
    }
}

void idletime_cost_doubt(IdletimeCost *c)
{
    limit_clean(c, CLEAN_DOUBT);
    limit_collisions(c, DELAY_DOUBT);
}

/* ---- what they say */

/* Squares of what the excess is beside @part of the chains. */
static double residue2(const IdletimeCost *c, double part)
{
    return c->excess2 - 2 * part * c->chain_excess + part * part * c->chain2;
}

/* Of the chain, as far as is not proven to be less. */
static double part_lost(const IdletimeCost *c)
{
    double prior_ns = PRIOR * c->service_ns;
    double weight = prior_ns + c->chain_ns;
    double part, error;

    if (weight <= 0) {
        return 1;
    }
    part = (prior_ns + c->excess_ns) / weight;
    error = idletime_root(MAX(residue2(c, part), 0)) / weight;
    return MIN(MAX(part + error, 0), 1);
}

double idletime_cost_factor(const IdletimeCost *c)
{
    double prior_ns = PRIOR * c->service_ns;
    double weight = prior_ns + c->delay_ns;
    double chain = weight > 0 ? (prior_ns + c->chain_ns) / weight : 1;

    return MIN(MAX(part_lost(c) * chain, FIRST_MIN), FACTOR_MAX);
}

/* How many requests of foreground are @drain_ns of it?  Whole ones. */
static unsigned requests_in(const IdletimeCost *c, double drain_ns)
{
    double each_ns = c->clean_done >= CLEAN_DOUBT && c->clean_busy_ns > 0 ?
                     c->clean_busy_ns / c->clean_done : c->service_ns;

    return each_ns > 0 ? MAX(MIN(drain_ns / each_ns, REQUESTS_MAX) + 0.5, 1) :
                         1;
}

double idletime_cost_collision(IdletimeCost *c, double delay_ns,
                               double drain_ns)
{
    double chain_ns = delay_ns * requests_in(c, drain_ns);

    c->dirty = true;
    c->dirty_delay_ns += delay_ns;
    c->dirty_chain_ns += chain_ns;
    return MAX(part_lost(c) * chain_ns, FIRST_MIN * delay_ns);
}
