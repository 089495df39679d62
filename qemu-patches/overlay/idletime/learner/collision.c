/*
 * Idletime learner: the foreground comes, and waits because of us.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * For the rest of a request of ours, and for the arm (seek.c).  Both delay the
 * first one, so both are one collision, and cost.c tells what it costs.  Who
 * else started something in that gap is to blame for its part of the seek.
 */
#include "qemu/osdep.h"
#include "idletime/learner/learner-impl.h"

/* Our part of the seek; 0: none, or it was charged for this start already. */
static double share(const IdletimeLearner *l, double started)
{
    return l->collision.start_ns == l->start_ns ? 0 :
           idletime_seek_share(&l->seek, l->own_started, started);
}

/* A collision begins, if none goes on.  Delays are as they are reckoned. */
static void arrive(IdletimeLearner *l, double part)
{
    IdletimeCollision *c = &l->collision;

    if (!c->open) {
        c->open = true;
        c->arrival_ns = l->arrival_ns;
        c->share = part;
        c->seek_ns = part > 0 ? l->seek.cost_ns / idletime_scale(&l->scale) : 0;
    }
    c->start_ns = l->start_ns;
}

/* The first one waits for @delay_ns, and for the arm: so long in all. */
static double delayed(IdletimeCollision *c, double delay_ns)
{
    double first_ns = delay_ns + c->seek_ns;

    c->delay_ns = delay_ns;
    c->part = first_ns > 0 ? (delay_ns + c->share * c->seek_ns) / first_ns : 0;
    return first_ns;
}

void idletime_learner_returned(IdletimeLearner *l, const IdletimeTotals *totals)
{
    double part = share(l, idletime_grown(totals->bg_started, l->bg_started));

    if (l->arrival_ns != INT64_MAX && !l->collision.open && part > 0 &&
        idletime_channels_limit(&l->channels) == 1) {
        arrive(l, part);
        idletime_cost_return(&l->cost, delayed(&l->collision, 0));
    }
}

/* Those in service at a time are one collision: the last to end counts. */
void idletime_learner_collided(IdletimeLearner *l, int64_t end_ns)
{
    double delay_ns;

    arrive(l, share(l, 0));
    delay_ns = end_ns - l->collision.arrival_ns;
    l->collided_ns = idletime_scale(&l->scale) * delay_ns;
    idletime_cost_collision(&l->cost, delayed(&l->collision, delay_ns));
}
