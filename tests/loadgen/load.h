/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of idleload share: the load, its workers, a few helpers. */
#ifndef LOAD_H
#define LOAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
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

typedef struct Load {
    const char *device;
    const char *latency_file;
    const char *pattern;   /* random | sequential */
    const char *operation; /* read | write */
    const char *ioprio;    /* none | idle | best-effort */
    uint64_t block_bytes;
    uint64_t span_bytes; /* 0: the whole device */
    uint64_t seed;
    unsigned outstanding;
    unsigned intensity;  /* percent of the quantum */
    unsigned quantum_ms;
    const char *pauses; /* even | exponential */
    double seconds;
    unsigned fsync_every; /* writes between two fsyncs; 0: never */
    bool buffered;
    int fd;
    int64_t begin_ns;
    int64_t end_ns;
} Load;

typedef struct Worker {
    const Load *load;
    pthread_t thread;
    unsigned index;
    uint64_t random_state;
    uint64_t pause_state; /* the same in all threads: they pause together */
    uint64_t cursor;
    uint64_t writes;
    void *buffer;
    Sample *samples;
    size_t count, capacity;
    int error; /* errno of the request that failed, or 0 */
} Worker;

/* Set by a signal: end the load early, but report it. */
extern volatile sig_atomic_t stop_requested;

/* Print one line on stderr and exit with status 2. */
void fail(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));

/* options.c: the load that the command line describes. */
Load parse_options(int argc, char **argv);

/* device.c: set load->fd and load->span_bytes; set the I/O priority. */
void open_device(Load *load);
void set_ioprio(const char *name);

/* worker.c: CLOCK_MONOTONIC; start the threads; none returns before its end. */
int64_t now_ns(void);
void start_workers(Load *load, Worker *workers);

/* report.c: join the workers and print, and write the raw latencies. */
void report_load(const Load *load, Worker *workers);

#endif
