/*
 * Idletime observer: which device's queue a disk's requests go through.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A partition's requests are in the queue of its whole disk, those of a
 * device-mapper or md device in the queues of what it stands on, those of an
 * NVMe disk with multipath in the queue of a hidden disk.  What has a queue of
 * its own is the leaf, whatever is below: a loop device, and dm-multipath,
 * whose paths all lead to one disk.
 */
#include "observer.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Layers below a device: LVM on LUKS on md on a partition are four. */
#define DEEPEST 16

static const char *sys(void)
{
    return getenv("OBSERVER_SYS") ?: "/sys";
}

static bool exists(const char *directory, const char *name)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static bool number_of(const char *directory, int *major, int *minor)
{
    char path[PATH_MAX + 8], line[32];

    snprintf(path, sizeof(path), "%s/dev", directory);
    return read_line(path, line, sizeof(line)) &&
           sscanf(line, "%d:%d", major, minor) == 2;
}

static bool become(const char *directory, Leaf *leaf)
{
    const char *name = strrchr(directory, '/') + 1;

    *leaf = (Leaf) { 0 };
    if (strlen(name) >= sizeof(leaf->name)) {
        return fail("the kernel's name '%s' is longer than any that it gives",
                    name);
    }
    strcpy(leaf->name, name);
    for (char *c = leaf->name; *c; c++) {
        *c = *c == '!' ? '/' : *c;  /* sysfs cannot have a / in a name */
    }
    leaf->hidden = !number_of(directory, &leaf->major, &leaf->minor);
    return true;
}

/* @directory stands on @one too; returns what is found now: 1, or -1. */
static int add(const char *directory, int found, const Leaf *one, Leaf *leaf)
{
    if (found && strcmp(leaf->name, one->name)) {
        fail("%s stands on several disks, %s and %s among them, and an "
             "observer sees one: keep what is background on devices of one "
             "disk each, or give up the observer",
             strrchr(directory, '/') + 1, leaf->name, one->name);
        return -1;
    }
    *leaf = *one;
    return 1;
}

static bool descend(const char *directory, int depth, Leaf *leaf);

/* The one leaf below all of @directory/slaves; 0 slaves: none. */
static int below(const char *directory, int depth, Leaf *leaf)
{
    char path[PATH_MAX + 8], link[2 * PATH_MAX], real[PATH_MAX];
    struct dirent *entry;
    int found = 0;
    Leaf one;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/slaves", directory);
    dir = opendir(path);
    while (dir && found >= 0 && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
        found = realpath(link, real) && descend(real, depth + 1, &one) ?
                add(directory, found, &one, leaf) : -1;
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

/* nvme0n1 is served by nvme0c0n1, nvme0c1n1, ...: hidden, with queues. */
static int hidden_paths(const char *directory, Leaf *leaf)
{
    const char *name = strrchr(directory, '/') + 1;
    char path[2 * PATH_MAX], line[8];
    unsigned subsystem, namespace, s, c, n;
    struct dirent *entry;
    int found = 0, used;
    Leaf one;
    DIR *dir;

    if (sscanf(name, "nvme%un%u%n", &subsystem, &namespace, &used) != 2 ||
        name[used]) {
        return 0;
    }
    /* All of them are in the directory of block devices. */
    snprintf(path, sizeof(path), "%s/block", sys());
    dir = opendir(path);
    while (dir && found >= 0 && (entry = readdir(dir))) {
        if (sscanf(entry->d_name, "nvme%uc%un%u", &s, &c, &n) != 3 ||
            s != subsystem || n != namespace) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/block/%s/hidden", sys(),
                 entry->d_name);
        if (!read_line(path, line, sizeof(line)) || line[0] != '1') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/block/%s", sys(), entry->d_name);
        found = become(path, &one) ? add(directory, found, &one, leaf) : -1;
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

static bool descend(const char *directory, int depth, Leaf *leaf)
{
    char whole[PATH_MAX];
    int found;

    if (depth > DEEPEST) {
        return fail("%s has more than %d layers of devices below it", directory,
                    DEEPEST);
    }
    snprintf(whole, sizeof(whole), "%s", directory);
    if (exists(whole, "partition")) {
        *strrchr(whole, '/') = '\0';
    }
    if (exists(whole, "mq")) {
        return become(whole, leaf);
    }
    found = below(whole, depth, leaf);
    if (found) {
        return found > 0;
    }
    found = hidden_paths(whole, leaf);
    if (found) {
        return found > 0;
    }
    return fail("%s has no queue of requests that the kernel would tell of "
                "(as pmem, zram and brd have none): it cannot be observed",
                strrchr(whole, '/') + 1);
}

bool leaf_of(const char *device, Leaf *leaf)
{
    char path[PATH_MAX], real[PATH_MAX];
    struct stat st;

    if (stat(device, &st) < 0) {
        return fail("--disk %s: %s", device, strerror(errno));
    }
    if (!S_ISBLK(st.st_mode)) {
        return fail("--disk %s is no block device: give the disk that it is "
                    "stored on, as 'df %s' shows it", device, device);
    }
    snprintf(path, sizeof(path), "%s/dev/block/%u:%u", sys(), major(st.st_rdev),
             minor(st.st_rdev));
    if (!realpath(path, real)) {
        return fail("%s: %s: is it a block device of this host, and is sysfs "
                    "mounted?", path, strerror(errno));
    }
    return descend(real, 0, leaf);
}
