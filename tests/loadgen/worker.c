/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The threads of a load: each keeps one request outstanding, quantum by quantum. */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* O_DIRECT asks for the logical block size; a page satisfies all. */
enum { BUFFER_ALIGNMENT_BYTES = 4096 };

/* Pauses that are jittered vary by this part of their mean, evenly. */
#define JITTER 0.3

static uint64_t next_offset(Worker *worker)
{
    const Load *load = worker->load;
    uint64_t blocks = load->span_bytes / load->block_bytes;
    uint64_t block = strcmp(load->pattern, "random") == 0 ?
                     next_random(&worker->random_state) : worker->cursor++;

    return load->offset_bytes + block % blocks * load->block_bytes;
}

void keep_sample(Worker *worker, int64_t start_ns, int64_t end_ns)
{
    add_sample(&worker->samples, worker->load->begin_ns, start_ns, end_ns);
}

static bool transfer(Worker *worker, const Request *request)
{
    const Load *load = worker->load;
    ssize_t moved;

    if (request->is_write) {
        moved = pwrite(load->fd, worker->buffer, request->bytes,
                       request->offset);
        worker->writes++;
    } else {
        moved = pread(load->fd, worker->buffer, request->bytes,
                      request->offset);
    }
    if (moved != (ssize_t)request->bytes) {
        worker->error = moved < 0 ? errno : EIO;
        return false;
    }
    return true;
}

static bool fsync_is_due(const Worker *worker)
{
    unsigned every = worker->load->fsync_every;

    return every && worker->writes && worker->writes % every == 0;
}

bool issue(Worker *worker, const Request *request, int64_t start_ns)
{
    if (!transfer(worker, request)) {
        return false;
    }
    if (fsync_is_due(worker) && fsync(worker->load->fd) != 0) {
        worker->error = errno;
        return false;
    }
    worker->bytes += request->bytes;
    keep_sample(worker, start_ns, now_ns());
    return true;
}

Request next_request(Worker *worker)
{
    const Load *load = worker->load;

    return (Request){
        .offset = next_offset(worker),
        .bytes = load->block_bytes,
        .is_write = strcmp(load->operation, "write") == 0,
    };
}

bool finished(const Worker *worker, int64_t now)
{
    return stop_requested || worker->error || now >= worker->load->end_ns;
}

double next_exponential(uint64_t *state)
{
    return -log(next_fraction(state));
}

/* The pause as a multiple of its mean. */
static double next_pause(Worker *worker)
{
    const char *pauses = worker->load->pauses;

    if (strcmp(pauses, "exponential") == 0) {
        return next_exponential(&worker->pause_state);
    }
    if (strcmp(pauses, "jittered") == 0) {
        return 1 + JITTER * (2 * next_fraction(&worker->pause_state) - 1);
    }
    return 1;
}

/* From the start of one burst to that of the next; on average the quantum. */
static int64_t next_cycle_ns(Worker *worker, int64_t busy_ns)
{
    int64_t quantum_ns = worker->load->quantum_ms * (int64_t)NS_PER_MS;

    return busy_ns + (int64_t)(next_pause(worker) * (quantum_ns - busy_ns));
}

static void *run_bursts(void *opaque)
{
    Worker *worker = opaque;
    const Load *load = worker->load;
    int64_t quantum_ns = load->quantum_ms * (int64_t)NS_PER_MS;
    int64_t busy_ns = quantum_ns * load->intensity / 100;
    int64_t start_ns = load->begin_ns;
    int64_t next_ns = start_ns + next_cycle_ns(worker, busy_ns);
    int64_t now = now_ns();

    while (!finished(worker, now)) {
        if (now >= next_ns) {
            start_ns = next_ns;
            next_ns += next_cycle_ns(worker, busy_ns);
        } else if (now < start_ns + busy_ns) {
            Request request = next_request(worker);

            issue(worker, &request, now);
        } else {
            sleep_until(next_ns < load->end_ns ? next_ns : load->end_ns);
        }
        now = now_ns();
    }
    return NULL;
}

/* What the threads of this load run. */
static void *(*kind_of(const Load *load))(void *)
{
    if (load->files) {
        return run_files;
    }
    if (load->trace) {
        return run_trace;
    }
    return load->rate ? run_arrivals : run_bursts;
}

void start_workers(Load *load, Worker *workers)
{
    uint64_t buffer_bytes = load->trace ? trace_bytes_max(load) :
                                          load->block_bytes;
    uint64_t part = load->span_bytes / load->block_bytes / load->outstanding;

    load->begin_ns = now_ns();
    load->end_ns = load->begin_ns + (int64_t)(load->seconds * NS_PER_S);
    if (load->any_thread) {
        share_arrivals(load);
    }
    for (unsigned i = 0; i < load->outstanding; i++) {
        uint64_t state = load->seed + i, pauses = ~load->seed;
        Worker *worker = &workers[i];

        worker->load = load;
        worker->index = i;
        worker->random_state = next_random(&state);
        worker->pause_state = next_random(&pauses);
        worker->cursor = i * part;
        if (posix_memalign(&worker->buffer, BUFFER_ALIGNMENT_BYTES,
                           buffer_bytes)) {
            fail("no memory for a block of %" PRIu64, buffer_bytes);
        }
        memset(worker->buffer, 'a' + i % 26, buffer_bytes);
        if (pthread_create(&worker->thread, NULL, kind_of(load), worker)) {
            fail("no thread %u: lower --outstanding", i);
        }
    }
}
