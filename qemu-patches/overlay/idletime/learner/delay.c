/*
 * Idletime delay: what a start is expected to cost, from the idle gaps.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * With N(x) the weight of gaps shorter than x, N all of them, and
 * A(x) = integral of N from 0 to x, a request of length d that starts at age
 * t makes the foreground wait for
 *
 *   c(t) = E[(d - (G - t))+ | G > t]
 *        = integral over x from t to t + d of P(G < x | G > t)
 *        = (A(t + d) - A(t) - d N(t)) / (N - N(t))
 *
 * (integrate by parts).  So a table of N and A at the edges of the bins, and
 * a straight line in between, answers each question in constant time, for any
 * length of request.
 *
 * What was never seen is not impossible: half a gap is spread over all ages
 * alike on a logarithmic scale.  Beyond the longest gap it is all there is,
 * and says: what has lasted for t will go on for about as long again.
 */
#include "qemu/osdep.h"
#include "idletime/learner/delay.h"

/* Gaps never seen; half of one, as Jeffreys and Krichevsky-Trofimov have. */
#define UNSEEN          0.5
/* They begin above one bin's width. */
#define UNSEEN_FIRST    IDLETIME_BIN_SUB

void idletime_delay_begin(IdletimeDelays *delays)
{
    delays->below[0] = delays->area[0] = delays->total = 0;
}

void idletime_delay_add(IdletimeDelays *delays, unsigned bin, double gaps)
{
    double width = idletime_bin_edge(bin + 1) - idletime_bin_edge(bin);

    if (bin >= UNSEEN_FIRST) {
        gaps += UNSEEN / (IDLETIME_BINS - UNSEEN_FIRST);
    }
    delays->area[bin + 1] = delays->area[bin] +
                            width * (delays->below[bin] + gaps / 2);
    delays->below[bin + 1] = delays->total = delays->below[bin] + gaps;
}

/* Where an age lies: bin, and how far into it. */
typedef struct Place {
    unsigned bin;
    double into_ns;
    double part;
} Place;

static Place place_of(double age_ns)
{
    double last = idletime_bin_edge(IDLETIME_BINS) - 1;
    double ns = MIN(MAX(age_ns, 0), last);
    Place p = { .bin = idletime_bin_of(ns) };
    double edge = idletime_bin_edge(p.bin);

    p.into_ns = ns - edge;
    p.part = p.into_ns / (idletime_bin_edge(p.bin + 1) - edge);
    return p;
}

static double below(const IdletimeDelays *delays, Place p)
{
    return delays->below[p.bin] +
           p.part * (delays->below[p.bin + 1] - delays->below[p.bin]);
}

static double area(const IdletimeDelays *delays, Place p)
{
    return delays->area[p.bin] +
           p.into_ns * (delays->below[p.bin] + below(delays, p)) / 2;
}

/* Of gaps from bin @end on it is known that they are longer. */
static double collision(const IdletimeDelays *delays, double d_ns, Place t,
                        double age_ns, unsigned end)
{
    double n = below(delays, t);
    double left = delays->total - n;
    double beyond_ns = MAX(age_ns + d_ns - idletime_bin_edge(end), 0);
    double sum = area(delays, place_of(age_ns + d_ns - beyond_ns)) +
                 beyond_ns * delays->below[end] - area(delays, t) - d_ns * n;

    return left > 0 ? MIN(MAX(sum / left, 0), d_ns) : 0;
}

/* Three points with the mean and variance of d (Gauss and Hermite). */
double idletime_delay_within(const IdletimeDelays *delays, IdletimeService d,
                             double age_ns, unsigned end)
{
    Place t = place_of(age_ns);
    double off_ns = 1.7320508 * MIN(d.sd_ns, d.mean_ns / 2);

    if (off_ns < d.mean_ns / 16) {
        return collision(delays, d.mean_ns, t, age_ns, end);
    }
    return (4 * collision(delays, d.mean_ns, t, age_ns, end) +
            collision(delays, d.mean_ns - off_ns, t, age_ns, end) +
            collision(delays, d.mean_ns + off_ns, t, age_ns, end)) / 6;
}

double idletime_delay_expected(const IdletimeDelays *delays, IdletimeService d,
                               double age_ns)
{
    return idletime_delay_within(delays, d, age_ns, IDLETIME_BINS);
}
