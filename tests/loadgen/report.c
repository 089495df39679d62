/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a load has measured: one JSON line, and the raw latencies in a file. */
#include "load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Join the workers' samples, or fail on an I/O error. */
static Samples collect(const Load *load, Worker *workers)
{
    Samples samples = { 0 };

    for (unsigned i = 0; i < load->outstanding; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].error) {
            fail("%s: %s: %s", load->device, load->operation,
                 strerror(workers[i].error));
        }
        add_samples(&samples, &workers[i].samples);
    }
    return samples;
}

static void print_parameters(const Load *load)
{
    printf("{\"device\": \"%s\", \"pattern\": \"%s\", \"operation\": \"%s\", "
           "\"block_bytes\": %" PRIu64 ", \"offset_bytes\": %" PRIu64 ", "
           "\"span_bytes\": %" PRIu64 ", "
           "\"outstanding\": %u, \"intensity_percent\": %u, "
           "\"quantum_ms\": %u, \"pauses\": \"%s\", \"rate\": %u, \"trace\": %s%s%s, "
           "\"planned_seconds\": %.3f, "
           "\"seed\": %" PRIu64 ", \"ioprio\": \"%s\", "
           "\"fsync_every\": %u, \"direct\": %s",
           load->device, load->pattern, load->operation, load->block_bytes,
           load->offset_bytes, load->span_bytes, load->outstanding,
           load->intensity, load->quantum_ms, load->pauses, load->rate,
           load->trace ? "\"" : "", load->trace ? load->trace : "null",
           load->trace ? "\"" : "", load->seconds, load->seed, load->ioprio,
           load->fsync_every, load->buffered ? "false" : "true");
}

static uint64_t bytes_moved(const Load *load, const Worker *workers)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < load->outstanding; i++) {
        bytes += workers[i].bytes;
    }
    return bytes;
}

void report_load(const Load *load, Worker *workers)
{
    Samples samples = collect(load, workers);
    double seconds = (double)(now_ns() - load->begin_ns) / NS_PER_S;

    if (load->latency_file) {
        write_latencies(load->latency_file, &samples);
    }
    print_parameters(load);
    printf(", \"operations\": %zu, \"bytes\": %" PRIu64
           ", \"seconds\": %.6f, \"operations_per_second\": %.3f",
           samples.count, bytes_moved(load, workers), seconds,
           samples.count / seconds);
    print_latencies(&samples);
    puts("}");
    free(samples.at);
}
