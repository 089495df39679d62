/*
 * Idletime law: what the idle gaps say about the next arrival.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Prefix sums over a histogram, so that the expected collision of a start at
 * any age is a difference of four numbers.  Pure.
 */
#ifndef IDLETIME_LAW_H
#define IDLETIME_LAW_H

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

/** idletime_delay_build: gaps from bin @end on never end; BINS: all do. */
void idletime_delay_build(IdletimeDelays *law, const IdletimeHistogram *h,
                        unsigned end);

/**
 * idletime_delay_expected: mean time that the first foreground request waits
 * for a background request started at @age_ns of a gap, ns.
 *
 * E[(d - (G - t))+ | G > t]
 */
double idletime_delay_expected(const IdletimeDelays *law, IdletimeService d,
                              double age_ns);

#endif
