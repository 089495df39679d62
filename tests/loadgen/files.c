/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The load of a search through a tree of files: what grep -r does, again and
 * again, with the page cache emptied of each file behind it.
 *
 * An operation is one file: open, read to the end, look for a word, close.
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 65536, FTW_DESCRIPTORS = 16 };

/* nftw() passes nothing through: the list that is being filled. */
static char **paths;
static size_t path_count;

static int keep_path(const char *path, const struct stat *status, int type,
                     struct FTW *place)
{
    (void)status;
    (void)place;
    if (type == FTW_F) {
        paths = realloc(paths, (path_count + 1) * sizeof(char *));
        if (!paths || !(paths[path_count++] = strdup(path))) {
            fail("no memory for %zu paths", path_count);
        }
    }
    return 0;
}

void find_files(const Load *load)
{
    if (nftw(load->device, keep_path, FTW_DESCRIPTORS, FTW_PHYS) != 0 ||
        path_count == 0) {
        fail("--device %s: no tree of files: %s", load->device,
             strerror(errno));
    }
}

static bool search(Worker *worker, const char *path)
{
    int fd = open(path, O_RDONLY);
    ssize_t got = 0;

    if (fd >= 0) {
        while ((got = read(fd, worker->buffer, CHUNK_BYTES)) > 0) {
            worker->bytes += got;
            worker->matches += memmem(worker->buffer, got, "idletime", 8) != NULL;
        }
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    if (fd < 0 || got < 0) {
        worker->error = errno;
        return false;
    }
    return true;
}

void *run_files(void *opaque)
{
    Worker *worker = opaque;
    size_t number = worker->index;

    worker->buffer = realloc(worker->buffer, CHUNK_BYTES);
    for (int64_t start = now_ns(); !finished(worker, start);
         start = now_ns()) {
        if (search(worker, paths[number % path_count])) {
            keep_sample(worker, start, now_ns());
        }
        number += worker->load->outstanding;
    }
    return NULL;
}
