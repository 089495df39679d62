/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Open loads: requests arrive when they arrive, whether or not those before
 * them have been served.
 *
 * Latency counts from the arrival, so that time spent behind a slow request
 * is not forgotten. Each thread serves its own arrivals in order; more
 * threads let more requests be outstanding. With any_thread there is one
 * sequence of arrivals, and who is free takes the next: none waits for a
 * thread while another one has nothing to do, as it would 1 time in 10 where
 * each thread is busy for a tenth of its time.
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Poisson arrivals: exponential gaps of this mean. */
typedef struct Arrivals {
    pthread_mutex_t lock;
    double mean_ns;
    uint64_t state;
    int64_t last_ns;
} Arrivals;

static Arrivals arrivals_of(const Load *load, unsigned threads, uint64_t state)
{
    return (Arrivals){
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .mean_ns = (double)NS_PER_S * threads / load->rate,
        .state = state,
        .last_ns = load->begin_ns,
    };
}

static int64_t take_arrival(Arrivals *arrivals)
{
    int64_t at_ns;

    pthread_mutex_lock(&arrivals->lock);
    arrivals->last_ns += next_exponential(&arrivals->state) *
                         arrivals->mean_ns;
    at_ns = arrivals->last_ns;
    pthread_mutex_unlock(&arrivals->lock);
    return at_ns;
}

void share_arrivals(Load *load)
{
    static Arrivals arrivals;

    arrivals = arrivals_of(load, 1, ~load->seed);
    load->arrivals = &arrivals;
}

void *run_arrivals(void *opaque)
{
    Worker *worker = opaque;
    const Load *load = worker->load;
    Arrivals own = arrivals_of(load, load->outstanding,
                               worker->pause_state + worker->index);
    Arrivals *arrivals = load->arrivals ? load->arrivals : &own;
    int64_t next_ns = take_arrival(arrivals);
    int64_t now = now_ns();

    while (!finished(worker, now)) {
        if (now < next_ns) {
            sleep_until(sooner(next_ns, load->end_ns));
        } else {
            Request request = next_request(worker);

            issue(worker, &request, next_ns);
            next_ns = take_arrival(arrivals);
        }
        now = now_ns();
    }
    return NULL;
}

/* ---- recorded arrivals */

/* One line: microseconds, r or w, offset in bytes, length in bytes. */
static bool parse_line(const char *line, Request *request)
{
    char kind;

    return sscanf(line, "%" SCNu64 " %c %" SCNu64 " %" SCNu64,
                  &request->at_us, &kind, &request->offset,
                  &request->bytes) == 4 &&
           (request->is_write = kind == 'w', kind == 'r' || kind == 'w') &&
           request->bytes > 0 && request->bytes <= TRACE_BYTES_MAX;
}

void read_trace(Load *load)
{
    FILE *file = fopen(load->trace, "r");
    char line[128];
    size_t capacity = 0;

    if (!file) {
        fail("--trace %s: %s", load->trace, strerror(errno));
    }
    while (fgets(line, sizeof(line), file)) {
        if (line[0] == '#') {
            continue;
        }
        if (load->requests == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            load->request = realloc(load->request,
                                    capacity * sizeof(Request));
        }
        if (!load->request ||
            !parse_line(line, &load->request[load->requests++])) {
            fail("%s: request %zu: want `microseconds r|w offset bytes`, got: "
                 "%s", load->trace, load->requests, line);
        }
    }
    fclose(file);
    if (!load->requests) {
        fail("--trace %s: no requests in it", load->trace);
    }
}

uint64_t trace_bytes_max(const Load *load)
{
    uint64_t most = 0;

    for (size_t i = 0; i < load->requests; i++) {
        most = load->request[i].bytes > most ? load->request[i].bytes : most;
    }
    return most;
}

/* Thread i serves requests i, i + n, ...; offsets wrap at the device's end. */
void *run_trace(void *opaque)
{
    Worker *worker = opaque;
    const Load *load = worker->load;

    for (size_t i = worker->index; i < load->requests;
         i += load->outstanding) {
        Request request = load->request[i];
        int64_t at_ns = load->begin_ns + request.at_us * NS_PER_US;

        sleep_until(sooner(at_ns, load->end_ns));
        if (finished(worker, now_ns())) {
            break;
        }
        request.offset %= load->span_bytes - request.bytes;
        request.offset -= request.offset % 4096;
        issue(worker, &request, at_ns);
    }
    return NULL;
}
