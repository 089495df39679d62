/*
 * Stands in for QEMU's osdep.h, so that the core and the arena are compiled
 * here unchanged, without QEMU and GLib.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef QEMU_OSDEP_H
#define QEMU_OSDEP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define G_GNUC_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define unlikely(x) __builtin_expect(!!(x), 0)
/* Each argument is evaluated once, as by QEMU's. */
#define MIN(a, b) ({                                    \
    __typeof__(1 ? (a) : (b)) a_ = (a), b_ = (b);       \
    a_ < b_ ? a_ : b_;                                  \
})
#define MAX(a, b) ({                                    \
    __typeof__(1 ? (a) : (b)) a_ = (a), b_ = (b);       \
    a_ > b_ ? a_ : b_;                                  \
})

#endif
