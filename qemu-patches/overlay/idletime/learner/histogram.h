/*
 * Idletime histogram: a distribution of times that forgets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Log-linear: 1 us wide up to 64 us, then 64 bins an octave (1.6 % wide at
 * most) up to 137 s.  Older gaps weigh less.  Pure.
 */
#ifndef IDLETIME_HISTOGRAM_H
#define IDLETIME_HISTOGRAM_H

#define IDLETIME_BIN_SHIFT      10      /* 1.024 us */
#define IDLETIME_BIN_SUB        64      /* bins an octave */
#define IDLETIME_BINS           (22 * IDLETIME_BIN_SUB)

typedef struct IdletimeHistogram {
    float bin[IDLETIME_BINS];   /* in units of the newest one's weight */
    double total;               /* of all bins */
    double unit;                /* weight of the newest */
} IdletimeHistogram;

/* Loses half its weight in so many gaps, or in so much time. */
typedef struct IdletimeHalfLife {
    double gaps;
    double ns;
} IdletimeHalfLife;

unsigned idletime_bin_of(int64_t ns);
/** idletime_bin_edge: lower end of @bin in ns; that of BINS is the last's. */
int64_t idletime_bin_edge(unsigned bin);

void idletime_histogram_init(IdletimeHistogram *h);
/** idletime_histogram_add: @value_ns, @since_ns after the one before. */
void idletime_histogram_add(IdletimeHistogram *h, IdletimeHalfLife life,
                            int64_t value_ns, int64_t since_ns);
/**
 * idletime_histogram_smooth: add the gaps of @bin to @smooth, in gaps a bin,
 * as the next ones may be expected.
 * Its weight is spread over as many neighbours as it takes to see enough gaps:
 * few that lie far apart say little about where the next one will; many that
 * are alike stay where they are.
 * Returns over how many: 33 at most.
 */
int idletime_histogram_smooth(const IdletimeHistogram *h, unsigned bin,
                              float smooth[IDLETIME_BINS]);
/** idletime_histogram_count: how many gaps it is worth. */
double idletime_histogram_count(const IdletimeHistogram *h);
/**
 * idletime_histogram_near: share of the weight that lies within 6 % of
 * @value_ns.
 */
double idletime_histogram_near(const IdletimeHistogram *h, int64_t value_ns);

#endif
