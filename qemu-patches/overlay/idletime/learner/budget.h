/*
 * Idletime budget: what the foreground has paid, and what it may still pay.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A leaky bucket of credits (dissertation section 7.2.1) and measured cost.
 * Pure.
 */
#ifndef IDLETIME_BUDGET_H
#define IDLETIME_BUDGET_H

/*
 * A foreground that has been away for so long is not waited for: no burst
 * pauses so long.
 */
#define IDLETIME_AWAY_NS        (1000 * 1000 * 1000LL)

/*
 * The credit has room for so many collisions: chance makes four come together,
 * and a few busy seconds earn what is spent in the quiet ones after them.
 */
#define IDLETIME_CREDIT_COLLISIONS  24

/* Sums over all slots at one look; they only grow while nobody leaves. */
typedef struct IdletimeTotals {
    uint64_t fg_done;           /* foreground requests completed */
    uint64_t fg_request_ns;     /* and their time in service, with waiting */
    uint32_t fg_in_service;     /* requests */
    uint64_t bg_started;
    uint64_t bg_cost_ns;        /* as background participants measured it */
    bool quiet;                 /* nothing is in service */
    bool bg_in_service;
    int64_t fg_last_ns;         /* last foreground event; the sums' moment */
} IdletimeTotals;

/** idletime_grown: by how much; a slot that leaves takes its sum along. */
static inline double idletime_grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

typedef struct IdletimeBudget {
    double credit_ns;           /* foreground may wait so long from now on */
    double cap_ns;

    /* Totals since the beginning. */
    double request_ns, cost_ns;

    IdletimeTotals last;
    int64_t last_ns;
    bool started;
} IdletimeBudget;

void idletime_budget_init(IdletimeBudget *b);

/**
 * idletime_budget_look: earn and spend what happened since the last look.
 * @share: the budget, 0.05 is 5 %
 * @collision_most_ns: what a collision costs at most
 * @idle_ns: how long the foreground has been idle; 0 if it is not
 */
void idletime_budget_look(IdletimeBudget *b, double share,
                          double collision_most_ns, const IdletimeTotals *now,
                          int64_t idle_ns, int64_t now_ns);

/** idletime_budget_slowdown: measured so far; 0.03 is 3 %. */
double idletime_budget_slowdown(const IdletimeBudget *b);

#endif
