/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a load has measured: one JSON line, and the raw latencies in a file. */
#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Join the workers' samples; returns their number, or fails on an I/O error. */
static size_t collect(const Load *load, Worker *workers, Sample **samples)
{
    size_t count = 0;

    *samples = NULL;
    for (unsigned i = 0; i < load->outstanding; i++) {
        Worker *worker = &workers[i];

        pthread_join(worker->thread, NULL);
        if (worker->error) {
            fail("%s: %s: %s", load->device, load->operation,
                 strerror(worker->error));
        }
        *samples = realloc(*samples,
                           (count + worker->count + 1) * sizeof(Sample));
        if (!*samples) {
            fail("no memory for %zu samples", count + worker->count);
        }
        if (worker->count) {
            memcpy(*samples + count, worker->samples,
                   worker->count * sizeof(Sample));
        }
        count += worker->count;
    }
    return count;
}

static void write_latencies(const Load *load, Sample *samples, size_t count)
{
    FILE *file = fopen(load->latency_file, "wb");

    qsort(samples, count, sizeof(Sample), by_start);
    if (!file || fwrite(samples, sizeof(Sample), count, file) != count ||
        fclose(file) != 0) {
        fail("%s: %s", load->latency_file, strerror(errno));
    }
}

/* Nearest rank of a sorted, non-empty array. */
static uint32_t percentile(const Sample *samples, size_t count, double percent)
{
    size_t rank = (size_t)(percent / 100 * count);

    return samples[rank < count ? rank : count - 1].latency_us;
}

static void print_parameters(const Load *load)
{
    printf("{\"device\": \"%s\", \"pattern\": \"%s\", \"operation\": \"%s\", "
           "\"block_bytes\": %" PRIu64 ", \"span_bytes\": %" PRIu64 ", "
           "\"outstanding\": %u, \"intensity_percent\": %u, "
           "\"quantum_ms\": %u, \"pauses\": \"%s\", \"rate\": %u, \"trace\": %s%s%s, "
           "\"planned_seconds\": %.3f, "
           "\"seed\": %" PRIu64 ", \"ioprio\": \"%s\", "
           "\"fsync_every\": %u, \"direct\": %s",
           load->device, load->pattern, load->operation, load->block_bytes,
           load->span_bytes, load->outstanding, load->intensity,
           load->quantum_ms, load->pauses, load->rate,
           load->trace ? "\"" : "", load->trace ? load->trace : "null",
           load->trace ? "\"" : "", load->seconds, load->seed, load->ioprio,
           load->fsync_every, load->buffered ? "false" : "true");
}

static void print_latencies(Sample *samples, size_t count)
{
    double sum = 0;

    if (count == 0) {
        fputs(", \"mean_us\": null, \"p50_us\": null, \"p99_us\": null, "
              "\"p999_us\": null, \"max_us\": null", stdout);
        return;
    }
    qsort(samples, count, sizeof(Sample), by_latency);
    for (size_t i = 0; i < count; i++) {
        sum += samples[i].latency_us;
    }
    printf(", \"mean_us\": %.1f, \"p50_us\": %u, \"p99_us\": %u, "
           "\"p999_us\": %u, \"max_us\": %u",
           sum / count, percentile(samples, count, 50),
           percentile(samples, count, 99), percentile(samples, count, 99.9),
           samples[count - 1].latency_us);
}

static uint64_t bytes_moved(const Load *load, const Worker *workers)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < load->outstanding; i++) {
        bytes += workers[i].bytes;
    }
    return bytes;
}

static void report(const Load *load, Sample *samples, size_t count,
                   uint64_t bytes, double seconds)
{
    print_parameters(load);
    printf(", \"operations\": %zu, \"bytes\": %" PRIu64
           ", \"seconds\": %.6f, \"operations_per_second\": %.3f",
           count, bytes, seconds, count / seconds);
    print_latencies(samples, count);
    puts("}");
}

void report_load(const Load *load, Worker *workers)
{
    Sample *samples;
    size_t count = collect(load, workers, &samples);
    double seconds = (double)(now_ns() - load->begin_ns) / NS_PER_S;

    if (load->latency_file) {
        write_latencies(load, samples, count);
    }
    report(load, samples, count, bytes_moved(load, workers), seconds);
    free(samples);
}
