/*
 * Idletime observer: puts its socket into the arena's directory.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * We are root, the directory is not ours: no path below it is trusted.  The
 * socket is made in a directory that only we can enter, gets its rights there,
 * and is then moved to its name; later rights are set through a descriptor of
 * the very inode that we made.
 */
#include "observer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME IDLETIME_OBSERVED_SOCKET

static void set_rights(int socket, const struct stat *want)
{
    char path[64];
    struct stat have;
    mode_t mode;

    if (fstat(socket, &have) < 0) {
        return;
    }
    if ((want->st_uid != have.st_uid || want->st_gid != have.st_gid) &&
        fchownat(socket, "", want->st_uid, want->st_gid, AT_EMPTY_PATH) < 0) {
        warn("the socket's owner cannot be set: %s", strerror(errno));
    }
    /* Connecting is writing.  What is handed out cannot be written. */
    mode = (want->st_mode & 0444) | (want->st_mode & 0444) >> 1;
    if (mode != (have.st_mode & 0777)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", socket);
        chmod(path, mode);
    }
}

/*
 * Rights as those of the foreground board, or of the directory where there is
 * no board yet: who may read foreground may connect, and nobody else.
 */
static bool rights_of(int arena, struct stat *want)
{
    return (fstatat(arena, "foreground", want, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(want->st_mode)) || fstat(arena, want) == 0;
}

static int open_arena(const char *arena)
{
    return open(arena, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The inode that we made, or -1: something else has its name, or nothing. */
static int open_mine(int arena, const Place *place)
{
    struct stat st;
    int file = openat(arena, NAME, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (file >= 0 && (fstat(file, &st) < 0 || !S_ISSOCK(st.st_mode) ||
                      st.st_dev != place->device || st.st_ino != place->inode)) {
        close(file);
        errno = ENOENT;
        file = -1;
    }
    return file;
}

/* A directory that we made and nobody else can enter, whoever moves it about. */
static int make_private(int arena, char name[64])
{
    struct stat st;
    int directory;

    snprintf(name, 64, ".observer-%d-%llx", getpid(),
             (unsigned long long)now_ns());
    if (mkdirat(arena, name, 0700) < 0) {
        return -1;
    }
    directory = openat(arena, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
                       O_CLOEXEC);
    if (directory >= 0 && (fstat(directory, &st) < 0 ||
                           st.st_uid != geteuid() || (st.st_mode & 077))) {
        close(directory);
        errno = EPERM;
        directory = -1;
    }
    return directory;
}

static bool bind_in(int directory, const struct stat *want, Place *place)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct stat st;
    bool well;
    int file;

    snprintf(address.sun_path, sizeof(address.sun_path),
             "/proc/self/fd/%d/" NAME, directory);
    place->listener = socket(AF_UNIX,
                             SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (place->listener < 0 ||
        bind(place->listener, (void *)&address, sizeof(address)) < 0 ||
        listen(place->listener, 128) < 0) {
        return false;
    }
    file = openat(directory, NAME, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    well = fstat(file, &st) == 0;
    if (well) {
        place->device = st.st_dev;
        place->inode = st.st_ino;
        set_rights(file, want);
    }
    close(file);
    return well;
}

/* Whatever has the socket's name, also a directory, makes way. */
static bool move(int from, int to)
{
    if (renameat(from, NAME, to, NAME) == 0) {
        return true;
    }
    if (renameat2(from, NAME, to, NAME, RENAME_EXCHANGE) < 0) {
        return false;
    }
    unlinkat(from, NAME, AT_REMOVEDIR);
    return true;
}

bool place_socket(const char *arena, Place *place)
{
    int to = open_arena(arena), from;
    char name[64];
    struct stat want;
    bool well;

    if (to < 0) {
        return fail("%s: %s", arena, strerror(errno));
    }
    from = make_private(to, name);
    well = from >= 0 && rights_of(to, &want) && bind_in(from, &want, place) &&
           move(from, to);
    if (!well) {
        fail("%s: the socket cannot be made: %s", arena, strerror(errno));
    }
    if (from >= 0) {
        if (!well) {
            unlinkat(from, NAME, 0);
        }
        close(from);
        unlinkat(to, name, AT_REMOVEDIR);
    }
    close(to);
    return well;
}

bool is_short(void)
{
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM;
}

bool place_keep(const char *arena, const Place *place)
{
    struct stat want;
    bool there;
    int at, file;

    if (place->listener < 0) {
        return false;
    }
    /* No descriptor left to look with: that says nothing of the socket. */
    at = open_arena(arena);
    if (at < 0) {
        return is_short();
    }
    file = open_mine(at, place);
    there = file >= 0 || is_short();
    if (file >= 0) {
        if (rights_of(at, &want)) {
            set_rights(file, &want);
        }
        close(file);
    }
    close(at);
    return there;
}

void place_remove(const char *arena, const Place *place)
{
    int at, file;

    if (place->listener < 0 || (at = open_arena(arena)) < 0) {
        return;
    }
    file = open_mine(at, place);
    if (file >= 0) {
        unlinkat(at, NAME, 0);
        close(file);
    }
    close(at);
}
