/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Raw latencies of a load: kept in memory while it runs, written and summed up after it. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stddef.h>
#include <stdint.h>

enum {
    NS_PER_US = 1000,
    NS_PER_MS = 1000000,
    NS_PER_S = 1000000000,
};

typedef struct Sample {
    uint32_t start_us;
    uint32_t latency_us;
} Sample;

typedef struct Samples {
    Sample *at;
    size_t count, capacity;
} Samples;

/* Print one line on stderr and exit with status 2. */
void fail(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));

/* CLOCK_MONOTONIC. */
int64_t now_ns(void);

/* Times relative to begin_ns; fails where there is no memory. */
void add_sample(Samples *samples, int64_t begin_ns, int64_t start_ns,
                int64_t end_ns);

/* Append all of `more`. */
void add_samples(Samples *samples, const Samples *more);

/*
 * In order of start, each two little-endian 32-bit words: start (us after the
 * load began), latency (us).
 */
void write_latencies(const char *path, Samples *samples);

/* Members of a JSON object, each after a comma; null where there is none. */
void print_latencies(Samples *samples);

#endif
