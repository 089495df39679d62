/*
 * Idletime window: at which ages of an idle gap background may start.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A background request that starts at age t of a gap takes d, its service
 * time, and makes the foreground wait c(t) on average (law.c).  Of all gaps
 * S(t) reach age t.  At each age there is a choice: start now, and be asked
 * again at t + r if the gap lasts that long; or wait.  A guest needs a moment
 * between a completion and its next request: r is d and that turnaround.  With
 * a price p, in background time, for each ns of the foreground's delay, the
 * best that can be had from age t on is
 *
 *   W(t) = max( S(t) (d - c(t) - p c(t)) + W(t + r),  W(t + dt) )
 *
 * computed from the longest age down (dynamic programming, R. Bellman 1957).
 * Where it costs the foreground s that a gap was used at all (switch.c), the
 * first start has a choice of its own, and s as well as c(t) to pay.
 * The price is the lowest one at which the expected delay is within what the
 * budget allows a gap (the Lagrange multiplier of the budget).  Of d, c is
 * not idle time but the foreground's, who gets it back out of the next gap.
 *
 *   bursts       c/d  |#                   .##     wait until the gap is longer
 *                     |#                  .###     than those within a burst,
 *                     |##______________ .#####     stop before the return
 *                      0  ^ start     stop ^
 *
 *   memoryless   c/d  |########################    flat: no age is better, the
 *                     |########################    bucket meters the starts
 */
#include "qemu/osdep.h"
#include "idletime/learner/window.h"

/* Prices: from 1/8 to 2048, 256 an octave; at the highest nothing starts. */
#define PRICE_MIN           0.125
#define PRICE_OCTAVES       14
#define PRICE_OCTAVE        256
#define PRICES              (PRICE_OCTAVES * PRICE_OCTAVE)
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
/* Ages never seen weigh so little that they change no other age's choice. */
#define UNSEEN              0.000001

/* All that does not depend on the price. */
typedef struct Table {
    IdletimeService service;
    const float *reached;
    const IdletimeBurst *burst;
    double switch_ns;
    unsigned from;                      /* first bin of idle time */
    float ratio[IDLETIME_BINS];         /* c/d in the bin's middle */
    float after_part[IDLETIME_BINS];    /* where t + r lies: bin and part */
    uint16_t after[IDLETIME_BINS];
    float burst_ratio[IDLETIME_BINS];
} Table;

/* What one price buys: from an age on, until the foreground returns. */
typedef struct Yield {
    double value_ns, delay_ns, starts;
} Yield;

typedef struct Plan {
    double price;
    Yield total;                        /* a gap, or a cycle */
    unsigned begin;                     /* bin of gaps: burst is likely over */
    bool first[IDLETIME_BINS], open[IDLETIME_BINS];
} Plan;

static double width_of(unsigned bin)
{
    return idletime_bin_edge(bin + 1) - idletime_bin_edge(bin);
}

/* From one start to the next. */
static double round_ns(IdletimeService service)
{
    return service.mean_ns + service.turnaround_ns;
}

static double ratio_at(const IdletimeDelays *law, IdletimeService service,
                       double age_ns)
{
    return idletime_delay_expected(law, service, age_ns) / service.mean_ns;
}

double idletime_windows_ratio(const IdletimeWindows *w, IdletimeService service,
                              double age_ns)
{
    return ratio_at(&w->law, service, age_ns);
}

/* Of the gaps that were seen; what was not seen hardly counts. */
static void count_reached(IdletimeWindows *w, const IdletimeHistogram *gaps)
{
    double left = gaps->total;

    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        w->reached[i] = MAX(left - gaps->bin[i] / 2, 0) / MAX(gaps->total, 1) +
                        UNSEEN * (w->law.total - w->law.below[i]) /
                        w->law.total;
        left -= gaps->bin[i];
    }
}

/* ---- one price */

static void tabulate(Table *t, const IdletimeWindows *w,
                     IdletimeService service, const IdletimeBurst *burst,
                     double switch_ns)
{
    t->service = service;
    t->switch_ns = switch_ns;
    t->reached = w->reached;
    t->burst = burst;
    t->from = burst ? idletime_bin_of(burst->lead_ns) : 0;
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        double edge = idletime_bin_edge(i);
        double next_ns = edge + round_ns(service);
        unsigned bin = idletime_bin_of(next_ns);

        t->ratio[i] = ratio_at(&w->law, service, edge + width_of(i) / 2);
        t->after[i] = bin;
        t->after_part[i] = (next_ns - idletime_bin_edge(bin)) / width_of(bin);
    }
    for (unsigned i = 0; burst && i < burst->end; i++) {
        t->burst_ratio[i] = ratio_at(burst->law, service, idletime_bin_edge(i));
    }
}

static Yield between(const Yield *a, double part)
{
    return (Yield) {
        a[0].value_ns + part * (a[1].value_ns - a[0].value_ns),
        a[0].delay_ns + part * (a[1].delay_ns - a[0].delay_ns),
        a[0].starts + part * (a[1].starts - a[0].starts),
    };
}

/* Start in bin @i, and go on after it; many starts if it is a wide one. */
static Yield start(const Table *t, const Yield *yield, unsigned i,
                   double price)
{
    double many = MAX(width_of(i) / round_ns(t->service), 1);
    Yield y = many > 1 ? yield[i + 1] :
              between(&yield[t->after[i]], MIN(t->after_part[i], 1));
    double starts = many * t->reached[i];
    double delay_ns = starts * t->ratio[i] * t->service.mean_ns;

    y.starts += starts;
    y.delay_ns += delay_ns;
    y.value_ns += starts * t->service.mean_ns - (1 + price) * delay_ns;
    return y;
}

/* The first start pays for all of them. */
static void plan_first(const Table *t, const Yield *used, Plan *plan)
{
    Yield best = { 0 };

    for (int i = IDLETIME_BINS - 1; i >= (int)t->from; i--) {
        double switch_ns = t->reached[i] * t->switch_ns;
        Yield now = start(t, used, i, plan->price);

        now.delay_ns += switch_ns;
        now.value_ns -= (1 + plan->price) * switch_ns;
        plan->first[i] = now.value_ns >= best.value_ns;
        best = plan->first[i] ? now : best;
    }
    plan->total = best;
}

/*
 * In a cycle each gap may be one of the burst.  One start at the age at which
 * it begins is what that costs; waiting costs a cycle once.
 */
static void begin_burst(const Table *t, Plan *plan)
{
    const IdletimeBurst *b = t->burst;
    double least_ns = 1e18;
    double delay_ns = 0;

    for (unsigned i = 0; i < b->end; i++) {
        double once_ns = b->gaps * b->reached[i] * t->burst_ratio[i] *
                         t->service.mean_ns;
        double cost_ns = (1 + plan->price) * once_ns + idletime_bin_edge(i);

        if (cost_ns < least_ns) {
            least_ns = cost_ns;
            delay_ns = once_ns;
            plan->begin = i;
        }
    }
    plan->total.delay_ns += delay_ns;
}

static void plan_for(const Table *t, double price, Plan *plan)
{
    Yield yield[IDLETIME_BINS + 1];

    yield[IDLETIME_BINS] = (Yield) { 0 };
    for (int i = IDLETIME_BINS - 1; i >= 0; i--) {
        Yield now = start(t, yield, i, price);

        plan->open[i] = now.value_ns >= yield[i + 1].value_ns;
        yield[i] = plan->open[i] ? now : yield[i + 1];
    }
    plan->price = price;
    plan->begin = 0;
    plan->total = yield[t->from];
    memcpy(plan->first, plan->open, sizeof(plan->first));
    if (t->switch_ns > 0) {
        plan_first(t, yield, plan);
    }
    if (t->burst) {
        begin_burst(t, plan);
    }
}

/* ---- the price */

static double price_of(int step)
{
    return PRICE_MIN * (1 << step / PRICE_OCTAVE) *
           (1 + step % PRICE_OCTAVE / (double)PRICE_OCTAVE);
}

/* A mixture of both that costs @delay_ns. */
static Yield share_of(Yield less, Yield more, double delay_ns)
{
    Yield both[2] = { less, more };

    return between(both, (delay_ns - less.delay_ns) /
                         (more.delay_ns - less.delay_ns));
}

/*
 * The lowest price within the part of the budget that is spent now.  If the
 * next lower one buys much more, as all ages cost alike, it is that one: the
 * credit decides when.
 */
static void plan_within(const Table *t, const IdletimeTerms *terms, Plan *plan)
{
    double within_ns = terms->haste * terms->budget_ns;
    double exchange = MIN(BRINGS * terms->request_ns / terms->budget_ns,
                          EXCHANGE_MAX);
    int low = -1, high = PRICES;
    bool over = false;

    while (high - low > 1) {
        int middle = (low + high) / 2;
        bool within, fair;

        plan_for(t, price_of(middle), plan);
        within = plan->total.delay_ns <= within_ns;
        fair = plan->price * terms->request_ns >=
               exchange * (plan->total.starts * t->service.mean_ns -
                           plan->total.delay_ns);
        if (within && fair) {
            high = middle;
        } else {
            low = middle;
            over = !within;
        }
    }
    plan_for(t, price_of(high), plan);
    if (over) {
        Yield less = high < PRICES ? plan->total : (Yield) { 0 };

        plan_for(t, price_of(low), plan);
        plan->total = share_of(less, plan->total, within_ns);
    }
}

void idletime_windows_build(IdletimeWindows *w, const IdletimeHistogram *gaps,
                            IdletimeService service,
                            const IdletimeBurst *burst,
                            const IdletimeTerms *terms)
{
    unsigned next = IDLETIME_BINS, first = IDLETIME_BINS;
    Table table;
    Plan plan;

    idletime_delay_build(&w->law, gaps, IDLETIME_BINS);
    w->service = service;
    count_reached(w, gaps);
    tabulate(&table, w, service, burst, terms->switch_ns);
    plan_within(&table, terms, &plan);
    w->price = plan.price;
    w->starts = plan.total.starts;
    w->delay_ns = plan.total.delay_ns;
    w->begin_ns = idletime_bin_edge(plan.begin);
    w->switch_ns = terms->switch_ns;
    w->harmless = HARMLESS * terms->budget_ns /
                  (MAX(w->starts, 1) * service.mean_ns);
    for (int i = IDLETIME_BINS - 1; i >= 0; i--) {
        bool harmless = table.ratio[i] <= w->harmless;

        next = plan.open[i] || harmless ? (unsigned)i : next;
        first = plan.first[i] || (harmless && w->switch_ns <= 0) ?
                (unsigned)i : first;
        w->next[i] = next;
        w->first[i] = first;
    }
}

int64_t idletime_windows_next(const IdletimeWindows *w, int64_t age_ns,
                              bool used)
{
    unsigned here = idletime_bin_of(age_ns);
    unsigned next = used ? w->next[here] : w->first[here];

    return next == here ? age_ns :
           next < IDLETIME_BINS ? idletime_bin_edge(next) : INT64_MAX;
}

double idletime_windows_starts(const IdletimeWindows *w,
                               IdletimeService service,
                               const IdletimeTerms *terms)
{
    Table table;
    Plan plan;

    tabulate(&table, w, service, NULL, terms->switch_ns);
    plan_within(&table, terms, &plan);
    return plan.total.starts;
}

unsigned idletime_windows_list(const IdletimeWindows *w,
                               IdletimeWindow list[IDLETIME_WINDOWS_SHOWN])
{
    unsigned bin = 0, n = 0;

    while (n < IDLETIME_WINDOWS_SHOWN && bin < IDLETIME_BINS &&
           w->next[bin] < IDLETIME_BINS) {
        list[n].begin_ns = idletime_bin_edge(w->next[bin]);
        bin = w->next[bin];
        while (bin < IDLETIME_BINS && w->next[bin] == bin) {
            bin++;
        }
        list[n++].end_ns = bin < IDLETIME_BINS ? idletime_bin_edge(bin) :
                           INT64_MAX;
    }
    return n;
}
