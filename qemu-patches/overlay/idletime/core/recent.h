/*
 * Idletime recent: a mean of which the old parts are forgotten.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * It is kept as two sums, of values and of their weights.  Both shrink
 * together, so the mean stays, and what comes next counts for more.  Or, where
 * the variance is wanted, as mean and variance themselves.
 */
#ifndef IDLETIME_RECENT_H
#define IDLETIME_RECENT_H

/** idletime_recent_part: what of @weight and its sums @most leaves. */
static inline double idletime_recent_part(double weight, double most)
{
    return weight > most ? most / weight : 1;
}

/** idletime_recent_limit: to a weight of @most, if it is more. */
static inline void idletime_recent_limit(double *sum, double *weight,
                                         double most)
{
    double part = idletime_recent_part(*weight, most);

    *sum *= part;
    *weight *= part;
}

/**
 * idletime_recent_note: from now on @value is @part, 0 to 1, of @mean and of
 * the variance @square; 1 over the number of values for all of them alike
 * (B. Welford, Technometrics 1962).
 */
static inline void idletime_recent_note(double *mean, double *square,
                                        double value, double part)
{
    double off = value - *mean;

    *mean += part * off;
    *square += part * (off * (value - *mean) - *square);
}

#endif
