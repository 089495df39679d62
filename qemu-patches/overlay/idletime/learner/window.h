/*
 * Idletime window: at which ages of an idle gap background may start.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pure.
 */
#ifndef IDLETIME_WINDOW_H
#define IDLETIME_WINDOW_H

#include "idletime/learner/delay.h"

#define IDLETIME_WINDOWS_SHOWN  8

/* From begin until before end, ages in ns. */
typedef struct IdletimeWindow {
    int64_t begin_ns;
    int64_t end_ns;             /* INT64_MAX: until the foreground returns */
} IdletimeWindow;

typedef struct IdletimeWindows {
    IdletimeDelays law;
    IdletimeService service;
    double price;               /* background time for a ns of delay */
    double harmless;            /* c/d accepted even with no credit left */
    int64_t begin_ns;           /* cycle: age of a gap at which to begin */
    double delay_ns;            /* expected a gap if all windows are used */
    double starts;              /* expected a gap */
    double switch_ns;           /* as in the terms */
    float reached[IDLETIME_BINS];   /* share of gaps seen that reach it */
    /* First open bin from here, BINS: none; if none of ours ran, and if. */
    uint16_t first[IDLETIME_BINS], next[IDLETIME_BINS];
} IdletimeWindows;

/*
 * The windows of a cycle (cycle.c) start in a gap that may be one of a burst:
 * so their budget pays for those, too.
 */
typedef struct IdletimeBurst {
    const IdletimeDelays *law;     /* of the gaps of bursts */
    const float *reached;       /* share of all gaps that reach a bin */
    unsigned end;               /* first bin that is in no burst's gap */
    double gaps;                /* a cycle, of all lengths */
    double lead_ns;             /* from the begin of a cycle to its idle time */
} IdletimeBurst;

/* What may be spent, in delay of the first foreground request after a gap. */
typedef struct IdletimeTerms {
    double budget_ns;           /* on average over the gaps */
    double haste;               /* of that, to be spent now */
    double request_ns;          /* foreground's time in service, a gap */
    double switch_ns;           /* what it costs to use a gap at all */
} IdletimeTerms;

/**
 * idletime_windows_build: choose the limit.
 * @burst: NULL: ages are those of a gap
 */
void idletime_windows_build(IdletimeWindows *w, const IdletimeHistogram *gaps,
                            IdletimeService service,
                            const IdletimeBurst *burst,
                            const IdletimeTerms *terms);

/** idletime_windows_starts: starts a gap, if requests took @service. */
double idletime_windows_starts(const IdletimeWindows *w,
                               IdletimeService service,
                               const IdletimeTerms *terms);

/** idletime_windows_ratio: expected delay per service time of a start. */
double idletime_windows_ratio(const IdletimeWindows *w, IdletimeService service,
                              double age_ns);

/**
 * idletime_windows_next: age at which the next window opens; INT64_MAX
 * @used: some of ours ran in this gap already
 */
int64_t idletime_windows_next(const IdletimeWindows *w, int64_t age_ns,
                              bool used);

/** idletime_windows_list: the first windows, for people.  Returns how many. */
unsigned idletime_windows_list(const IdletimeWindows *w,
                               IdletimeWindow list[IDLETIME_WINDOWS_SHOWN]);

#endif
