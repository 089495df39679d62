/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * idleverify device: each thread writes and reads its own part of a device
 * and knows what each block of it must hold.
 */
#define _GNU_SOURCE
#include "verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/ioprio.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A request that fails is tried again, so that all is known in the end. */
enum { TRIES = 2000, RETRY_US = 10000 };

typedef struct Part {
    const DeviceRun *run;
    pthread_t thread;
    int fd;
    uint64_t first, blocks; /* of the device */
    uint64_t state;
    uint32_t *sequence;     /* what each block holds; 0: not written yet */
    uint8_t *buffer;
    uint64_t writes, reads, syncs, errors, verified_bytes;
    int64_t longest_us;
} Part;

static void transfer(Part *part, bool is_write, uint64_t block, unsigned n)
{
    uint64_t offset = (part->first + block) * BLOCK_BYTES;
    ssize_t bytes = (ssize_t)n * BLOCK_BYTES, moved = -1;
    int64_t start_us = clock_us();
    unsigned tries = 0;

    while (moved != bytes) {
        moved = is_write ? pwrite(part->fd, part->buffer, bytes, offset) :
                           pread(part->fd, part->buffer, bytes, offset);
        if (moved != bytes && (++part->errors, ++tries) > TRIES) {
            fail("%s: block %" PRIu64 ": %s", part->run->device,
                 part->first + block, strerror(errno));
        }
        if (moved != bytes) {
            usleep(RETRY_US);
        }
    }
    if (clock_us() - start_us > part->longest_us) {
        part->longest_us = clock_us() - start_us;
    }
}

static void write_blocks(Part *part, uint64_t block, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        block_make(part->buffer + i * BLOCK_BYTES, part->first + block + i,
                   ++part->sequence[block + i]);
    }
    transfer(part, true, block, n);
    part->writes++;
}

static void read_blocks(Part *part, uint64_t block, unsigned n)
{
    transfer(part, false, block, n);
    part->reads++;
    for (unsigned i = 0; i < n; i++) {
        uint64_t place = part->first + block + i;
        int64_t found = block_sequence(part->buffer + i * BLOCK_BYTES, place);

        if (!part->sequence[block + i]) {
            continue;
        }
        if (found != part->sequence[block + i]) {
            broken("block %" PRIu64 " holds write %" PRId64 " instead of %u",
                   place, found, part->sequence[block + i]);
        }
        part->verified_bytes += BLOCK_BYTES;
    }
}

static void sync_device(Part *part)
{
    for (unsigned tries = 0; fsync(part->fd) != 0; tries++) {
        part->errors++;
        if (tries == TRIES) {
            fail("%s: fsync: %s", part->run->device, strerror(errno));
        }
        usleep(RETRY_US);
    }
    part->syncs++;
}

static void one_step(Part *part)
{
    unsigned n = 1 + random_number(&part->state) % part->run->blocks_max;
    uint64_t block = random_number(&part->state) % (part->blocks - n + 1);
    unsigned what = random_number(&part->state) % 16;

    if (what < 9) {
        write_blocks(part, block, n);
    } else if (what < 15) {
        read_blocks(part, block, n);
    } else {
        sync_device(part);
    }
}

static void *run_part(void *opaque)
{
    Part *part = opaque;
    int64_t end_us = clock_us() + (int64_t)(part->run->seconds * 1e6);

    while (!stop_requested && clock_us() < end_us) {
        one_step(part);
    }
    sync_device(part);
    for (uint64_t block = 0; block < part->blocks;
         block += part->run->blocks_max) {
        uint64_t left = part->blocks - block;

        read_blocks(part, block, left < part->run->blocks_max ?
                                 left : part->run->blocks_max);
    }
    return NULL;
}

static void start_part(Part *part, const DeviceRun *run, unsigned i)
{
    part->run = run;
    part->fd = open(run->device, O_RDWR | O_DIRECT);
    part->blocks = run->span_bytes / BLOCK_BYTES / run->threads;
    part->first = i * part->blocks;
    part->state = run->seed + i;
    part->sequence = calloc(part->blocks, sizeof(*part->sequence));
    if (part->fd < 0) {
        fail("%s: %s", run->device, strerror(errno));
    }
    if (part->blocks < run->blocks_max || !part->sequence ||
        posix_memalign((void **)&part->buffer, BLOCK_BYTES,
                       run->blocks_max * BLOCK_BYTES)) {
        fail("--span-bytes %" PRIu64 " is too small or too large for %u "
             "threads", run->span_bytes, run->threads);
    }
    if (pthread_create(&part->thread, NULL, run_part, part)) {
        fail("no thread %u: lower --threads", i);
    }
}

static void report(const Part *part, unsigned parts)
{
    Part sum = { 0 };

    for (unsigned i = 0; i < parts; i++) {
        sum.writes += part[i].writes;
        sum.reads += part[i].reads;
        sum.syncs += part[i].syncs;
        sum.errors += part[i].errors;
        sum.verified_bytes += part[i].verified_bytes;
        if (part[i].longest_us > sum.longest_us) {
            sum.longest_us = part[i].longest_us;
        }
    }
    printf("{\"writes\": %" PRIu64 ", \"reads\": %" PRIu64
           ", \"syncs\": %" PRIu64 ", \"errors\": %" PRIu64
           ", \"verified_bytes\": %" PRIu64 ", \"longest_us\": %" PRId64 "}\n",
           sum.writes, sum.reads, sum.syncs, sum.errors, sum.verified_bytes,
           sum.longest_us);
}

int verify_device(const DeviceRun *run)
{
    Part *part = calloc(run->threads, sizeof(*part));

    if (strcmp(run->ioprio, "idle") == 0 &&
        syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
                IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)) != 0) {
        fail("--ioprio idle: %s", strerror(errno));
    }
    for (unsigned i = 0; i < run->threads; i++) {
        start_part(&part[i], run, i);
    }
    for (unsigned i = 0; i < run->threads; i++) {
        pthread_join(part[i].thread, NULL);
    }
    report(part, run->threads);
    free(part);
    return 0;
}
