/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Raw latencies: growth, output, percentiles. */
#define _GNU_SOURCE
#include "samples.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)NS_PER_S + now.tv_nsec;
}

static void make_room(Samples *samples, size_t count)
{
    if (count <= samples->capacity) {
        return;
    }
    samples->capacity = count < 4096 ? 4096 : count * 2;
    samples->at = realloc(samples->at, samples->capacity * sizeof(Sample));
    if (!samples->at) {
        fail("no memory for %zu samples: shorten --seconds", count);
    }
}

void add_sample(Samples *samples, int64_t begin_ns, int64_t start_ns,
                int64_t end_ns)
{
    make_room(samples, samples->count + 1);
    samples->at[samples->count++] = (Sample){
        .start_us = (start_ns - begin_ns) / NS_PER_US,
        .latency_us = (end_ns - start_ns) / NS_PER_US,
    };
}

void add_samples(Samples *samples, const Samples *more)
{
    if (more->count) {
        make_room(samples, samples->count + more->count);
        memcpy(samples->at + samples->count, more->at,
               more->count * sizeof(Sample));
        samples->count += more->count;
    }
}

static int by_start(const void *a, const void *b)
{
    const Sample *x = a, *y = b;

    return (x->start_us > y->start_us) - (x->start_us < y->start_us);
}

static int by_latency(const void *a, const void *b)
{
    const Sample *x = a, *y = b;

    return (x->latency_us > y->latency_us) - (x->latency_us < y->latency_us);
}

static void sort(Samples *samples, int (*order)(const void *, const void *))
{
    if (samples->count) {
        qsort(samples->at, samples->count, sizeof(Sample), order);
    }
}

void write_latencies(const char *path, Samples *samples)
{
    FILE *file = fopen(path, "wb");

    sort(samples, by_start);
    if (!file ||
        fwrite(samples->at, sizeof(Sample), samples->count, file) !=
            samples->count ||
        fclose(file) != 0) {
        fail("%s: %s", path, strerror(errno));
    }
}

/* Nearest rank of a sorted, non-empty array. */
static uint32_t percentile(const Samples *samples, double percent)
{
    size_t rank = (size_t)(percent / 100 * samples->count);

    rank = rank < samples->count ? rank : samples->count - 1;
    return samples->at[rank].latency_us;
}

void print_latencies(Samples *samples)
{
    double sum = 0;

    if (samples->count == 0) {
        fputs(", \"mean_us\": null, \"p50_us\": null, \"p99_us\": null, "
              "\"p999_us\": null, \"max_us\": null", stdout);
        return;
    }
    sort(samples, by_latency);
    for (size_t i = 0; i < samples->count; i++) {
        sum += samples->at[i].latency_us;
    }
    printf(", \"mean_us\": %.1f, \"p50_us\": %u, \"p99_us\": %u, "
           "\"p999_us\": %u, \"max_us\": %u",
           sum / samples->count, percentile(samples, 50),
           percentile(samples, 99), percentile(samples, 99.9),
           percentile(samples, 100));
}
