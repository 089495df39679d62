/*
 * Idletime arena: who owns which slot, and who lives.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/slot.h"

/* ---- locks */

/* A slot is the byte of its number, in either file. */
static struct flock lock_of(uint32_t index, short type)
{
    return (struct flock) {
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = index,
        .l_len = 1,
    };
}

static int set_lock(const IdletimeFile *file, uint32_t index, short type)
{
    struct flock lock = lock_of(index, type);

    return fcntl(file->fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

static void slot_unlock(const IdletimeBoardFiles *files, uint32_t index)
{
    set_lock(&files->alive, index, F_UNLCK);
    set_lock(&files->lock, index, F_UNLCK);
}

/* Returns 0, or the errno of what is in the way. */
static int slot_lock(const IdletimeBoardFiles *files, uint32_t index)
{
    int error = set_lock(&files->lock, index, F_WRLCK);

    if (!error) {
        error = set_lock(&files->alive, index, F_RDLCK);
        if (error) {
            set_lock(&files->lock, index, F_UNLCK);
        }
    }
    return error;
}

/* ---- slots of this process */

static uint64_t bit_of(uint32_t index)
{
    return 1ULL << index % 64;
}

static bool is_own(const IdletimeBoardFiles *files, uint32_t index)
{
    return __atomic_load_n(&files->own[index / 64], __ATOMIC_ACQUIRE) &
           bit_of(index);
}

/* Returns false if another thread or device of this process has it. */
static bool own(IdletimeBoardFiles *files, uint32_t index)
{
    return !(__atomic_fetch_or(&files->own[index / 64], bit_of(index),
                               __ATOMIC_ACQ_REL) & bit_of(index));
}

static void disown(IdletimeBoardFiles *files, uint32_t index)
{
    __atomic_fetch_and(&files->own[index / 64], ~bit_of(index),
                       __ATOMIC_ACQ_REL);
}

bool idletime_slot_alive(const IdletimeBoard *board, uint32_t index)
{
    const IdletimeBoardFiles *files;
    struct flock lock;

    if (index >= IDLETIME_SLOTS) {
        return false;
    }
    files = idletime_board_files(board);
    lock = lock_of(index, F_WRLCK);
    return is_own(files, index) ||
           fcntl(files->alive.fd, F_OFD_GETLK, &lock) != 0 ||
           lock.l_type != F_UNLCK;
}

/* ---- content */

/*
 * Memory of its own now, so that a full filesystem is an error here and not
 * a signal later.  Returns 0 or an errno.
 */
static int slot_allocate(const IdletimeBoard *board, uint32_t index)
{
    const IdletimeKind *k = &idletime_kinds[board->kind];
    int fd = idletime_board_files(board)->board.fd;
    int err = posix_fallocate(fd, k->line_offset + index * k->line_size,
                              k->line_size);

    if (!err && board->kind == IDLETIME_BOARD_FOREGROUND) {
        err = posix_fallocate(fd, offsetof(IdletimeFgBoard, page[index]),
                              sizeof(IdletimeFgPage));
    }
    /* A filesystem that knows no such thing allocates at the first store. */
    return err == EOPNOTSUPP || err == EINVAL ? 0 : err;
}

/*
 * Tokens of the slot's last owner, who was killed: with the new owner's life
 * they would be respected for a whole lease.
 */
static void drop_tokens(IdletimeBgBoard *bg, uint32_t index)
{
    for (uint32_t i = 0; i < IDLETIME_TOKENS; i++) {
        IdletimeToken value = __atomic_load_n(&bg->token[i], __ATOMIC_RELAXED);

        if (value && (value >> IDLETIME_TOKEN_SHIFT) == index + 1) {
            __atomic_compare_exchange_n(&bg->token[i], &value, 0, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        }
    }
}

static void slot_clear(const IdletimeBoard *board, uint32_t index,
                       const char *label)
{
    IdletimeFgBoard *fg;

    if (board->kind == IDLETIME_BOARD_BACKGROUND) {
        memset(&idletime_bg_board(board)->line[index], 0,
               sizeof(IdletimeBgLine));
        drop_tokens(idletime_bg_board(board), index);
        return;
    }
    fg = idletime_fg_board(board);
    memset(&fg->line[index], 0, sizeof(fg->line[index]));
    memset(&fg->page[index], 0, sizeof(fg->page[index]));
    fg->line[index].last_ns = INT64_MIN;
    fg->line[index].pid = getpid();
    snprintf(fg->page[index].label, IDLETIME_LABEL_BYTES, "%s", label);
}

/* Of a number that cannot be nobody knows what it was: all are looked at. */
static void slot_publish(const IdletimeBoard *board, uint32_t index)
{
    uint32_t *high = &((IdletimeBoardHeader *)board->map)->slots_high;
    uint32_t seen = __atomic_load_n(high, __ATOMIC_RELAXED);

    while ((seen <= index || seen > IDLETIME_SLOTS) &&
           !__atomic_compare_exchange_n(high, &seen, seen > IDLETIME_SLOTS ?
                                        IDLETIME_SLOTS : index + 1, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        /* seen is the new value now */
    }
}

void idletime_slot_show(const IdletimeBoard *board, const IdletimeSlot *slot)
{
    if (slot->claimed && board->writable) {
        slot_publish(board, slot->index);
    }
}

/* ---- claims */

static bool check_claim(const IdletimeBoard *board, IdletimeError *err)
{
    if (!board->writable) {
        return idletime_fail(err, "arena board '%s' is mapped for reading: no "
                             "slot can be claimed on it", board->path);
    }
    /* Those who come later would have the same slot on another board. */
    return idletime_board_intact(board, true) ||
           idletime_fail(err, "arena board '%s' was removed, replaced or "
                         "truncated while in use: stop the VMs that use it",
                         board->path);
}

/* The first that nobody owns; IDLETIME_SLOTS with @err set if there is none. */
static uint32_t take_first(const IdletimeBoard *board, IdletimeError *err)
{
    IdletimeBoardFiles *files = idletime_board_files(board);
    int error = 0;

    for (uint32_t i = 0; i < IDLETIME_SLOTS; i++) {
        if (!own(files, i)) {
            continue;
        }
        error = slot_lock(files, i);
        if (!error) {
            return i;
        }
        disown(files, i);
        if (error != EAGAIN && error != EACCES) {
            idletime_fail(err, "cannot lock a slot of arena board '%s': %s",
                          board->path, strerror(error));
            return IDLETIME_SLOTS;
        }
    }
    idletime_fail(err, "arena board '%s' is full: all %d slots are taken; "
                  "move some devices to another resource", board->path,
                  IDLETIME_SLOTS);
    return IDLETIME_SLOTS;
}

static void give_back(const IdletimeBoard *board, uint32_t index)
{
    IdletimeBoardFiles *files = idletime_board_files(board);

    /* Unlocked first: who owns the bit owns the lock. */
    slot_unlock(files, index);
    disown(files, index);
}

bool idletime_slot_claim(IdletimeBoard *board, IdletimeSlot *slot,
                         const char *label, IdletimeError *err)
{
    uint32_t i;
    int error;

    *slot = (IdletimeSlot) { .claimed = false };
    if (!check_claim(board, err)) {
        return false;
    }
    i = take_first(board, err);
    if (i == IDLETIME_SLOTS) {
        return false;
    }
    error = slot_allocate(board, i);
    if (error) {
        give_back(board, i);
        return idletime_fail(err, "no space for a slot on arena board '%s': "
                             "%s", board->path, strerror(error));
    }
    slot_clear(board, i, label);
    slot_publish(board, i);
    *slot = (IdletimeSlot) { .claimed = true, .index = i };
    return true;
}

void idletime_slot_release(IdletimeBoard *board, IdletimeSlot *slot)
{
    if (slot->claimed) {
        slot_clear(board, slot->index, "");
        give_back(board, slot->index);
        slot->claimed = false;
    }
}
