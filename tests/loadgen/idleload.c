/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * idleload: a disk load that is busy for a fixed part of every quantum.
 *
 * Time is cut into quanta of 100 ms that start at absolute deadlines. In each
 * of them every thread issues requests back to back until `intensity` percent
 * of the quantum have passed, and then sleeps until the next one starts:
 *
 *     quantum 0                     quantum 1                     quantum 2
 *     |RRRRRRRRR--------------------|RRRRRRRRR--------------------|RRR...
 *      intensity 30                  intensity 30
 *
 * A request that is in service when the busy part ends is waited for, so a
 * slower disk gets fewer requests and never a backlog. Intensity 100 never
 * sleeps: the greedy load. This is the disk load of Eggert's dissertation
 * ("Background Use of Idle Resource Capacity", 2004).
 *
 * With --pauses jittered or exponential the busy parts are as long, but what
 * lies between them varies, with the same mean: evenly by 30 %, or far more.
 * --rate and --trace are open loads instead: see arrivals.c. With --files the
 * load searches a tree of files: see files.c.
 *
 * Every thread keeps one request outstanding, has offsets of its own (random
 * ones from its own stream of the seed, sequential ones from its own part of
 * the device) and keeps its latencies in memory until the end.
 *
 * Output: one JSON line on stdout with every parameter and the result, and,
 * with --latency-file, the raw latencies in order of start, each record two
 * little-endian 32-bit words: start (us after the load began), latency (us).
 */
#include "load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

volatile sig_atomic_t stop_requested;

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("idleload: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static void request_stop(int signal_number)
{
    (void)signal_number;
    stop_requested = 1;
}

int main(int argc, char **argv)
{
    Load load = parse_options(argc, argv);
    Worker *workers = calloc(load.outstanding, sizeof(Worker));
    struct sigaction stop = { .sa_handler = request_stop };

    if (!workers) {
        fail("no memory for %u workers", load.outstanding);
    }
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    set_ioprio(load.ioprio);
    open_device(&load);
    start_workers(&load, workers);
    report_load(&load, workers);
    free(workers);
    return 0;
}
