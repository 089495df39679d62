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

#include <stdlib.h>

int main(int argc, char **argv)
{
    Load load = parse_options(argc, argv);
    Worker *workers = calloc(load.outstanding, sizeof(Worker));

    if (!workers) {
        fail("no memory for %u workers", load.outstanding);
    }
    catch_stop();
    set_ioprio(load.ioprio);
    open_device(&load);
    start_workers(&load, workers);
    report_load(&load, workers);
    free(workers);
    return 0;
}
