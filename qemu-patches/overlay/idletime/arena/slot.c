/*
 * Idletime arena: who owns which slot.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A slot is owned by holding an open-file-description lock on the first byte
 * of its line.  The kernel drops the lock when the process dies, however it
 * dies, so that nobody has to clean up and nobody has to guess.
 */
#include "qemu/osdep.h"
#include <sys/stat.h>
#include "idletime/arena/board-impl.h"

static size_t line_offset(IdletimeBoardKind kind, uint32_t index)
{
    return idletime_kinds[kind].line_offset +
           index * idletime_kinds[kind].line_size;
}

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
                              idletime_kinds[board->kind].line_size);

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
    w->request_ns = old.request_ns;
    w->last_ns = now_ns;
    if (old.in_service) {
        /* Begin and end keep the order of stores that readers rely on. */
        w->started = old.started - 1;
        w->in_service = 0;
        idletime_fg_begin(w, now_ns, 0);
        w->in_service = old.in_service;
    }
}
