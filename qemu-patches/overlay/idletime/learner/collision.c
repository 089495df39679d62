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

/* Our part of the seek: @part.  Delays are as they are reckoned (scale.c). */
static double delayed(IdletimeLearner *l, double delay_ns, double part)
{
    IdletimeCollision *c = &l->collision;

    if (!c->open) {
        c->seek_ns = part > 0 && c->start_ns != l->start_ns ?
                     l->seek.cost_ns / idletime_scale(&l->scale) : 0;
        c->share = part;
        c->arrival_ns = l->arrival_ns;
        c->open = true;
    }
    c->start_ns = l->start_ns;
    c->delay_ns = delay_ns;
    c->part = delay_ns + c->seek_ns > 0 ?
              (delay_ns + c->share * c->seek_ns) / (delay_ns + c->seek_ns) : 0;
    return delay_ns + c->seek_ns;
}

void idletime_learner_returned(IdletimeLearner *l, const IdletimeTotals *totals)
{
    double started = idletime_grown(totals->bg_started, l->bg_started);
    double part = idletime_seek_share(&l->seek, l->own_started, started);

    if (l->arrival_ns != INT64_MAX && !l->collision.open && part > 0 &&
        l->collision.start_ns != l->start_ns &&
        idletime_channels_limit(&l->channels) == 1) {
        idletime_cost_return(&l->cost, delayed(l, 0, part));
    }
}

/* Those in service at a time are one collision: the last to end counts. */
void idletime_learner_collided(IdletimeLearner *l, int64_t end_ns)
{
    int64_t arrival_ns = l->collision.open ? l->collision.arrival_ns :
                         l->arrival_ns;
    double delay_ns = end_ns - arrival_ns;

    l->collided_ns = idletime_scale(&l->scale) * delay_ns;
    idletime_cost_collision(&l->cost, delayed(l, delay_ns,
                            idletime_seek_share(&l->seek, l->own_started, 0)));
}
