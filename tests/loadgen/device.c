/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the load runs on: the device, and the priority with which it is used. */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { IOPRIO_CLASS_UNSET = -1 };

void set_ioprio(const char *name)
{
    static const struct {
        const char *name;
        int class;
    } classes[] = {
        { "none", IOPRIO_CLASS_UNSET },
        { "idle", IOPRIO_CLASS_IDLE },
        { "best-effort", IOPRIO_CLASS_BE },
    };

    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strcmp(name, classes[i].name) != 0) {
            continue;
        }
        if (classes[i].class != IOPRIO_CLASS_UNSET &&
            syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
                    IOPRIO_PRIO_VALUE(classes[i].class, 0)) != 0) {
            fail("ioprio_set(%s): %s", name, strerror(errno));
        }
        return;
    }
    fail("--ioprio %s: use none, idle or best-effort", name);
}

static uint64_t device_bytes(int fd, const char *path)
{
    struct stat status;
    uint64_t bytes = 0;

    if (fstat(fd, &status) != 0) {
        fail("%s: %s", path, strerror(errno));
    }
    if (!S_ISBLK(status.st_mode)) {
        return status.st_size;
    }
    if (ioctl(fd, BLKGETSIZE64, &bytes) != 0) {
        fail("%s: BLKGETSIZE64: %s", path, strerror(errno));
    }
    return bytes;
}

void open_device(Load *load)
{
    bool reads = !load->trace && strcmp(load->operation, "read") == 0;
    int flags = reads ? O_RDONLY : O_RDWR;
    uint64_t bytes;

    if (load->files) {
        find_files(load);
        return;
    }
    load->fd = open(load->device, flags | (load->buffered ? 0 : O_DIRECT));
    if (load->fd < 0) {
        fail("%s: %s%s", load->device, strerror(errno),
             load->buffered ? "" : " (try --buffered)");
    }
    bytes = device_bytes(load->fd, load->device);
    bytes -= load->offset_bytes < bytes ? load->offset_bytes : bytes;
    if (load->span_bytes == 0 || load->span_bytes > bytes) {
        load->span_bytes = bytes;
    }
    if (load->span_bytes < load->block_bytes * load->outstanding) {
        fail("%s has %" PRIu64 " bytes there: too few for %u blocks of %"
             PRIu64,
             load->device, load->span_bytes, load->outstanding,
             load->block_bytes);
    }
}
