/*
 * Idletime delay: what a start is expected to cost, from the idle gaps.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Prefix sums over a histogram, so that the expected collision of a start at
 * any age is a difference of four numbers.  Pure.
 */
#ifndef IDLETIME_DELAY_H
#define IDLETIME_DELAY_H

#include "idletime/learner/histogram.h"

typedef struct IdletimeDelays {
    double below[IDLETIME_BINS + 1];    /* gaps shorter than the bin's edge */
    double area[IDLETIME_BINS + 1];     /* integral of below, gaps * ns */
    double total;                       /* gaps */
} IdletimeDelays;

/* How long a background request takes, and until the next one is there. */
typedef struct IdletimeService {
    double mean_ns;
    double sd_ns;               /* standard deviation */
    double turnaround_ns;       /* mean */
} IdletimeService;

/** idletime_delay_begin: before the first bin is added. */
void idletime_delay_begin(IdletimeDelays *delays);

/** idletime_delay_add: so many gaps; bins in order, from 0 on, all of them. */
void idletime_delay_add(IdletimeDelays *delays, unsigned bin, double gaps);

/**
 * idletime_delay_expected: mean time that the first foreground request waits
 * for a background request started at @age_ns of a gap, ns.
 *
 * E[(d - (G - t))+ | G > t]
 */
double idletime_delay_expected(const IdletimeDelays *delays, IdletimeService d,
                               double age_ns);

/** idletime_delay_within: the same if gaps from bin @end on never end. */
double idletime_delay_within(const IdletimeDelays *delays, IdletimeService d,
                             double age_ns, unsigned end);

#endif
