/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of idleverify share: blocks that say what they are. */
#ifndef VERIFY_H
#define VERIFY_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BLOCK_BYTES = 4096 };

/* Set by a signal: end early, but verify and report. */
extern volatile sig_atomic_t stop_requested;

/* Print one line on stderr and exit with status 2 (fail), 3 (broken data). */
void fail(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));
void broken(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));

/* verify-block.c: a block of this place and sequence number. */
void block_make(void *block, uint64_t place, uint64_t sequence);
/* Its sequence number; 0: it was never written (all zeros); -1: it is broken. */
int64_t block_sequence(const void *block, uint64_t place);
uint64_t random_number(uint64_t *state);
int64_t clock_us(void);

/* verify-device.c: writes and reads back one device with several threads. */
typedef struct DeviceRun {
    const char *device;
    unsigned threads;
    uint64_t span_bytes;
    unsigned blocks_max;    /* of one request */
    double seconds;
    uint64_t seed;
    const char *ioprio;     /* none | idle */
} DeviceRun;

int verify_device(const DeviceRun *run);

/* verify-files.c: counters in files that survive a loss of power. */
int count_files(const char *directory, const char *marks, unsigned files,
                double seconds, uint64_t seed);
int check_files(const char *directory, unsigned files);

#endif
