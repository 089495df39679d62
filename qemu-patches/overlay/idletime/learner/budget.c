/*
 * Idletime budget: what the foreground has paid, and what it may still pay.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   earned: share * time that foreground requests spent in service
 *   spent:  time that they spent there because of us
 *
 *   credit  ___/|  /|       ___cap
 *          /    | / |   ___/         a collision takes what it cost
 *   ______/     |/  |__/
 *
 * While credit lasts the mean slowdown is within the budget, whatever the
 * predictions were worth: slowdown <= share + cap / foreground time.  The cap
 * keeps a quiet hour from being spent in one burst.
 */
#include "qemu/osdep.h"
#include "idletime/learner/budget.h"

/*
 * A foreground that has been away for IDLETIME_AWAY_NS earns one collision
 * every 15 s: else one that never comes back would stop background for ever.
 */
#define AWAY_COLLISION_NS   15e9

void idletime_budget_init(IdletimeBudget *b)
{
    memset(b, 0, sizeof(*b));
}

/* What one costs at most. */
static double collision_ns(const IdletimeBudget *b)
{
    return b->cap_ns / IDLETIME_CREDIT_COLLISIONS;
}

/* ---- the bucket */

static void earn(IdletimeBudget *b, double share, double request_ns,
                 double cost_ns, double away_ns)
{
    b->request_ns += request_ns;
    b->cost_ns += cost_ns;
    b->credit_ns += share * (request_ns - cost_ns) - cost_ns +
                    collision_ns(b) * away_ns / AWAY_COLLISION_NS;
    b->credit_ns = MIN(MAX(b->credit_ns, -b->cap_ns), b->cap_ns);
}

void idletime_budget_look(IdletimeBudget *b, double share,
                          double collision_most_ns, const IdletimeTotals *now,
                          int64_t idle_ns, int64_t now_ns)
{
    double elapsed_ns = MAX(now_ns - b->last_ns, 0);
    double request_ns = idletime_grown(now->fg_request_ns,
                                       b->last.fg_request_ns);
    double cost_ns = idletime_grown(now->bg_cost_ns, b->last.bg_cost_ns);
    double before_ns = b->cap_ns;

    b->cap_ns = IDLETIME_CREDIT_COLLISIONS * collision_most_ns;
    if (before_ns == 0) {
        /* One collision to begin with, as soon as we know its size. */
        b->credit_ns = collision_most_ns;
    }
    if (b->started) {
        earn(b, share, request_ns, cost_ns,
             idle_ns > IDLETIME_AWAY_NS ?
             MIN(elapsed_ns, idle_ns - IDLETIME_AWAY_NS) : 0);
    }
    b->started = true;
    b->last = *now;
    b->last_ns = now_ns;
}

double idletime_budget_slowdown(const IdletimeBudget *b)
{
    double alone_ns = b->request_ns - b->cost_ns;

    return alone_ns > 0 ? b->cost_ns / alone_ns : 0;
}
