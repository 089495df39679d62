/*
 * Idletime arena: the two files, and who owns which slot.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A slot is owned by holding an open-file-description lock on the first byte
 * of its line.  The kernel drops the lock when the process dies, however it
 * dies, so that nobody has to clean up and nobody has to guess.
 */
#include "qemu/osdep.h"
#include "idletime/guard.h"
#include <sys/mman.h>
#include <sys/stat.h>

#define BOARD_MODE 0644
#define DIRECTORY_MODE 0755

typedef struct BoardKindInfo {
    const char *name;
    size_t size;
    size_t line_offset;
    size_t line_size;
} BoardKindInfo;

static const BoardKindInfo kind_info[] = {
    [IDLETIME_BOARD_FOREGROUND] = {
        "foreground", sizeof(IdletimeFgBoard),
        offsetof(IdletimeFgBoard, line), sizeof(IdletimeFgLine),
    },
    [IDLETIME_BOARD_BACKGROUND] = {
        "background", sizeof(IdletimeBgBoard),
        offsetof(IdletimeBgBoard, line), sizeof(IdletimeBgLine),
    },
};

static bool G_GNUC_PRINTF(2, 3) fail(IdletimeError *err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    return false;
}

static size_t line_offset(IdletimeBoardKind kind, uint32_t index)
{
    return kind_info[kind].line_offset + index * kind_info[kind].line_size;
}

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
        .size_bytes = kind_info[kind].size,
    };

    /* The header and token pages are allocated now, the slots when claimed. */
    return ftruncate(fd, kind_info[kind].size) == 0 &&
           (errno = posix_fallocate(fd, 0, kind_info[kind].line_offset)) == 0 &&
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
    int length = asprintf(&path, "%s/%s", dir, kind_info[kind].name);

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
        h->size_bytes != kind_info[kind].size) {
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
        .size = kind_info[kind].size,
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

/* ---- slots */

static int slot_lock(int fd, IdletimeBoardKind kind, uint32_t index, int cmd,
                     struct flock *lock)
{
    *lock = (struct flock) {
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = line_offset(kind, index),
        .l_len = 1,
    };
    return fcntl(fd, cmd, lock);
}

bool idletime_slot_alive(const IdletimeBoard *board, uint32_t index)
{
    struct flock lock;

    if (index >= IDLETIME_SLOTS) {
        return false;
    }
    /* When in doubt it lives: the careful answer for the background. */
    return slot_lock(board->fd, board->kind, index, F_OFD_GETLK, &lock) != 0 ||
           lock.l_type != F_UNLCK;
}

/*
 * Memory of its own now, so that a full filesystem is an error here and not
 * a signal later.
 */
static bool slot_allocate(const IdletimeBoard *board, uint32_t index, int fd)
{
    int err = posix_fallocate(fd, line_offset(board->kind, index),
                              kind_info[board->kind].line_size);

    if (!err && board->kind == IDLETIME_BOARD_FOREGROUND) {
        err = posix_fallocate(fd, offsetof(IdletimeFgBoard, page[index]),
                              sizeof(IdletimeFgPage));
    }
    errno = err;
    return !err || err == EOPNOTSUPP || err == EINVAL;
}

static void slot_clear(const IdletimeBoard *board, uint32_t index,
                       const char *label)
{
    if (board->kind == IDLETIME_BOARD_FOREGROUND) {
        IdletimeFgBoard *fg = idletime_fg_board(board);

        memset(&fg->line[index], 0, sizeof(fg->line[index]));
        memset(&fg->page[index], 0, sizeof(fg->page[index]));
        fg->line[index].last_ns = INT64_MIN;
        fg->line[index].pid = getpid();
        snprintf(fg->page[index].label, IDLETIME_LABEL_BYTES, "%s", label);
    } else {
        IdletimeBgLine *line = &idletime_bg_board(board)->line[index];

        memset(line, 0, sizeof(*line));
        line->pid = getpid();
    }
}

static void slot_publish(IdletimeBoard *board, uint32_t index)
{
    uint32_t *high = &((IdletimeBoardHeader *)board->map)->slots_high;
    uint32_t seen = __atomic_load_n(high, __ATOMIC_RELAXED);

    while ((seen <= index || seen > IDLETIME_SLOTS) &&
           !__atomic_compare_exchange_n(high, &seen, index + 1, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        /* seen is the new value now */
    }
}

/*
 * An open file of its own: locks of one description do not conflict.  Another
 * file at that path would give us a slot that is somebody else's on ours.
 */
static int slot_open(const IdletimeBoard *board, IdletimeError *err)
{
    int fd = -1;
    struct stat st;

    errno = EBADF;
    if (board->writable) {
        fd = open(board->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    if (fd < 0) {
        fail(err, "cannot open arena board '%s' for writing: %s",
             board->path, strerror(errno));
    } else if (fstat(fd, &st) != 0 || st.st_ino != board->inode ||
               st.st_dev != board->device ||
               (uint64_t)st.st_size != board->size) {
        fail(err, "arena board '%s' was replaced or truncated while in use: "
             "stop the VMs that use it", board->path);
        close(fd);
        fd = -1;
    }
    return fd;
}

bool idletime_slot_claim(IdletimeBoard *board, IdletimeSlot *slot,
                         const char *label, IdletimeError *err)
{
    int fd = slot_open(board, err);
    struct flock lock;
    uint32_t i;

    slot->fd = -1;
    if (fd < 0) {
        return false;
    }
    for (i = 0; i < IDLETIME_SLOTS; i++) {
        if (slot_lock(fd, board->kind, i, F_OFD_SETLK, &lock) == 0) {
            break;
        }
        if (errno != EAGAIN && errno != EACCES) {
            fail(err, "cannot lock a slot of arena board '%s': %s",
                 board->path, strerror(errno));
            close(fd);
            return false;
        }
    }
    if (i == IDLETIME_SLOTS) {
        fail(err, "arena board '%s' is full: all %d slots are taken; move "
             "some devices to another resource", board->path, IDLETIME_SLOTS);
    } else if (!slot_allocate(board, i, fd)) {
        fail(err, "no space for a slot on arena board '%s': %s",
             board->path, strerror(errno));
        i = IDLETIME_SLOTS;
    }
    if (i == IDLETIME_SLOTS) {
        close(fd);
        return false;
    }
    slot_clear(board, i, label);
    slot_publish(board, i);
    *slot = (IdletimeSlot) { .fd = fd, .index = i };
    return true;
}

void idletime_slot_release(IdletimeBoard *board, IdletimeSlot *slot)
{
    if (slot->fd >= 0) {
        slot_clear(board, slot->index, "");
        close(slot->fd);
        slot->fd = -1;
    }
}

void idletime_fg_attach(IdletimeFgWriter *w, IdletimeBoard *board,
                        const IdletimeSlot *slot)
{
    IdletimeFgBoard *fg = idletime_fg_board(board);

    *w = (IdletimeFgWriter) {
        .line = &fg->line[slot->index],
        .page = &fg->page[slot->index],
    };
}

void idletime_fg_move(IdletimeFgWriter *w, IdletimeBoard *board,
                      const IdletimeSlot *slot, int64_t now_ns)
{
    IdletimeFgWriter old = *w;

    idletime_fg_attach(w, board, slot);
    w->started = old.started;
    w->bytes = old.bytes;
    if (old.in_service) {
        /* Begin and end keep the order of stores that readers rely on. */
        w->started = old.started - 1;
        w->in_service = 0;
        idletime_fg_begin(w, now_ns, 0);
        w->in_service = old.in_service;
    }
}
