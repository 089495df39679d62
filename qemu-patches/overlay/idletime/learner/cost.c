/*
 * Idletime cost: what a collision costs all foreground requests together.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * THE FIRST ONE, AND THOSE BEHIND IT
 *
 *   background  ########
 *   foreground       |-d-|11111|22222|33333|   idle again
 *
 * The first foreground request that arrives while background is in service
 * waits d for the rest of it: that is seen.  On one server each one that
 * arrives before the foreground is idle again finds d more work before it.  At
 * most n d is lost, n requests of this busy period.  It is over when the rings
 * say so; n is its length by the time that a request keeps the resource busy.
 *
 * Requests that arrive on their own schedule lose nearly all of that: idle
 * time between them takes up the rest (load 0.6, M/D/1: 3.1 d of 3.6 d).  A
 * guest that sends the next one when the last is done loses only what was
 * outstanding: of 200 requests, 8 at a time, 8 d and not 200 d.  In a short
 * busy period that makes little difference, and all of n d is counted.  In a
 * long one the sums tell.  Each foreground slot keeps that of its requests'
 * times in service (Little's law); the mean time of a request in a busy period
 * that background has delayed is
 *
 *   y = a + part * d
 *
 * Where in our request the foreground arrives is chance, so that d does not
 * depend on what the busy period is like, and the slope of a straight line
 * through all of them is the part of n d that is lost (least squares; a period
 * of n requests weighs n).  Only periods that were delayed are compared with
 * each other.  Those that were not delayed are others: background waits until
 * a burst is over, so what it does not meet is the middle of bursts, with
 * longer queues than their begin.
 * One period is full of chance, so that it is not all of n d is believed only
 * as far as it is a standard error away.
 */
#include "qemu/osdep.h"
#include "idletime/learner/cost.h"
#include "idletime/core/recent.h"
#include "idletime/core/root.h"

/*
 * Collisions that the start value, all of n d, is worth.  It is replaced as
 * soon as two say otherwise; that they do not by chance is for the standard
 * error to tell.
 */
#define PRIOR               1
/* The delays of these are spread alike over a service time: its square / 12 */
#define PRIOR_VARIANCE      (1 / 12.0)
#define FACTOR_MAX          64
/* In a busy period: a guest that never pauses has no end of it. */
#define REQUESTS_MAX        1e6
/*
 * Requests of a long busy period.  In a short one the slope is too small: a
 * larger delay joins it with the next one, whose requests wait for less.
 */
#define LONG                8
/* Memory: clean requests, and collisions. */
#define CLEAN_MAX           2048
#define PERIODS_MAX         256
/* After a change so much is left; it is also enough for a mean. */
#define CLEAN_DOUBT         16
#define PERIODS_DOUBT       8

/* ---- sums */

static void limit_clean(IdletimeCost *c, double most)
{
    idletime_recent_limit(&c->clean_busy_ns, &c->clean_done, most);
}

static void limit_periods(IdletimeCost *c, double most)
{
    double part = idletime_recent_part(c->periods, most);

    c->periods *= part;
    c->n *= part;
    c->nd *= part;
    c->ny *= part;
    c->ndd *= part;
    c->ndy *= part;
    c->nyy *= part;
}

static void note_clean(IdletimeCost *c, const IdletimeSpan *span)
{
    c->clean_done += span->done;
    c->clean_busy_ns += span->busy_ns;
    limit_clean(c, CLEAN_MAX);
}

/* The busy period is over. */
static void note_period(IdletimeCost *c)
{
    double n = c->dirty_done, d = c->dirty_delay_ns;

    if (n >= LONG && d > 0) {
        double y = c->dirty_ns / n;

        c->periods++;
        c->n += n;
        c->nd += n * d;
        c->ny += n * y;
        c->ndd += n * d * d;
        c->ndy += n * d * y;
        c->nyy += n * y * y;
        limit_periods(c, PERIODS_MAX);
    }
    c->dirty_done = c->dirty_ns = 0;
    c->dirty_delay_ns = 0;
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
        note_period(c);
    }
}

void idletime_cost_doubt(IdletimeCost *c)
{
    limit_clean(c, CLEAN_DOUBT);
    limit_periods(c, PERIODS_DOUBT);
    idletime_recent_limit(&c->lost_ns, &c->delay_ns,
                          PERIODS_DOUBT * c->service_ns);
}

/* ---- what they say */

/* Of n d in a long busy period, as far as is not proven to be less. */
static double part_lost(const IdletimeCost *c)
{
    double n = MAX(c->n, 1), periods = MAX(c->periods, 1);
    double prior = PRIOR * PRIOR_VARIANCE * c->service_ns * c->service_ns *
                   n / periods;
    double dd = c->ndd - c->nd * c->nd / n;
    double dy = c->ndy - c->nd * c->ny / n;
    double yy = c->nyy - c->ny * c->ny / n;
    double slope, square;

    if (prior + dd <= 0) {
        return 1;
    }
    slope = (prior + dy) / (prior + dd);
    square = MAX(yy - 2 * slope * dy + slope * slope * dd, 0) / periods;
    return MIN(MAX(slope + idletime_root(square / (prior + dd)), 0), 1);
}

double idletime_cost_factor(const IdletimeCost *c)
{
    double prior_ns = PRIOR * c->service_ns;
    double weight = prior_ns + c->delay_ns;

    return weight > 0 ? MIN((prior_ns + c->lost_ns) / weight, FACTOR_MAX) : 1;
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
    unsigned n = requests_in(c, drain_ns);
    double part = n < LONG ? 1 : part_lost(c);
    /* The first one waited, whatever the sums say. */
    double lost_ns = delay_ns * MAX(part * n, 1);

    c->dirty = true;
    c->dirty_delay_ns += delay_ns;
    c->delay_ns += delay_ns;
    c->lost_ns += lost_ns;
    idletime_recent_limit(&c->lost_ns, &c->delay_ns,
                          PERIODS_MAX * c->service_ns);
    return lost_ns;
}
