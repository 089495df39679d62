/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of idleload share: the load, its workers, a few helpers. */
#ifndef LOAD_H
#define LOAD_H

#include "pace.h"
#include "samples.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One transfer. */
typedef struct Request {
    uint64_t at_us; /* of a trace: after its begin */
    uint64_t offset;
    uint64_t bytes;
    bool is_write;
} Request;

/* The largest request of a trace: what Linux sends in one. */
enum { TRACE_BYTES_MAX = 1 << 20 };

typedef struct Load {
    const char *device;
    const char *latency_file;
    const char *pattern;   /* random | sequential */
    const char *operation; /* read | write */
    const char *ioprio;    /* none | idle | best-effort */
    uint64_t block_bytes;
    uint64_t offset_bytes; /* where the span begins */
    uint64_t span_bytes;   /* 0: the rest of the device */
    uint64_t seed;
    unsigned outstanding;
    unsigned intensity;  /* percent of the quantum */
    unsigned quantum_ms;
    const char *pauses; /* even | jittered | exponential */
    unsigned rate;      /* arrivals a second; 0: bursts */
    bool any_thread;    /* whoever is free serves the next arrival */
    bool files;         /* search the tree of files `device` */
    const char *trace;  /* file of recorded arrivals, or NULL */
    Request *request;   /* of the trace */
    size_t requests;
    double seconds;
    unsigned fsync_every; /* writes between two fsyncs; 0: never */
    bool buffered;
    int fd;
    int64_t begin_ns;
    int64_t end_ns;
    struct Arrivals *arrivals; /* of all threads together, or NULL */
} Load;

typedef struct Worker {
    const Load *load;
    pthread_t thread;
    unsigned index;
    uint64_t random_state;
    uint64_t pause_state; /* the same in all threads: they pause together */
    uint64_t cursor;
    uint64_t writes;
    uint64_t matches; /* of what is searched for in files */
    uint64_t bytes;
    void *buffer;
    Samples samples;
    int error; /* errno of the request that failed, or 0 */
} Worker;

/* options.c: the load that the command line describes. */
Load parse_options(int argc, char **argv);

/* device.c: set load->fd and load->span_bytes; set the I/O priority. */
void open_device(Load *load);
void set_ioprio(const char *name);

/* worker.c: start the threads; none returns before its end. */
void start_workers(Load *load, Worker *workers);

/* worker.c, for the kinds of load. issue() makes one request, its fsync
 * included where one is due; its latency counts from start_ns. */
bool finished(const Worker *worker, int64_t now);
Request next_request(Worker *worker);
bool issue(Worker *worker, const Request *request, int64_t start_ns);
double next_exponential(uint64_t *state); /* of mean 1 */
void keep_sample(Worker *worker, int64_t start_ns, int64_t end_ns);

/* arrivals.c: what a thread of an open load runs; its trace. */
void share_arrivals(Load *load);
void *run_arrivals(void *worker);
void *run_trace(void *worker);
void read_trace(Load *load);
uint64_t trace_bytes_max(const Load *load);

/* files.c: the tree under load->device, and what a thread does with it. */
void find_files(const Load *load);
void *run_files(void *worker);

/* report.c: join the workers and print, and write the raw latencies. */
void report_load(const Load *load, Worker *workers);

#endif
