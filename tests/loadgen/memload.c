/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * memload: a job with a working set: so many touches, each of a random page of
 * so many megabytes, which are all written in the beginning.
 *
 * A touch writes its page and then computes for some microseconds. `--rest-after`
 * gives the seconds after which it does little: a pause of 5 ms before each
 * touch, as a program that waits for its disk. Its end is the last touch,
 * `--seconds` or a signal. Output is one JSON object; there are no latencies.
 */
#define _GNU_SOURCE
#include "pace.h"
#include "parse.h"
#include "samples.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    WORK = 2000,
    REST_MS = 5,
    /* The clock is read once in so many touches. */
    BATCH = 16,
};

typedef struct Job {
    uint64_t megabytes, touches;
    double seconds, rest_after;
} Job;

static const struct option options[] = {
    { "megabytes", required_argument, NULL, 'm' },
    { "touches", required_argument, NULL, 't' },
    { "seconds", required_argument, NULL, 's' },
    { "rest-after", required_argument, NULL, 'r' },
    { NULL, 0, NULL, 0 },
};

static Job parse(int argc, char **argv)
{
    Job job = { .megabytes = 128, .touches = UINT64_MAX, .seconds = 10,
                .rest_after = SECONDS_MAX };
    int key;

    while ((key = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (key) {
        case 'm': job.megabytes = number("megabytes", optarg, 1, 1 << 20); break;
        case 't': job.touches = number("touches", optarg, 1, INT64_MAX); break;
        case 's': job.seconds = duration(optarg); break;
        case 'r': job.rest_after = duration(optarg); break;
        default: exit(2);
        }
    }
    return job;
}

static void touch(char *memory, uint64_t page, uint64_t *state)
{
    for (unsigned i = 0; i < WORK; i++) {
        next_random(state);
    }
    memory[page * PAGE] = (char)*state;
}

/* The number of touches. */
static uint64_t run(const Job *job, char *memory, int64_t begin_ns)
{
    uint64_t pages = job->megabytes * (1 << 20) / PAGE, state = 1, page = 0;
    int64_t rest_ns = begin_ns + (int64_t)(job->rest_after * NS_PER_S);
    int64_t end_ns = begin_ns + (int64_t)(job->seconds * NS_PER_S);
    int64_t now = begin_ns;
    uint64_t done = 0;

    for (; page < pages && !stop_requested; page++) {
        memory[page * PAGE] = 1;
    }
    while (!stop_requested && done < job->touches && now < end_ns) {
        if (now >= rest_ns) {
            sleep_until(now + REST_MS * (int64_t)NS_PER_MS);
        }
        touch(memory, next_random(&state) % pages, &state);
        done++;
        if (now >= rest_ns || done % BATCH == 0) {
            now = now_ns();
        }
    }
    return done;
}

int main(int argc, char **argv)
{
    Job job = parse(argc, argv);
    size_t bytes = job.megabytes << 20;
    int64_t begin_ns = now_ns();
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t done;

    if (memory == MAP_FAILED) {
        fail("memload: there are no %" PRIu64 " MB", job.megabytes);
    }
    catch_stop();
    done = run(&job, memory, begin_ns);
    printf("{\"megabytes\": %" PRIu64 ", \"touches\": %" PRIu64
           ", \"seconds\": %.3f}\n", job.megabytes, done,
           (double)(now_ns() - begin_ns) / NS_PER_S);
    return 0;
}
