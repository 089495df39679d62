/*
 * Idletime arena: wake a participant in another process.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/wake.h"
#include "idletime/core/time.h"
#include <linux/futex.h>
#include <sys/syscall.h>

#define NS_PER_S                (1000 * IDLETIME_NS_PER_MS)

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec) {
        .tv_sec = ns / NS_PER_S,
        .tv_nsec = ns % NS_PER_S,
    };
}

static int64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static long futex(uint32_t *word, int op, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static uint32_t wake_count(const IdletimeScan *scan)
{
    return __atomic_load_n(&idletime_scan_own(scan)->wake, __ATOMIC_ACQUIRE);
}

void idletime_bg_wake(const IdletimeBoard *bg, uint32_t index)
{
    IdletimeBgLine *line = idletime_bg_board(bg)->line;

    if (index < IDLETIME_SLOTS) {
        __atomic_add_fetch(&line[index].wake, 1, __ATOMIC_RELEASE);
        futex(&line[index].wake, FUTEX_WAKE, 1, NULL);
    }
}

void idletime_bg_sleep_begin(const IdletimeScan *scan, IdletimeSleep *sleep)
{
    sleep->seen = wake_count(scan);
}

/* A signal may cut it short; then the rest. */
static void sleep_until(int64_t ns)
{
    struct timespec until = timespec_of(ns);

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
           EINTR) {
        /* again */
    }
}

bool idletime_bg_sleep(const IdletimeScan *scan, IdletimeSleep *sleep,
                       int timeout_ms)
{
    struct timespec timeout = timespec_of(timeout_ms * IDLETIME_NS_PER_MS);
    uint32_t seen = sleep->seen;

    if (clock_ns() < sleep->not_before_ns) {
        sleep_until(sleep->not_before_ns);
    }
    if (wake_count(scan) == seen) {
        futex(&idletime_scan_own(scan)->wake, FUTEX_WAIT, seen, &timeout);
    }
    idletime_bg_sleep_begin(scan, sleep);
    sleep->not_before_ns = idletime_time_add(clock_ns(),
                                             IDLETIME_WAKE_GAP_NS);
    return sleep->seen != seen;
}
