/* SPDX-License-Identifier: GPL-2.0-or-later */
/* When a load acts: pauses, chance, and the early end that a signal asks for. */
#ifndef PACE_H
#define PACE_H

#include <signal.h>
#include <stdint.h>

/* Set by SIGTERM and SIGINT: end the load early, but report it. */
extern volatile sig_atomic_t stop_requested;

void catch_stop(void);

/* CLOCK_MONOTONIC; returns early when a signal asks for the end. */
void sleep_until(int64_t deadline_ns);

/* splitmix64: one multiplication chain a number, any seed is a good one. */
uint64_t next_random(uint64_t *state);

/* Uniform in (0, 1]. */
double next_fraction(uint64_t *state);

#endif
