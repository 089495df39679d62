/*
 * Idletime arena: the two files.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/guard.h"
#include "idletime/arena/board-impl.h"
#include <sys/mman.h>
#include <sys/stat.h>

#define BOARD_MODE 0644
#define DIRECTORY_MODE 0755

const IdletimeKind idletime_kinds[] = {
    [IDLETIME_BOARD_FOREGROUND] = {
        "foreground", sizeof(IdletimeFgBoard),
        offsetof(IdletimeFgBoard, line), sizeof(IdletimeFgLine),
    },
    [IDLETIME_BOARD_BACKGROUND] = {
        "background", sizeof(IdletimeBgBoard),
        offsetof(IdletimeBgBoard, line), sizeof(IdletimeBgLine),
    },
};

/* ---- creation */

static bool make_directory(const char *dir, IdletimeError *err)
{
    char *copy = strdup(dir);
    bool ok = copy != NULL;

    for (char *p = copy; ok && p; ) {
        p = *p ? strchr(p + 1, '/') : NULL;
        if (p) {
            *p = '\0';
        }
        ok = mkdir(copy, DIRECTORY_MODE) == 0 || errno == EEXIST ||
             (p && errno == EROFS);
        if (p) {
            *p = '/';
        }
    }
    if (!ok) {
        fail(err, "cannot create arena directory '%s': %s; create it, or "
             "point 'path' to a directory that this user may write",
             dir, strerror(errno));
    }
    free(copy);
    return ok;
}

static bool write_header(int fd, IdletimeBoardKind kind)
{
    IdletimeBoardHeader header = {
        .magic = IDLETIME_ARENA_MAGIC,
        .abi = IDLETIME_ARENA_ABI,
        .kind = kind,
        .slots = IDLETIME_SLOTS,
        .size_bytes = idletime_kinds[kind].size,
    };
    size_t pages = idletime_kinds[kind].line_offset;

    /* The header and token pages are allocated now, the slots when claimed. */
    return ftruncate(fd, idletime_kinds[kind].size) == 0 &&
           (errno = posix_fallocate(fd, 0, pages)) == 0 &&
           pwrite(fd, &header, sizeof(header), 0) == sizeof(header);
}

/* The board gets its name only when it is complete. */
static bool create_board(const char *path, IdletimeBoardKind kind,
                         IdletimeError *err)
{
    char temp[PATH_MAX];
    bool ok;
    int fd;

    if (snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= (int)sizeof(temp)) {
        return fail(err, "arena path '%s' is too long", path);
    }
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) {
        return fail(err, "cannot create arena board '%s': %s; create the arena "
                    "as a user who may write there, or change 'path'",
                    path, strerror(errno));
    }
    errno = 0;
    ok = write_header(fd, kind) && fchmod(fd, BOARD_MODE) == 0 &&
         (link(temp, path) == 0 || errno == EEXIST);
    if (!ok) {
        fail(err, "cannot create arena board '%s': %s; is its filesystem full?",
             path, errno ? strerror(errno) : "short write");
    }
    unlink(temp);
    close(fd);
    return ok;
}

static char *board_path(const char *dir, IdletimeBoardKind kind)
{
    char *path;
    int length = asprintf(&path, "%s/%s", dir, idletime_kinds[kind].name);

    return length < 0 ? NULL : path;
}

bool idletime_arena_create(const char *dir, IdletimeError *err)
{
    bool ok = true;

    for (int kind = IDLETIME_BOARD_FOREGROUND;
         ok && kind <= IDLETIME_BOARD_BACKGROUND; kind++) {
        char *path = board_path(dir, kind);

        if (!path || access(path, F_OK) != 0) {
            ok = make_directory(dir, err) && path &&
                 create_board(path, kind, err);
        }
        free(path);
    }
    return ok;
}

/* ---- opening */

static bool check_size(const char *path, int fd, size_t size,
                       IdletimeError *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return fail(err, "arena board '%s' is not a regular file; remove it",
                    path);
    }
    if ((uint64_t)st.st_size != size) {
        return fail(err, "arena board '%s' has %lld bytes, must have %zu: it "
                    "is truncated or of another version; stop the VMs that "
                    "use it and remove the arena directory",
                    path, (long long)st.st_size, size);
    }
    return true;
}

static bool check_header(const char *path, const IdletimeBoardHeader *h,
                         IdletimeBoardKind kind, IdletimeError *err)
{
    if (h->magic != IDLETIME_ARENA_MAGIC) {
        return fail(err, "'%s' is not an idletime board (bad magic); choose "
                    "another 'path', or remove the file if it is damaged",
                    path);
    }
    if (h->abi != IDLETIME_ARENA_ABI) {
        return fail(err, "arena board '%s' has version %" PRIu32 ", this QEMU "
                    "speaks version %d: use one version for all VMs of a "
                    "resource", path, h->abi, IDLETIME_ARENA_ABI);
    }
    if (h->kind != kind || h->slots != IDLETIME_SLOTS ||
        h->size_bytes != idletime_kinds[kind].size) {
        return fail(err, "the header of arena board '%s' is damaged: stop the "
                    "VMs that use it and remove the arena directory", path);
    }
    return true;
}

static bool map_board(IdletimeBoard *board, IdletimeError *err)
{
    int prot = PROT_READ | (board->writable ? PROT_WRITE : 0);

    board->map = mmap(NULL, board->size, prot, MAP_SHARED, board->fd, 0);
    if (board->map == MAP_FAILED) {
        board->map = NULL;
        return fail(err, "cannot map arena board '%s': %s",
                    board->path, strerror(errno));
    }
    board->guard = idletime_guard_add(board->map, board->size);
    if (board->guard < 0) {
        return fail(err, "more than %d arena boards in one process",
                    IDLETIME_GUARDS);
    }
    return true;
}

static bool open_checked(IdletimeBoard *board, IdletimeError *err)
{
    IdletimeBoardHeader header;
    struct stat st;

    /* Not blocking: a FIFO under that name must not hang us. */
    board->fd = open(board->path, O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
                     (board->writable ? O_RDWR : O_RDONLY));
    if (board->fd < 0) {
        return fail(err, "cannot open arena board '%s' for %s: %s",
                    board->path, board->writable ? "writing" : "reading",
                    strerror(errno));
    }
    if (!check_size(board->path, board->fd, board->size, err)) {
        return false;
    }
    if (fstat(board->fd, &st) != 0 ||
        pread(board->fd, &header, sizeof(header), 0) != sizeof(header)) {
        return fail(err, "cannot read arena board '%s': %s",
                    board->path, strerror(errno));
    }
    board->inode = st.st_ino;
    board->device = st.st_dev;
    return check_header(board->path, &header, board->kind, err) &&
           map_board(board, err);
}

bool idletime_board_open(IdletimeBoard *board, const char *dir,
                         IdletimeBoardKind kind, bool writable,
                         IdletimeError *err)
{
    *board = (IdletimeBoard) {
        .kind = kind,
        .path = board_path(dir, kind),
        .fd = -1,
        .writable = writable,
        .size = idletime_kinds[kind].size,
        .guard = -1,
    };
    if (!board->path) {
        return fail(err, "out of memory");
    }
    if (!open_checked(board, err)) {
        idletime_board_close(board);
        return false;
    }
    return true;
}

void idletime_board_close(IdletimeBoard *board)
{
    if (!board->path) {
        return;     /* never opened: its zeros are no handles */
    }
    idletime_guard_remove(board->guard);
    if (board->map) {
        munmap(board->map, board->size);
    }
    if (board->fd >= 0) {
        close(board->fd);
    }
    free(board->path);
    *board = (IdletimeBoard) { .fd = -1, .guard = -1 };
}

static const IdletimeBoardHeader *header_of(const IdletimeBoard *board)
{
    return board->map;
}

/* Magic and version as they are now; a lost board reads as zero. */
static bool header_intact(const IdletimeBoardHeader *h)
{
    return __atomic_load_n(&h->magic, __ATOMIC_RELAXED) ==
               IDLETIME_ARENA_MAGIC &&
           __atomic_load_n(&h->abi, __ATOMIC_RELAXED) == IDLETIME_ARENA_ABI;
}

bool idletime_board_intact(const IdletimeBoard *board, bool deep)
{
    struct stat st;

    if (!board->map || !header_intact(header_of(board))) {
        return false;
    }
    if (!deep) {
        return true;
    }
    return fstat(board->fd, &st) == 0 && (uint64_t)st.st_size == board->size &&
           lstat(board->path, &st) == 0 && st.st_ino == board->inode &&
           st.st_dev == board->device;
}
