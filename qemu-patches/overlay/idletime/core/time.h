/*
 * Idletime time: units, and sums and differences that do not wrap.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Times come from shared memory, so any value can come.  A result that has no
 * room becomes the end of time on its side.
 */
#ifndef IDLETIME_TIME_H
#define IDLETIME_TIME_H

#define IDLETIME_NS_PER_MS      (1000 * 1000LL)

/** idletime_time_add: @a + @b in ns; saturates. */
static inline int64_t idletime_time_add(int64_t a, int64_t b)
{
    int64_t sum;

    if (__builtin_add_overflow(a, b, &sum)) {
        return b > 0 ? INT64_MAX : INT64_MIN;
    }
    return sum;
}

/** idletime_time_sub: @a - @b in ns; saturates. */
static inline int64_t idletime_time_sub(int64_t a, int64_t b)
{
    int64_t difference;

    if (__builtin_sub_overflow(a, b, &difference)) {
        return b < 0 ? INT64_MAX : INT64_MIN;
    }
    return difference;
}

#endif
