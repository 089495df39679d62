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
 *
 * WHAT A COLLISION COSTS
 *
 * The first foreground request that arrives while ours is in service waits
 * for the rest of it: that delay is seen.  Others may wait, too: a second one
 * in the queue, and, where requests arrive on their own schedule, all that
 * follow until the queue has drained (1/(1-load) of them on a single server).
 * On the other hand the device is free somewhat sooner than its completion is
 * seen.  So the cost of a unit of delay is measured: each foreground slot keeps
 * the sum of its requests' times in service (Little), and
 *
 *   factor = (time in service - requests * time of a clean one) / delay
 *
 * over the time from a collision until all is quiet again.  A clean one is
 * one that came and went while no background was in service.
 */
#include "qemu/osdep.h"
#include "idletime/budget.h"
#include "idletime/recent.h"

/* Room for eight collisions: chance makes four come together. */
#define CAP_COLLISIONS      8
/*
 * At a bucket that is half full what is spent is what is earned; less is saved
 * up, more is spent faster.  Gently: the windows are best when they stay the
 * same, and each collision moves the credit by a sixteenth.
 */
#define HASTE_MIN           0.5
#define HASTE_MAX           2
/* Collisions that the factor's start value of one is worth. */
#define FACTOR_PRIOR        4
#define FACTOR_MAX          64
/*
 * The first request did wait; but not for all of the time until our completion
 * is seen, for the device is free some 100 us before.
 */
#define FACTOR_MIN          0.75
/* In a queue some wait much longer than the mean; a stall is longer still. */
#define NOISE               10
/* Half-lives: the clean latency in requests, the factor in delay. */
#define CLEAN_MAX           2048
#define DELAY_MAX           256
/* After a change so much is left. */
#define CLEAN_DOUBT         16
#define DELAY_DOUBT         2
/*
 * A foreground that has been away for a second earns us one collision every
 * 15 s: else one that never comes back would stop us for ever.
 */
#define AWAY_NS             1e9
#define AWAY_COLLISION_NS   15e9
/* The brake is looked at so often; the 100 ms include one look. */
#define BRAKE_NS            (50 * 1000 * 1000LL)
#define BRAKE_MAX           6

void idletime_budget_init(IdletimeBudget *b)
{
    memset(b, 0, sizeof(*b));
}

double idletime_budget_factor(const IdletimeBudget *b)
{
    double prior = FACTOR_PRIOR * b->service_ns;
    double weight = prior + b->delay_ns;

    return weight > 0 ? MIN(MAX((prior + b->excess_ns) / weight, FACTOR_MIN),
                            FACTOR_MAX) : 1;
}

/* ---- the factor */

static void note_clean(IdletimeBudget *b, double done, double request_ns)
{
    b->clean_done += done;
    b->clean_ns += request_ns;
    idletime_recent_limit(&b->clean_ns, &b->clean_done, CLEAN_MAX);
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

static void note_excess(IdletimeBudget *b, double service_ns)
{
    if (b->clean_done >= CLEAN_DOUBT && b->dirty_delay_ns > 0) {
        b->excess_ns += without_noise(b->dirty_ns - b->dirty_done *
                                      b->clean_ns / b->clean_done,
                                      MAX(b->dirty_done, 1), service_ns);
        b->delay_ns += b->dirty_delay_ns;
        idletime_recent_limit(&b->excess_ns, &b->delay_ns,
                              DELAY_MAX * service_ns);
    }
    b->dirty_done = b->dirty_ns = b->dirty_delay_ns = 0;
    b->dirty = false;
}

static void attribute(IdletimeBudget *b, const IdletimeTotals *now,
                      double service_ns, double done, double request_ns)
{
    b->dirty |= now->bg_in_service || now->bg_started != b->last.bg_started;
    if (!b->dirty) {
        note_clean(b, done, request_ns);
        return;
    }
    b->dirty_done += done;
    b->dirty_ns += request_ns;
    if (now->quiet) {
        note_excess(b, service_ns);
    }
}

void idletime_budget_doubt(IdletimeBudget *b)
{
    idletime_recent_limit(&b->clean_ns, &b->clean_done, CLEAN_DOUBT);
    idletime_recent_limit(&b->excess_ns, &b->delay_ns,
                          DELAY_DOUBT * b->service_ns);
}

/* ---- the brake */

/*
 * Twice the budget is too much, but one collision more or less is chance:
 * two of them are let pass.
 */
static void brake_look(IdletimeBudget *b, double share, double service_ns,
                       int64_t now_ns)
{
    double request_ns = b->request_ns - b->brake_request_ns;
    double cost_ns = b->cost_ns - b->brake_cost_ns;

    if (now_ns - b->brake_since_ns < BRAKE_NS) {
        return;
    }
    if (cost_ns > 2 * share * request_ns + 2 * service_ns) {
        b->brake = MIN(b->brake + 1, BRAKE_MAX);
    } else if (b->brake) {
        b->brake--;
    }
    b->brake_since_ns = now_ns;
    b->brake_request_ns = b->request_ns;
    b->brake_cost_ns = b->cost_ns;
}

/* ---- the bucket */

static double grown(uint64_t now, uint64_t before)
{
    /* One that leaves takes its sum along. */
    return now > before ? now - before : 0;
}

static void earn(IdletimeBudget *b, double share, double request_ns,
                 double cost_ns, double away_ns)
{
    double collision_ns = b->cap_ns / CAP_COLLISIONS;

    b->request_ns += request_ns;
    b->cost_ns += cost_ns;
    b->credit_ns += share * (request_ns - cost_ns) - cost_ns +
                    collision_ns * away_ns / AWAY_COLLISION_NS;
    b->credit_ns = MIN(MAX(b->credit_ns, -b->cap_ns), b->cap_ns);
}

void idletime_budget_look(IdletimeBudget *b, double share, double service_ns,
                          const IdletimeTotals *now, int64_t idle_ns,
                          int64_t now_ns)
{
    double elapsed_ns = MAX(now_ns - b->last_ns, 0);
    double done = grown(now->fg_done, b->last.fg_done);
    double request_ns = grown(now->fg_request_ns, b->last.fg_request_ns);
    double cost_ns = grown(now->bg_cost_ns, b->last.bg_cost_ns);
    double before_ns = b->cap_ns;

    b->done += b->started ? done : 0;
    b->service_ns = service_ns;
    b->cap_ns = CAP_COLLISIONS * service_ns * idletime_budget_factor(b);
    if (before_ns == 0) {
        /* One collision to begin with, as soon as we know its size. */
        b->credit_ns = b->cap_ns / CAP_COLLISIONS;
    }
    if (!b->started) {
        b->started = true;
        b->brake_since_ns = now_ns;
    } else {
        attribute(b, now, service_ns, done, request_ns);
        earn(b, share, request_ns, cost_ns,
             idle_ns > AWAY_NS ? MIN(elapsed_ns, idle_ns - AWAY_NS) : 0);
        brake_look(b, share, service_ns, now_ns);
    }
    b->last = *now;
    b->last_ns = now_ns;
}

uint64_t idletime_budget_collision(IdletimeBudget *b, double delay_ns)
{
    b->collisions++;
    b->dirty = true;
    b->dirty_delay_ns += delay_ns;
    return delay_ns * idletime_budget_factor(b);
}

double idletime_budget_haste(const IdletimeBudget *b)
{
    /* From 0, empty, to 2, full. */
    double fill = b->cap_ns > 0 ? 2 * MAX(b->credit_ns, 0) / b->cap_ns : 0;

    return fill < 1 ? HASTE_MIN + (1 - HASTE_MIN) * fill :
                      1 + (HASTE_MAX - 1) * (fill - 1);
}

double idletime_budget_slowdown(const IdletimeBudget *b)
{
    double alone_ns = b->request_ns - b->cost_ns;

    return alone_ns > 0 ? b->cost_ns / alone_ns : 0;
}
