/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The command line of idleload. */
#define _GNU_SOURCE
#include "load.h"
#include "parse.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* More threads than this only measure the guest's own scheduler. */
    OUTSTANDING_MAX = 256,
};

static const struct option options[] = {
    { "device", required_argument, NULL, 'd' },
    { "latency-file", required_argument, NULL, 'l' },
    { "pattern", required_argument, NULL, 'p' },
    { "operation", required_argument, NULL, 'o' },
    { "ioprio", required_argument, NULL, 'c' },
    { "block-bytes", required_argument, NULL, 'b' },
    { "offset-bytes", required_argument, NULL, 'O' },
    { "span-bytes", required_argument, NULL, 'S' },
    { "seed", required_argument, NULL, 'r' },
    { "outstanding", required_argument, NULL, 'n' },
    { "intensity", required_argument, NULL, 'i' },
    { "quantum-ms", required_argument, NULL, 'q' },
    { "pauses", required_argument, NULL, 'P' },
    { "rate", required_argument, NULL, 'R' },
    { "any-thread", no_argument, NULL, 'a' },
    { "files", no_argument, NULL, 'F' },
    { "trace", required_argument, NULL, 't' },
    { "seconds", required_argument, NULL, 's' },
    { "fsync-every", required_argument, NULL, 'f' },
    { "buffered", no_argument, NULL, 'B' },
    { NULL, 0, NULL, 0 },
};

static void parse_option(Load *load, int key, const char *text)
{
    const uint64_t bytes_max = (uint64_t)1 << 62;

    switch (key) {
    case 'd': load->device = text; break;
    case 'l': load->latency_file = text; break;
    case 'p':
        load->pattern = choice("pattern", text, "random", "sequential", NULL);
        break;
    case 'o':
        load->operation = choice("operation", text, "read", "write", NULL);
        break;
    case 'c': load->ioprio = text; break;
    case 'b':
        load->block_bytes = number("block-bytes", text, 512, 1 << 26);
        break;
    case 'O':
        load->offset_bytes = number("offset-bytes", text, 0, bytes_max);
        break;
    case 'S':
        load->span_bytes = number("span-bytes", text, 512, bytes_max);
        break;
    case 'r': load->seed = number("seed", text, 0, bytes_max); break;
    case 'n':
        load->outstanding = number("outstanding", text, 1, OUTSTANDING_MAX);
        break;
    case 'i': load->intensity = number("intensity", text, 1, 100); break;
    case 'q': load->quantum_ms = number("quantum-ms", text, 1, 60000); break;
    case 'P':
        load->pauses = choice("pauses", text, "even", "exponential",
                              "jittered");
        break;
    case 'R': load->rate = number("rate", text, 1, 1000000); break;
    case 'a': load->any_thread = true; break;
    case 'F': load->files = true; break;
    case 't': load->trace = text; break;
    case 's': load->seconds = duration(text); break;
    case 'f': load->fsync_every = number("fsync-every", text, 0, 1 << 30); break;
    case 'B': load->buffered = true; break;
    default: exit(2);
    }
}

Load parse_options(int argc, char **argv)
{
    Load load = {
        .pattern = "random", .operation = "read", .ioprio = "none",
        .block_bytes = 4096, .seed = 1, .outstanding = 1, .intensity = 100,
        .quantum_ms = 100, .pauses = "even", .seconds = 10,
    };
    int key;

    while ((key = getopt_long(argc, argv, "", options, NULL)) != -1) {
        parse_option(&load, key, optarg);
    }
    if (optind < argc) {
        fail("%s: unexpected argument", argv[optind]);
    }
    if (!load.device) {
        fail("--device PATH is missing");
    }
    if (load.rate && load.trace) {
        fail("--rate and --trace exclude each other");
    }
    if (load.any_thread && !load.rate) {
        fail("--any-thread is for arrivals: with --rate only");
    }
    if (load.files && (load.rate || load.trace || load.intensity != 100)) {
        fail("--files has no pauses: not with --rate, --trace, --intensity");
    }
    if (load.trace) {
        read_trace(&load);
    }
    return load;
}
