/*
 * Idletime root: the core needs no library of mathematics for it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_ROOT_H
#define IDLETIME_ROOT_H

/** idletime_root: the square root of @x by Newton's method; of none: 0. */
static inline double idletime_root(double x)
{
    double r = MAX(x, 1);

    for (int i = 0; i < 64; i++) {
        double better = (r + x / r) / 2;

        if (better >= r) {
            break;
        }
        r = better;
    }
    return x > 0 ? r : 0;
}

#endif
