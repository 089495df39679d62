/*
 * Idletime plan: at which ages of an idle gap to start, computed in steps.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A background request that starts at age t of a gap takes d, its service
 * time, and makes the foreground wait c(t) on average (delay.c).  Of all gaps
 * S(t) reach age t.  At each age there is a choice: start now, and be asked
 * again at t + r if the gap lasts that long; or wait.  A guest needs a moment
 * between a completion and its next request: r is d and that turnaround.  With
 * a price p, in background time, for each ns of the foreground's delay, the
 * best that can be had from age t on is
 *
 *   W(t) = max( S(t) (d - c(t) - p c(t)) + W(t + r),  W(t + dt) )
 *
 * computed from the longest age down (dynamic programming, R. Bellman 1957).
 * Where it costs the foreground s that a gap was used at all (seek.c), the
 * first start has a choice of its own, and s as well as c(t) to pay.
 * The price is the lowest one at which the expected delay is within what the
 * budget allows a gap (the Lagrange multiplier of the budget), found by
 * bisection.  Of d, c is not idle time but the foreground's, who gets it back
 * out of the next gap.
 *
 *   bursts       c/d  |#                   .##     wait until the gap is longer
 *                     |#                  .###     than those within a burst,
 *                     |##______________ .#####     stop before the return
 *                      0  ^ start     stop ^
 *
 *   memoryless   c/d  |########################    flat: no age is better, the
 *                     |########################    bucket meters the starts
 *
 * Each stage goes through the bins once, and can be left between any two.
 */
#include "qemu/osdep.h"
#include "idletime/learner/plan.h"

/*
 * Prices: none, and from 1/8 to 2048, 256 an octave.  At the highest nothing
 * starts, without one all does: beside a foreground that never pauses for long
 * all starts are nearly as dear as can be.
 */
#define PRICE_MIN           0.125
#define PRICE_OCTAVES       14
#define PRICE_OCTAVE        256
#define PRICES              (PRICE_OCTAVES * PRICE_OCTAVE + 1)
/*
 * A budget is a limit, not a duty: if all of it were spent as its last part
 * is, it must bring a tenth more background.  Just before a periodic burst
 * returns one more request brings less than that and costs much.  Nobody has
 * to bring more than three percent for a percent; memoryless arrivals do.
 */
#define BRINGS              0.1
#define EXCHANGE_MAX        3.0
/*
 * What costs next to nothing is always open, also with no credit left: if all
 * starts were that cheap, they would cost a tenth of the budget.
 */
#define HARMLESS            0.1
/*
 * Where the credit meters, the cheapest age may be that at which a gap begins,
 * and nobody looks just then.  So a window stays open for a part of a service
 * time, but no longer than until a look is due in any case.
 */
#define LATE                0.125
#define LATE_MAX_NS         (200 * 1000.0)
/* Ages never seen weigh so little that they change no other age's choice. */
#define UNSEEN              0.000001
/* Expected delays of three lengths take as long as four bins of the rest. */
#define WORK_TABLE          4

static double width_of(unsigned bin)
{
    return idletime_bin_edge(bin + 1) - idletime_bin_edge(bin);
}

/* From one start to the next. */
static double round_ns(IdletimeService service)
{
    return service.mean_ns + service.turnaround_ns;
}

static void enter(IdletimePlan *plan, IdletimePlanStage stage, int bin)
{
    plan->stage = stage;
    plan->bin = bin;
}

void idletime_plan_begin(IdletimePlan *plan, const IdletimeHistogram *gaps,
                         IdletimeService service, const IdletimeBurst *burst,
                         const IdletimeTerms *terms)
{
    enter(plan, IDLETIME_PLAN_SMOOTH, 0);
    plan->terms = *terms;
    plan->burst = burst ? *burst : (IdletimeBurst) { .by_age = NULL };
    plan->gaps = *gaps;
    plan->left = gaps->total;
    plan->from = burst ? idletime_bin_of(burst->lead_ns) : 0;
    plan->windows.service = service;
    plan->windows.seek_ns = terms->seek_ns;
    memset(plan->smooth, 0, sizeof(plan->smooth));
    idletime_delay_begin(&plan->windows.delays);
}

/* ---- what does not depend on the price */

static int smooth_bin(IdletimePlan *plan)
{
    int work = idletime_histogram_smooth(&plan->gaps, plan->bin, plan->smooth);

    if (++plan->bin == IDLETIME_BINS) {
        enter(plan, IDLETIME_PLAN_SUM, 0);
    }
    return work;
}

/* Of the gaps that were seen; what was not seen hardly counts. */
static int sum_bin(IdletimePlan *plan)
{
    IdletimeWindows *w = &plan->windows;
    unsigned i = plan->bin;

    w->reached[i] = MAX(plan->left - plan->gaps.bin[i] / 2, 0) /
                    MAX(plan->gaps.total, 1);
    plan->left -= plan->gaps.bin[i];
    idletime_delay_add(&w->delays, i, plan->smooth[i]);
    if (++plan->bin == IDLETIME_BINS) {
        enter(plan, IDLETIME_PLAN_TABLE, 0);
    }
    return 1;
}

static double price_of(int step)
{
    int above = step - 1;

    return step == 0 ? 0 :
           PRICE_MIN * (1 << above / PRICE_OCTAVE) *
           (1 + above % PRICE_OCTAVE / (double)PRICE_OCTAVE);
}

static void try_price(IdletimePlan *plan, int step)
{
    plan->step = step;
    plan->price = price_of(step);
    plan->yield[IDLETIME_BINS] = (IdletimeYield) { 0 };
    enter(plan, IDLETIME_PLAN_STARTS, IDLETIME_BINS - 1);
}

static void search(IdletimePlan *plan, int low, int high)
{
    plan->low = low;
    plan->high = high;
    /* At the end the price is known: once more, for what it opens. */
    try_price(plan, high - low > 1 ? (low + high) / 2 : high);
}

static int table_bin(IdletimePlan *plan)
{
    IdletimeWindows *w = &plan->windows;
    unsigned i = plan->bin, bin;
    double edge_ns = idletime_bin_edge(i);
    double next_ns = edge_ns + round_ns(w->service);

    w->reached[i] += UNSEEN * (w->delays.total - w->delays.below[i]) /
                     w->delays.total;
    bin = idletime_bin_of(next_ns);
    plan->ratio[i] = idletime_windows_ratio(w, w->service,
                                            edge_ns + width_of(i) / 2);
    plan->after[i] = bin;
    plan->after_part[i] = (next_ns - idletime_bin_edge(bin)) / width_of(bin);
    if (++plan->bin == IDLETIME_BINS) {
        plan->over = false;
        search(plan, -1, PRICES);
    }
    return WORK_TABLE;
}

/* ---- one price */

static IdletimeYield between(const IdletimeYield *a, double part)
{
    return (IdletimeYield) {
        a[0].value_ns + part * (a[1].value_ns - a[0].value_ns),
        a[0].delay_ns + part * (a[1].delay_ns - a[0].delay_ns),
        a[0].starts + part * (a[1].starts - a[0].starts),
    };
}

/* Start in bin @i, and go on after it; many starts if it is a wide one. */
static IdletimeYield start(const IdletimePlan *plan, unsigned i)
{
    IdletimeService service = plan->windows.service;
    double width_ns = width_of(i), next_ns = round_ns(service);
    double many = width_ns > next_ns ? width_ns / next_ns : 1;
    unsigned after = plan->after[i];
    /* The last bin has none after it, however long a request takes. */
    IdletimeYield y = many > 1 || after <= i ? plan->yield[i + 1] :
                      between(&plan->yield[after],
                              MIN(plan->after_part[i], 1));
    double starts = many * plan->windows.reached[i];
    double delay_ns = starts * plan->ratio[i] * service.mean_ns;

    y.starts += starts;
    y.delay_ns += delay_ns;
    y.value_ns += starts * service.mean_ns -
                  (1 + plan->price) * delay_ns;
    return y;
}

static int start_bin(IdletimePlan *plan)
{
    unsigned i = plan->bin;
    IdletimeYield now = start(plan, i);

    plan->open[i] = now.value_ns >= plan->yield[i + 1].value_ns;
    plan->first[i] = plan->open[i];
    plan->yield[i] = plan->open[i] ? now : plan->yield[i + 1];
    if (plan->bin-- == 0) {
        bool seek = plan->terms.seek_ns > 0;

        plan->total = seek ? (IdletimeYield) { 0 } : plan->yield[plan->from];
        enter(plan, seek ? IDLETIME_PLAN_FIRST : IDLETIME_PLAN_BURST,
              seek ? IDLETIME_BINS - 1 : 0);
        plan->begin = 0;
        plan->least_ns = 1e18;
        plan->once_ns = 0;
    }
    return 1;
}

/* The first start pays for all of them. */
static int first_bin(IdletimePlan *plan)
{
    unsigned i = plan->bin;
    double seek_ns = plan->windows.reached[i] * plan->terms.seek_ns;
    IdletimeYield now = start(plan, i);

    now.delay_ns += seek_ns;
    now.value_ns -= (1 + plan->price) * seek_ns;
    plan->first[i] = now.value_ns >= plan->total.value_ns;
    plan->total = plan->first[i] ? now : plan->total;
    if (plan->bin-- == (int)plan->from) {
        enter(plan, IDLETIME_PLAN_BURST, 0);
    }
    return 1;
}

/*
 * In a cycle each gap may be one of the burst.  One start at the age at which
 * it begins is what that costs; waiting costs a cycle once.
 */
static int burst_bin(IdletimePlan *plan)
{
    const IdletimeBurst *b = &plan->burst;
    unsigned i = plan->bin++;
    double once_ns, cost_ns;

    if (!b->by_age || i >= b->end) {
        plan->total.delay_ns += plan->once_ns;
        enter(plan, IDLETIME_PLAN_PRICE, 0);
        return 1;
    }
    once_ns = b->gaps * b->by_age->reached[i] *
              idletime_delay_within(&b->by_age->delays, b->by_age->service,
                                    idletime_bin_edge(i), b->end);
    cost_ns = (1 + plan->price) * once_ns + idletime_bin_edge(i);
    if (cost_ns < plan->least_ns) {
        plan->least_ns = cost_ns;
        plan->once_ns = once_ns;
        plan->begin = i;
    }
    return WORK_TABLE;
}

/* ---- the price */

/* A mixture of both that costs @delay_ns. */
static IdletimeYield share_of(IdletimeYield less, IdletimeYield more,
                              double delay_ns)
{
    IdletimeYield both[2] = { less, more };

    return between(both, (delay_ns - less.delay_ns) /
                         (more.delay_ns - less.delay_ns));
}

static bool within(const IdletimePlan *plan)
{
    return plan->total.delay_ns <= plan->terms.budget_ns;
}

/* Idle time used, a gap; the rest of what is served is the foreground's. */
static double idle_of(const IdletimePlan *plan, IdletimeYield y)
{
    return y.starts * plan->windows.service.mean_ns - y.delay_ns;
}

double idletime_plan_exchange(double share)
{
    return MIN(BRINGS / share, EXCHANGE_MAX);
}

/* What a ns of delay has to bring more of @idle_ns, at least. */
static double exchange(const IdletimePlan *plan, double idle_ns)
{
    const IdletimeTerms *terms = &plan->terms;

    return idletime_plan_exchange(terms->budget_ns / terms->request_ns) *
           idle_ns / terms->request_ns;
}

/* The last part of what is spent brings what it has to. */
static bool fair(const IdletimePlan *plan)
{
    return plan->price >= exchange(plan, idle_of(plan, plan->total));
}

/* So does what the next lower price brings more, which may be much. */
static bool more_is_fair(const IdletimePlan *plan)
{
    double less_ns = idle_of(plan, plan->at_high);
    double more_ns = idle_of(plan, plan->total) - less_ns;

    return more_ns >= exchange(plan, less_ns) *
                      (plan->total.delay_ns - plan->at_high.delay_ns);
}

/*
 * The lowest price within the budget.  If the
 * next lower one buys much more, as all ages cost alike, it is that one: the
 * credit decides when.
 */
static int next_price(IdletimePlan *plan)
{
    bool cheap = within(plan);

    if (plan->high - plan->low > 1) {
        if (cheap && fair(plan)) {
            search(plan, plan->low, plan->step);
        } else {
            plan->over = !cheap;
            search(plan, plan->step, plan->high);
        }
    } else if (plan->over && plan->step == plan->high) {
        plan->at_high = plan->high < PRICES ? plan->total :
                                              (IdletimeYield) { 0 };
        try_price(plan, plan->low);
    } else if (plan->over && !more_is_fair(plan)) {
        plan->over = false;
        try_price(plan, plan->high);
    } else {
        if (plan->over) {
            plan->total = share_of(plan->at_high, plan->total,
                                   plan->terms.budget_ns);
        }
        enter(plan, IDLETIME_PLAN_WINDOWS, IDLETIME_BINS - 1);
    }
    return 1;
}

/* ---- the answer */

static void answer(IdletimePlan *plan)
{
    IdletimeWindows *w = &plan->windows;

    w->price = plan->price;
    w->starts = plan->total.starts;
    w->delay_ns = plan->total.delay_ns;
    w->begin_ns = idletime_bin_edge(plan->begin);
    w->late_ns = plan->over ? MIN(LATE * w->service.mean_ns, LATE_MAX_NS) : 0;
    w->harmless = HARMLESS * plan->terms.budget_ns /
                  (MAX(w->starts, 1) * w->service.mean_ns);
}

static int window_bin(IdletimePlan *plan)
{
    IdletimeWindows *w = &plan->windows;
    unsigned i = plan->bin;
    bool last = i == IDLETIME_BINS - 1, harmless;

    if (last) {
        answer(plan);
    }
    harmless = plan->ratio[i] <= w->harmless;
    w->next[i] = plan->open[i] || harmless ? i :
                 last ? IDLETIME_BINS : w->next[i + 1];
    w->first[i] = plan->first[i] || (harmless && w->seek_ns <= 0) ? i :
                  last ? IDLETIME_BINS : w->first[i + 1];
    if (plan->bin-- == 0) {
        enter(plan, IDLETIME_PLAN_IDLE, 0);
    }
    return 1;
}

/* ---- entry points */

static int (*const do_bin[])(IdletimePlan *plan) = {
    [IDLETIME_PLAN_SMOOTH] = smooth_bin,
    [IDLETIME_PLAN_SUM] = sum_bin,
    [IDLETIME_PLAN_TABLE] = table_bin,
    [IDLETIME_PLAN_STARTS] = start_bin,
    [IDLETIME_PLAN_FIRST] = first_bin,
    [IDLETIME_PLAN_BURST] = burst_bin,
    [IDLETIME_PLAN_PRICE] = next_price,
    [IDLETIME_PLAN_WINDOWS] = window_bin,
};

int idletime_plan_step(IdletimePlan *plan, int work)
{
    while (work > 0 && plan->stage != IDLETIME_PLAN_IDLE) {
        int units = do_bin[plan->stage](plan);

        work -= units;
        plan->work += units;
    }
    return work;
}
