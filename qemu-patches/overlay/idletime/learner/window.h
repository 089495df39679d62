/*
 * Idletime window: at which ages of an idle gap background may start.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What plan.c has chosen, and how it is asked.  Pure.
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
    IdletimeDelays delays;
    IdletimeService service;
    double price;               /* background time for a ns of delay */
    double harmless;            /* c/d accepted even with no credit left */
    int64_t begin_ns;           /* cycle: age of a gap at which to begin */
    double delay_ns;            /* expected a gap if all windows are used */
    double starts;              /* expected a gap */
    double seek_ns;             /* what it costs to use a gap at all */
    int64_t late_ns;            /* open for so long after a window's end */
    float reached[IDLETIME_BINS];   /* share of gaps seen that reach it */
    /* First open bin from here, BINS: none; if no background ran, and if. */
    uint16_t first[IDLETIME_BINS], next[IDLETIME_BINS];
} IdletimeWindows;

/** idletime_windows_ratio: expected delay per service time of a start. */
double idletime_windows_ratio(const IdletimeWindows *w, IdletimeService service,
                              double age_ns);

/**
 * idletime_windows_next: age at which the next window opens; INT64_MAX
 * @used: background ran in this gap already
 */
int64_t idletime_windows_next(const IdletimeWindows *w, int64_t age_ns,
                              bool used);

/** idletime_windows_list: the first windows, for people.  Returns how many. */
unsigned idletime_windows_list(const IdletimeWindows *w,
                               IdletimeWindow list[IDLETIME_WINDOWS_SHOWN]);

#endif
