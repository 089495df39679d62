/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * idleverify: a disk load that knows what it must read.
 *
 *   idleverify device --device PATH [--span-bytes N] [--threads N]
 *       [--request-blocks N] [--seconds S] [--seed N] [--ioprio none|idle]
 *   idleverify count --directory PATH --marks DEVICE [--files N] [--seconds S]
 *   idleverify check --directory PATH [--files N]
 *
 * Every block of 4 KiB says which block it is and which write wrote it. A
 * request that fails is tried again for 20 seconds. Exit status: 0 all is as
 * it must be, 2 it could not run, 3 the data are not what was written.
 */
#define _GNU_SOURCE
#include "verify.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

volatile sig_atomic_t stop_requested;

static void say(const char *format, va_list arguments)
{
    fputs("idleverify: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    exit(2);
}

void broken(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    exit(3);
}

static void request_stop(int signal_number)
{
    (void)signal_number;
    stop_requested = 1;
}

enum { DEVICE, SPAN, THREADS, BLOCKS, DURATION, SEED, IOPRIO, DIRECTORY,
       MARKS, FILES, KEYS };

static const struct option options[] = {
    { "device", required_argument, NULL, DEVICE },
    { "span-bytes", required_argument, NULL, SPAN },
    { "threads", required_argument, NULL, THREADS },
    { "request-blocks", required_argument, NULL, BLOCKS },
    { "seconds", required_argument, NULL, DURATION },
    { "seed", required_argument, NULL, SEED },
    { "ioprio", required_argument, NULL, IOPRIO },
    { "directory", required_argument, NULL, DIRECTORY },
    { "marks", required_argument, NULL, MARKS },
    { "files", required_argument, NULL, FILES },
    { NULL, 0, NULL, 0 },
};

static int run_mode(const char *mode, const char *const *value)
{
    DeviceRun run = {
        .device = value[DEVICE],
        .span_bytes = strtoull(value[SPAN], NULL, 10),
        .threads = strtoul(value[THREADS], NULL, 10),
        .blocks_max = strtoul(value[BLOCKS], NULL, 10),
        .seconds = strtod(value[DURATION], NULL),
        .seed = strtoull(value[SEED], NULL, 10),
        .ioprio = value[IOPRIO],
    };
    unsigned files = strtoul(value[FILES], NULL, 10);

    if (strcmp(mode, "device") == 0 && run.device && run.threads &&
        run.blocks_max) {
        return verify_device(&run);
    }
    if (strcmp(mode, "count") == 0 && value[DIRECTORY] && value[MARKS] &&
        files) {
        return count_files(value[DIRECTORY], value[MARKS], files, run.seconds,
                           run.seed);
    }
    if (strcmp(mode, "check") == 0 && value[DIRECTORY]) {
        return check_files(value[DIRECTORY], files);
    }
    fail("%s: not a mode, or an option of it is missing: see verify.c", mode);
}

int main(int argc, char **argv)
{
    const char *value[KEYS] = {
        [SPAN] = "33554432", [THREADS] = "4", [BLOCKS] = "64",
        [DURATION] = "10", [SEED] = "1", [IOPRIO] = "none", [FILES] = "8",
    };
    struct sigaction stop = { .sa_handler = request_stop };
    int key;

    while ((key = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (key >= KEYS) {
            return 2;
        }
        value[key] = optarg;
    }
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    return run_mode(optind < argc ? argv[optind] : "", value);
}
