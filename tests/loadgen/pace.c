/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Pauses, chance and the early end. */
#define _GNU_SOURCE
#include "pace.h"
#include "samples.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number)
{
    (void)signal_number;
    stop_requested = 1;
}

void catch_stop(void)
{
    struct sigaction stop = { .sa_handler = request_stop };

    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
}

void sleep_until(int64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec = deadline_ns / NS_PER_S,
        .tv_nsec = deadline_ns % NS_PER_S,
    };

    while (!stop_requested &&
           clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) ==
               EINTR) {
    }
}

uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double next_fraction(uint64_t *state)
{
    return ((next_random(state) >> 11) + 1) * 0x1p-53;
}
