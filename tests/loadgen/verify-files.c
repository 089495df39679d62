/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * idleverify count, check: files with sequence numbers, for power cuts.
 *
 * count writes a file whole, syncs it, and only then writes a mark (file and
 * sequence) to the device --marks: what the mark says must survive any loss
 * of power after it. Even files are overwritten in place; odd ones are made
 * anew and renamed, so that the journal has work. check says what is there.
 */
#define _GNU_SOURCE
#include "verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BLOCKS = 8 };

static void must(bool ok, const char *what)
{
    if (!ok) {
        fail("%s: %s", what, strerror(errno));
    }
}

static void sync_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY);

    must(fd >= 0 && fsync(fd) == 0 && close(fd) == 0, directory);
}

static void write_file(const char *directory, unsigned file, uint64_t sequence)
{
    char name[PATH_MAX], path[PATH_MAX + 8];
    uint8_t block[BLOCK_BYTES];
    bool renamed = file % 2;
    int fd;

    snprintf(name, sizeof(name), "%s/%u", directory, file);
    snprintf(path, sizeof(path), renamed ? "%s.new" : "%s", name);
    fd = open(path, O_WRONLY | O_CREAT | (renamed ? O_TRUNC : 0), 0644);
    must(fd >= 0, path);
    for (unsigned i = 0; i < FILE_BLOCKS; i++) {
        block_make(block, file * FILE_BLOCKS + i, sequence);
        must(pwrite(fd, block, sizeof(block), i * BLOCK_BYTES) ==
             sizeof(block), path);
    }
    must(fsync(fd) == 0 && close(fd) == 0, path);
    if (renamed) {
        must(rename(path, name) == 0, path);
    }
    if (renamed || sequence == 1) {
        sync_directory(directory);
    }
}

static void mark(int fd, void *block, unsigned file, uint64_t sequence)
{
    block_make(block, file, sequence);
    must(pwrite(fd, block, BLOCK_BYTES, (off_t)file * BLOCK_BYTES) ==
         BLOCK_BYTES, "--marks");
}

int count_files(const char *directory, const char *marks, unsigned files,
                double seconds, uint64_t seed)
{
    int64_t end_us = clock_us() + (int64_t)(seconds * 1e6);
    uint64_t *sequence = calloc(files, sizeof(*sequence)), done = 0;
    int64_t longest_us = 0;
    int fd = open(marks, O_WRONLY | O_DIRECT);
    void *block;

    must(fd >= 0, marks);
    must(sequence && !posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES),
         "memory");
    while (!stop_requested && clock_us() < end_us) {
        unsigned file = random_number(&seed) % files;
        int64_t start_us = clock_us();

        write_file(directory, file, ++sequence[file]);
        if (clock_us() - start_us > longest_us) {
            longest_us = clock_us() - start_us;
        }
        mark(fd, block, file, sequence[file]);
        done++;
    }
    printf("{\"counted\": %" PRIu64 ", \"longest_us\": %" PRId64 "}\n", done,
           longest_us);
    return 0;
}

/* The lowest sequence number in a file; 0: it is not there; -1: broken. */
static int64_t check_file(const char *directory, unsigned file)
{
    char path[PATH_MAX];
    uint8_t block[BLOCK_BYTES];
    int64_t least = INT64_MAX;
    int fd;

    snprintf(path, sizeof(path), "%s/%u", directory, file);
    fd = open(path, O_RDONLY);
    if (fd < 0 && errno == ENOENT) {
        return 0;
    }
    must(fd >= 0, path);
    for (unsigned i = 0; i < FILE_BLOCKS; i++) {
        int64_t found = 0;

        if (pread(fd, block, sizeof(block), i * BLOCK_BYTES) ==
            sizeof(block)) {
            found = block_sequence(block, file * FILE_BLOCKS + i);
        }
        least = found < least ? found : least;
    }
    close(fd);
    return least;
}

int check_files(const char *directory, unsigned files)
{
    for (unsigned file = 0; file < files; file++) {
        printf("%s%" PRId64, file ? " " : "", check_file(directory, file));
    }
    putchar('\n');
    return 0;
}
