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
 * waits d for the rest of it: that is seen.  On one server the next one finds
 * d more work before it, if it arrives before the first is done; the idle time
 * that would have been before it takes up a part of d.  With the waiting time
 * w of request i, and what it would not have waited alone, x,
 *
 *   x(1) = w(1) = d,   x(i) = min( x(i - 1), w(i) )
 *
 * (Lindley's recursion of the queue with the delay and without it, one
 * subtracted from the other: D. Lindley, Proc. Camb. Phil. Soc. 1952).  The
 * sum of all x is lost, and it ends when the foreground is idle.
 *
 * WHERE w IS FROM
 *
 * Not of each request, but the sum of all requests' time in service is known
 * at each look, waiting included.  While a collision goes on, looks are half a
 * service time apart.  From one completion to the next the sum grows by the
 * service time of one and by the time that others waited meanwhile.  Who waits
 * for less than a service time has come since the last completion, so that
 * this is w of the next one, and else it is more than any x.
 *
 * WHO SENDS THE NEXT ONE WHEN ONE IS DONE
 *
 * A guest with eight requests at a time, and 200 to do: each is sent later by
 * x, and waits no longer than it would have.  Eight are lost, those that were
 * sent on their own schedule.  Such a guest has as many in service as ever: who
 * comes while there are that many loses nothing.
 */
#include "qemu/osdep.h"
#include "idletime/learner/cost.h"
#include "idletime/core/recent.h"

/*
 * Service times of delay that the start value is worth: one request waits.
 * What is measured is exact, so it is soon replaced.
 */
#define PRIOR               1
#define FACTOR_MAX          64
/* As many as ever; a completion may be seen before the next one is sent. */
#define FULL                0.9
/* With one at a time nobody waits behind it. */
#define FULL_LEAST          1.5
/* "Ever" is this many requests. */
#define MOST_MEMORY         1024
/*
 * As many all the time: the deviation is below half of the mean.  In a
 * queue that fills and empties by chance it is as large as the mean.
 */
#define STEADY              2
#define STEADY_MEMORY       4096
#define STEADY_LEAST        1024
/* Memory: clean requests, and service times of collisions. */
#define CLEAN_MAX           2048
#define COLLISIONS_MAX      256
/* After a change so much is left; it is also enough for a mean. */
#define CLEAN_DOUBT         16
#define COLLISIONS_DOUBT    8

static void limit_clean(IdletimeCost *c, double most)
{
    idletime_recent_limit(&c->clean_busy_ns, &c->clean_done, most);
}

static void limit_collisions(IdletimeCost *c, double most)
{
    idletime_recent_limit(&c->lost_ns, &c->delay_ns, most * c->service_ns);
}

static void note_clean(IdletimeCost *c, const IdletimeSpan *span)
{
    c->clean_done += span->done;
    c->clean_busy_ns += span->busy_ns;
    limit_clean(c, CLEAN_MAX);
}

/* A foreground request, without waiting; by ours where none is known. */
static double each_ns(const IdletimeCost *c)
{
    return c->clean_done >= CLEAN_DOUBT && c->clean_busy_ns > 0 ?
           c->clean_busy_ns / c->clean_done : c->service_ns;
}

static void note_number(IdletimeCost *c, const IdletimeSpan *span)
{
    double part;

    c->most -= c->most * MIN(span->done / MOST_MEMORY, 1);
    c->most = MAX(c->most, span->in_service);
    c->seen = MIN(c->seen + span->done, STEADY_MEMORY);
    part = c->seen > 0 ? MIN(span->done / c->seen, 1) : 0;
    idletime_recent_note(&c->mean, &c->square, span->in_service, part);
}

static void counted(IdletimeCost *c)
{
    c->came = c->done = c->request_ns = c->in_service = 0;
}

/* ---- a collision */

static bool full(const IdletimeCost *c)
{
    return c->in_service > FULL_LEAST && c->in_service >= FULL * c->most;
}

/* Some have completed: what did those lose that came meanwhile? */
static void count_waits(IdletimeCost *c)
{
    bool first = c->waits_ns == 0;
    double waited_ns = c->request_ns - c->done * each_ns(c) -
                       first * c->first_ns;
    double came = c->came - first;

    c->waits_ns += first * c->first_ns;
    c->left_ns = MIN(c->left_ns, MAX(waited_ns / c->done, 0));
    if (first || !full(c)) {
        c->waits_ns += c->left_ns * MAX(came, 0);
    }
    counted(c);
}

/* It is over: the first one waited, whatever was seen of it. */
static double settle(IdletimeCost *c)
{
    double lost_ns = MAX(c->waits_ns, c->first_ns);

    c->delay_ns += c->first_ns;
    c->lost_ns += lost_ns;
    limit_collisions(c, COLLISIONS_MAX);
    c->first_ns = c->left_ns = c->waits_ns = 0;
    return lost_ns;
}

void idletime_cost_collision(IdletimeCost *c, double delay_ns)
{
    c->dirty = true;
    c->first_ns = c->left_ns = delay_ns;
    c->waits_ns = 0;
}

void idletime_cost_return(IdletimeCost *c, double delay_ns)
{
    counted(c);
    idletime_cost_collision(c, delay_ns);
}

double idletime_cost_look(IdletimeCost *c, const IdletimeSpan *span,
                          double service_ns)
{
    double lost_ns = 0;

    c->service_ns = service_ns;
    c->dirty |= span->background;
    note_number(c, span);
    if (!c->dirty) {
        note_clean(c, span);
        return 0;
    }
    c->came += MIN((1 - span->after) * span->came,
                   MAX(span->came - span->came_after, 0));
    c->done += (1 - span->after) * span->done;
    c->request_ns += (1 - span->after) * span->request_ns;
    c->in_service = MAX(c->in_service, span->in_service);
    if (c->done > 0 && c->first_ns > 0) {
        count_waits(c);
    }
    if (span->settled) {
        lost_ns = settle(c);
    }
    if (span->quiet || span->settled) {
        counted(c);
    }
    c->dirty = !span->quiet;
    return lost_ns;
}

/* ---- what collisions cost */

bool idletime_cost_steady(const IdletimeCost *c)
{
    return c->seen >= STEADY_LEAST &&
           STEADY * STEADY * c->square <= c->mean * c->mean;
}

void idletime_cost_doubt(IdletimeCost *c)
{
    limit_clean(c, CLEAN_DOUBT);
    limit_collisions(c, COLLISIONS_DOUBT);
    c->most = c->seen = 0;
}

double idletime_cost_factor(const IdletimeCost *c)
{
    double prior_ns = PRIOR * c->service_ns;
    double weight = prior_ns + c->delay_ns;

    return weight > 0 ? MIN((prior_ns + c->lost_ns) / weight, FACTOR_MAX) : 1;
}
