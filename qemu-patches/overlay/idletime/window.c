/*
 * Idletime window: at which ages of an idle gap background may start.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A background request that starts at age t of a gap brings the background d,
 * its service time, and makes the foreground wait c(t) on average (law.c).  A
 * gap reaches age t with probability S(t).  Which starts bring most for the
 * delay that the budget allows a gap?  A knapsack whose items may be split:
 * take those with the smallest c(t)/d first, up to the limit at which
 *
 *   sum over the allowed t of  S(t) c(t) dt/d  =  allowed delay a gap
 *
 * (the Lagrange multiplier of the budget; G. Dantzig 1957).  What comes out:
 *
 *   bursts       c/d  |#                   .##     small in the middle: wait
 *                     |#                  .###     until the gap is longer
 *                     |##______________ .#####     than those within a burst,
 *                      0  ^ start     stop ^       stop before the return
 *
 *   memoryless   c/d  |########################    flat: no age is better, the
 *                     |########################    bucket meters the starts
 */
#include "qemu/osdep.h"
#include "idletime/window.h"

/* Classes of c/d for the sum: eight an octave from 2^-16 to 1. */
#define CLASSES         128
#define CLASSES_OCTAVE  8

/*
 * A budget is a limit, not a duty: a percent of slowdown must bring at least
 * a percent more background (just before a periodic burst returns one more
 * request brings little and costs much).  Memoryless arrivals bring two or
 * more, so this bound is never theirs.
 */
#define EXCHANGE        0.75
/*
 * What costs next to nothing is always open, also with no credit left: if all
 * starts were that cheap, they would cost a tenth of the budget.
 */
#define HARMLESS        0.1

typedef struct Knapsack {
    double delay_ns[CLASSES];
    double starts[CLASSES];
} Knapsack;

/* What was taken. */
typedef struct Pack {
    double limit, delay_ns, starts;
} Pack;

/* Position of @ratio on a logarithmic scale, straight lines within octaves. */
static int class_of(double ratio)
{
    uint64_t u = MIN(ratio, 1) * (1ULL << 24);
    int octave, sub;

    if (u < 1 << 8) {
        return 0;
    }
    octave = 63 - __builtin_clzll(u);
    sub = u >> (octave - 3) & 7;
    return MIN((octave - 8) * CLASSES_OCTAVE + sub, CLASSES - 1);
}

/* Upper end of a class. */
static double class_limit(int class)
{
    uint64_t sub = 8 + class % CLASSES_OCTAVE + 1;

    return (double)(sub << (class / CLASSES_OCTAVE + 8 - 3)) / (1 << 24);
}

static double middle_of(unsigned bin)
{
    return (idletime_bin_edge(bin) + idletime_bin_edge(bin + 1)) / 2.0;
}

double idletime_windows_ratio(const IdletimeWindows *w, IdletimeService service,
                              double age_ns)
{
    return idletime_law_collision(&w->law, service, age_ns) /
           service.mean_ns;
}

/* Of the gaps that were seen: what was not seen is no place to start in. */
static void count_reached(IdletimeWindows *w, const IdletimeHistogram *gaps)
{
    double left = gaps->total;

    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        w->reached[i] = MAX(left - gaps->bin[i] / 2, 0) / MAX(gaps->total, 1);
        left -= gaps->bin[i];
    }
}

static void fill(const IdletimeWindows *w, IdletimeService service,
                 Knapsack *k, float *ratio)
{
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        double width = idletime_bin_edge(i + 1) - idletime_bin_edge(i);
        double starts = w->reached[i] * width / service.mean_ns;
        int class;

        ratio[i] = idletime_windows_ratio(w, service, middle_of(i));
        class = class_of(ratio[i]);
        k->starts[class] += starts;
        k->delay_ns[class] += starts * ratio[i] * service.mean_ns;
    }
}

static double harmless_ratio(const Knapsack *k, IdletimeService service,
                             double budget_ns)
{
    double starts = 0;

    for (int class = 0; class < CLASSES; class++) {
        starts += k->starts[class];
    }
    return HARMLESS * budget_ns / (MAX(starts, 1) * service.mean_ns);
}

/*
 * Cheapest first; within a class, in proportion.  Of a start's service time
 * d, c is not idle time but the foreground's, who gets it back out of the
 * next gap: the background gains d - c.
 */
static Pack packed(const Knapsack *k, IdletimeService service, double delay_ns,
                   double request_ns)
{
    double left_ns = delay_ns;
    Pack p = { .limit = 0 };

    for (int class = 0; class < CLASSES && left_ns > 0; class++) {
        double part = k->delay_ns[class] > left_ns ?
                      left_ns / k->delay_ns[class] : 1;
        double low = class ? class_limit(class - 1) : 0;
        double gained_ns = p.starts * service.mean_ns - p.delay_ns;

        if (low * gained_ns > EXCHANGE * request_ns * (1 - low)) {
            break;
        }
        /* All of a class or none: where all ages cost alike, credit decides. */
        p.limit = class_limit(class);
        p.starts += part * k->starts[class];
        p.delay_ns += part * k->delay_ns[class];
        left_ns -= part < 1 ? left_ns : k->delay_ns[class];
    }
    return p;
}

void idletime_windows_build(IdletimeWindows *w, const IdletimeHistogram *gaps,
                            IdletimeService service, double budget_ns,
                            double haste, double request_ns)
{
    float ratio[IDLETIME_BINS];
    unsigned next = IDLETIME_BINS;
    Knapsack k;
    Pack p;

    memset(&k, 0, sizeof(k));
    idletime_law_build(&w->law, gaps);
    w->service = service;
    count_reached(w, gaps);
    fill(w, service, &k, ratio);
    p = packed(&k, service, haste * budget_ns, request_ns);
    w->harmless = harmless_ratio(&k, service, budget_ns);
    w->limit = MAX(p.limit, w->harmless);
    w->starts = p.starts;
    w->delay_ns = p.delay_ns;
    for (int i = IDLETIME_BINS - 1; i >= 0; i--) {
        next = ratio[i] <= w->limit ? (unsigned)i : next;
        w->next[i] = next;
    }
}

int64_t idletime_windows_next(const IdletimeWindows *w, int64_t age_ns)
{
    unsigned here = idletime_bin_of(age_ns);
    unsigned next = w->next[here];

    return next == here ? age_ns :
           next < IDLETIME_BINS ? idletime_bin_edge(next) : INT64_MAX;
}

double idletime_windows_starts(const IdletimeWindows *w,
                               IdletimeService service, double budget_ns,
                               double request_ns)
{
    float ratio[IDLETIME_BINS];
    Knapsack k;
    Pack pack;

    memset(&k, 0, sizeof(k));
    fill(w, service, &k, ratio);
    pack = packed(&k, service, budget_ns, request_ns);
    return pack.starts;
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
