/*
 * Idletime machine tests: a host with a zoned disk, where the kernel has none.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Of QEMU's drivers only host_device appends to zones, and it wants a block
 * device whose queue says that it is zoned: many kernels are built without.
 * Loaded before QEMU's own libraries, this makes one of the file that
 * IDLETIME_ZONED names: a block device with zones, all empty.  Its data are
 * those of the file.  A write waits until the file's name with ".go" exists.
 */
#include <dlfcn.h>
#include <glib.h>
#include <limits.h>
#include <linux/blkzoned.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>
#include "idletime-zoned-host.h"

/* Numbers for local use (Linux, devices.txt). */
#define DEVICE          makedev(240, 7)
#define QUEUE           "/sys/dev/block/240:7/queue/"
#define SECTORS(bytes)  ((bytes) / 512)

static const struct { const char *name, *value; } attribute[] = {
    { "zoned", "host-managed" },
    { "max_open_zones", "0" },
    { "max_active_zones", "0" },
    { "chunk_sectors", "2048" },
    { "nr_zones", "64" },
    { "zone_append_max_bytes", "65536" },
    { "physical_block_size", "512" },
};

const char *zoned_host_library(void)
{
    static Dl_info info;

    return dladdr(zoned_host_library, &info) ? info.dli_fname : NULL;
}

static bool is_zoned(int fd)
{
    const char *wanted = getenv(ZONED_HOST_IMAGE);
    char link[64], path[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = wanted ? readlink(link, path, sizeof(path) - 1) : -1;
    if (n < 0) {
        return false;
    }
    path[n] = 0;
    return strcmp(path, wanted) == 0;
}

static void await_go(int fd)
{
    char path[PATH_MAX];

    if (is_zoned(fd)) {
        snprintf(path, sizeof(path), "%s" ZONED_HOST_GO,
                 getenv(ZONED_HOST_IMAGE));
        while (access(path, F_OK) != 0) {
            usleep(500);
        }
    }
}

/* ---- what a block device is asked for */

int fstat64(int fd, struct stat64 *st)
{
    int (*next)(int, struct stat64 *) = dlsym(RTLD_NEXT, "fstat64");
    int ret = next(fd, st);

    if (ret == 0 && is_zoned(fd)) {
        st->st_mode = (st->st_mode & ~S_IFMT) | S_IFBLK;
        st->st_rdev = DEVICE;
    }
    return ret;
}

/* GLib's, by which QEMU reads the attributes of a queue. */
int g_file_get_contents(const char *name, char **contents, gsize *length,
                        GError **error)
{
    int (*next)(const char *, char **, gsize *, GError **) =
        dlsym(RTLD_NEXT, "g_file_get_contents");

    for (size_t i = 0; i < sizeof(attribute) / sizeof(attribute[0]); i++) {
        if (strncmp(name, QUEUE, strlen(QUEUE)) == 0 &&
            strcmp(name + strlen(QUEUE), attribute[i].name) == 0) {
            *contents = g_strdup(attribute[i].value);
            if (length) {
                *length = strlen(*contents);
            }
            return true;
        }
    }
    return next(name, contents, length, error);
}

static int report_zones(struct blk_zone_report *report)
{
    const unsigned sectors = SECTORS(ZONED_HOST_ZONE_BYTES);
    unsigned first = report->sector / sectors, n = 0;

    for (; n < report->nr_zones && first + n < ZONED_HOST_ZONES; n++) {
        report->zones[n] = (struct blk_zone) {
            .start = (first + n) * sectors, .wp = (first + n) * sectors,
            .len = sectors, .capacity = sectors,
            .type = BLK_ZONE_TYPE_SEQWRITE_REQ, .cond = BLK_ZONE_COND_EMPTY,
        };
    }
    report->nr_zones = n;
    return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    int (*next)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
    va_list ap;
    void *argument;

    va_start(ap, request);
    argument = va_arg(ap, void *);
    va_end(ap);
    if (request == BLKREPORTZONE && is_zoned(fd)) {
        return report_zones(argument);
    }
    if (request == BLKROGET && is_zoned(fd)) {
        *(int *)argument = false;
        return 0;
    }
    return next(fd, request, argument);
}

/* ---- writes wait */

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    ssize_t (*next)(int, const void *, size_t, off64_t) =
        dlsym(RTLD_NEXT, "pwrite64");

    await_go(fd);
    return next(fd, data, size, offset);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t offset)
{
    ssize_t (*next)(int, const struct iovec *, int, off64_t) =
        dlsym(RTLD_NEXT, "pwritev64");

    await_go(fd);
    return next(fd, iov, n, offset);
}
