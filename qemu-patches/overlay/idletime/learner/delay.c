/*
 * Idletime law: what the idle gaps say about the next arrival.
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

void idletime_delay_build(IdletimeDelays *law, const IdletimeHistogram *h,
                        unsigned end)
{
    double below = 0, area = 0, rest = 0;
    float smooth[IDLETIME_BINS];

    idletime_histogram_smooth(h, smooth);
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        double width = idletime_bin_edge(i + 1) - idletime_bin_edge(i);
        double mass = i < end ? smooth[i] : 0;

        rest += i < end ? 0 : smooth[i];
        if (i >= UNSEEN_FIRST) {
            mass += UNSEEN / (IDLETIME_BINS - UNSEEN_FIRST);
        }
        law->below[i] = below;
        law->area[i] = area;
        area += width * (below + mass / 2);
        below += mass;
    }
    law->below[IDLETIME_BINS] = below;
    law->total = below + rest;
    law->area[IDLETIME_BINS] = area;
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

static double below(const IdletimeDelays *law, Place p)
{
    return law->below[p.bin] +
           p.part * (law->below[p.bin + 1] - law->below[p.bin]);
}

static double area(const IdletimeDelays *law, Place p)
{
    return law->area[p.bin] +
           p.into_ns * (law->below[p.bin] + below(law, p)) / 2;
}

static double collision(const IdletimeDelays *law, double d_ns, Place t,
                        double age_ns)
{
    double n = below(law, t);
    double left = law->total - n;
    double sum = area(law, place_of(age_ns + d_ns)) - area(law, t) - d_ns * n;

    return left > 0 ? MIN(MAX(sum / left, 0), d_ns) : 0;
}

/* Three points with the mean and variance of d (Gauss and Hermite). */
double idletime_delay_expected(const IdletimeDelays *law, IdletimeService d,
                              double age_ns)
{
    Place t = place_of(age_ns);
    double off_ns = 1.7320508 * MIN(d.sd_ns, d.mean_ns / 2);

    if (off_ns < d.mean_ns / 16) {
        return collision(law, d.mean_ns, t, age_ns);
    }
    return (4 * collision(law, d.mean_ns, t, age_ns) +
            collision(law, d.mean_ns - off_ns, t, age_ns) +
            collision(law, d.mean_ns + off_ns, t, age_ns)) / 6;
}
