/*
 * Idletime histogram: a distribution of times that forgets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Forgetting costs nothing a bin: instead of shrinking the old, the weight of
 * the new grows.  Now and then all is scaled back into the range of a float.
 */
#include "qemu/osdep.h"
#include "idletime/learner/histogram.h"

#define LN2             0.69314718
#define UNIT_MAX        1e12
/* So many gaps are a distribution: 8 differ by chance by a third. */
#define SMOOTH_GAPS     8
/* Widest, bins: 9 % up and down. */
#define SMOOTH_MAX      16
/* Neighbours on each side that count as near: 6 % up and down. */
#define NEAR            4
/* One gap in eight of one bin's width: nothing is impossible. */
#define NEAR_FLOOR      0.005

unsigned idletime_bin_of(int64_t ns)
{
    uint64_t u = ns > 0 ? (uint64_t)ns >> IDLETIME_BIN_SHIFT : 0;
    unsigned octave;

    if (u < IDLETIME_BIN_SUB) {
        return u;
    }
    octave = 63 - __builtin_clzll(u) - 6;
    u = (octave + 1) * IDLETIME_BIN_SUB + (u >> octave) - IDLETIME_BIN_SUB;
    return MIN(u, IDLETIME_BINS - 1);
}

int64_t idletime_bin_edge(unsigned bin)
{
    unsigned octave = bin / IDLETIME_BIN_SUB;
    int64_t sub = bin % IDLETIME_BIN_SUB;

    if (octave == 0) {
        return sub << IDLETIME_BIN_SHIFT;
    }
    return (IDLETIME_BIN_SUB + sub) << (octave - 1 + IDLETIME_BIN_SHIFT);
}

void idletime_histogram_init(IdletimeHistogram *h)
{
    memset(h, 0, sizeof(*h));
    h->unit = 1;
}

static void rescale(IdletimeHistogram *h)
{
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        h->bin[i] /= h->unit;
    }
    h->total /= h->unit;
    h->unit = 1;
}

void idletime_histogram_add(IdletimeHistogram *h, IdletimeHalfLife life,
                            int64_t value_ns, int64_t since_ns)
{
    /* 2^x is 1 + x ln 2 for small x; a long silence forgets half, no more. */
    double x = 1 / life.gaps + MAX(since_ns, 0) / life.ns;

    h->unit *= 1 + LN2 * MIN(x, 1);
    h->bin[idletime_bin_of(value_ns)] += h->unit;
    h->total += h->unit;
    if (h->unit > UNIT_MAX) {
        rescale(h);
    }
}

int idletime_histogram_smooth(const IdletimeHistogram *h, unsigned bin,
                              float smooth[IDLETIME_BINS])
{
    double weight = h->bin[bin] / h->unit, near = weight;
    unsigned low = bin, high = bin;

    if (weight <= 0) {
        return 1;
    }
    for (int i = 0; i < SMOOTH_MAX && near < SMOOTH_GAPS; i++) {
        low -= low > 0;
        high += high < IDLETIME_BINS - 1;
        near += (h->bin[low] + h->bin[high]) / h->unit;
    }
    for (unsigned i = low; i <= high; i++) {
        smooth[i] += weight / (high - low + 1);
    }
    return high - low + 1;
}

double idletime_histogram_count(const IdletimeHistogram *h)
{
    return h->total / h->unit;
}

double idletime_histogram_near(const IdletimeHistogram *h, int64_t value_ns)
{
    int bin = idletime_bin_of(value_ns);
    double sum = 0;

    for (int i = MAX(bin - NEAR, 0); i <= MIN(bin + NEAR, IDLETIME_BINS - 1);
         i++) {
        sum += h->bin[i];
    }
    return (sum + NEAR_FLOOR * h->unit) / (h->total + h->unit);
}
