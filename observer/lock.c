/*
 * Idletime observer: one of them for an arena.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The lock is a file of root's, named by the number of the arena's directory:
 * in the directory itself QEMU's user could hold it for ever.
 */
#include "observer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define UP      "/run/idletime"
#define LOCKS   UP "/.observers"

/* Nobody but us may make files there. */
static bool locks_are_ours(void)
{
    struct stat st;

    mkdir("/run", 0755);
    mkdir(UP, 0755);
    mkdir(LOCKS, 0700);
    if (lstat(LOCKS, &st) < 0) {
        fail("%s cannot be made (%s): the observer keeps its locks there",
             LOCKS, strerror(errno));
        errno = EACCES;         /* ENOENT would be a missing arena */
        return false;
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)) {
        errno = EACCES;
        return fail("%s is not a directory of root's alone: remove it, the "
                    "observer makes it", LOCKS);
    }
    return true;
}

int lock_arena(const char *arena)
{
    char path[128];
    struct stat at, mine, named;
    int lock;

    if (stat(arena, &at) < 0) {
        fail("%s: %s: is there an arena? QEMU or idletimed makes it", arena,
             strerror(errno));
        return -1;
    }
    if (!locks_are_ours()) {
        return -1;
    }
    snprintf(path, sizeof(path), LOCKS "/%u:%u:%llu", major(at.st_dev),
             minor(at.st_dev), (unsigned long long)at.st_ino);
    lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) {
        errno = errno == ENOENT ? EACCES : errno;
        fail("%s: %s", path, strerror(errno));
        return -1;
    }
    /* The one before may have removed it while we opened it. */
    if (flock(lock, LOCK_EX | LOCK_NB) < 0 || fstat(lock, &mine) < 0 ||
        stat(path, &named) < 0 || mine.st_ino != named.st_ino) {
        close(lock);
        errno = EBUSY;
        fail("'%s' has an observer already (it holds the lock on %s): end that "
             "one first", arena, path);
        return -1;
    }
    return lock;
}

void lock_leave(int lock)
{
    char link[64], path[128];
    ssize_t n;

    if (lock < 0) {
        return;
    }
    snprintf(link, sizeof(link), "/proc/self/fd/%d", lock);
    n = readlink(link, path, sizeof(path) - 1);
    if (n > 0) {
        path[n] = '\0';
        unlink(path);
    }
    close(lock);
}
