/*
 * Idletime arena: a board, mapped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/board.h"
#include "idletime/arena/guard.h"
#include <sys/mman.h>
#include <sys/stat.h>

/* ---- opening */

static bool check_rights(const IdletimeBoard *board, IdletimeError *err)
{
    const IdletimeFile *file = &idletime_board_files(board)->board;

    if (file->fd >= 0 && !(board->writable && file->write_error)) {
        return true;
    }
    return idletime_fail(err, "cannot open arena board '%s' for %s: %s",
                         board->path, board->writable ? "writing" : "reading",
                         strerror(file->write_error));
}

static bool check_file(IdletimeBoard *board, IdletimeError *err)
{
    struct stat st;

    if (fstat(idletime_board_files(board)->board.fd, &st) != 0 ||
        !S_ISREG(st.st_mode)) {
        return idletime_fail(err, "arena board '%s' is not a regular file; "
                             "remove it", board->path);
    }
    if ((uint64_t)st.st_size != board->size) {
        return idletime_fail(err, "arena board '%s' has %lld bytes, must have "
                             "%zu: it is truncated or of another version; stop "
                             "the VMs that use it and remove the arena "
                             "directory", board->path, (long long)st.st_size,
                             board->size);
    }
    board->inode = st.st_ino;
    board->device = st.st_dev;
    return true;
}

static bool check_header(const IdletimeBoard *board,
                         const IdletimeBoardHeader *h, IdletimeError *err)
{
    if (h->magic != IDLETIME_ARENA_MAGIC) {
        return idletime_fail(err, "'%s' is not an idletime board (bad magic); "
                             "choose another 'path', or remove the file if it "
                             "is damaged", board->path);
    }
    if (h->abi != IDLETIME_ARENA_ABI) {
        return idletime_fail(err, "arena board '%s' has version %" PRIu32
                             ", this QEMU speaks version %d: use one version "
                             "for all VMs of a resource", board->path, h->abi,
                             IDLETIME_ARENA_ABI);
    }
    if (h->kind != board->kind || h->slots != IDLETIME_SLOTS ||
        h->size_bytes != board->size) {
        return idletime_fail(err, "the header of arena board '%s' is damaged: "
                             "stop the VMs that use it and remove the arena "
                             "directory", board->path);
    }
    return true;
}

static bool read_header(const IdletimeBoard *board, IdletimeError *err)
{
    IdletimeBoardHeader header;

    if (pread(idletime_board_files(board)->board.fd, &header, sizeof(header),
              0) != sizeof(header)) {
        return idletime_fail(err, "cannot read arena board '%s': %s",
                             board->path, strerror(errno));
    }
    return check_header(board, &header, err);
}

static bool check_lock(const IdletimeBoard *board, const char *name,
                       const IdletimeFile *file, bool writable,
                       IdletimeError *err)
{
    if (file->fd >= 0 && !(writable && file->write_error)) {
        return true;
    }
    if (file->write_error == ENOENT) {
        return idletime_fail(err, "arena board '%s' has no file '%s' beside "
                             "it: stop the VMs that use it and remove the "
                             "arena directory", board->path, name);
    }
    return idletime_fail(err, "cannot open '%s/%s' for %s: %s; give this user "
                         "the same rights as on board '%s'",
                         board->arena->path, name,
                         writable ? "writing" : "reading",
                         strerror(file->write_error),
                         idletime_kinds[board->kind].name);
}

/* Who writes the board claims slots; who reads it asks who lives. */
static bool check_locks(const IdletimeBoard *board, IdletimeError *err)
{
    const IdletimeBoardFiles *files = idletime_board_files(board);
    const IdletimeKind *k = &idletime_kinds[board->kind];

    return check_lock(board, k->alive, &files->alive, false, err) &&
           (!board->writable ||
            check_lock(board, k->lock, &files->lock, true, err));
}

static bool map_board(IdletimeBoard *board, IdletimeError *err)
{
    int prot = PROT_READ | (board->writable ? PROT_WRITE : 0);

    board->map = mmap(NULL, board->size, prot, MAP_SHARED,
                      idletime_board_files(board)->board.fd, 0);
    if (board->map == MAP_FAILED) {
        board->map = NULL;
        return idletime_fail(err, "cannot map arena board '%s': %s",
                             board->path, strerror(errno));
    }
    board->guard = idletime_guard_add(board->map, board->size);
    if (board->guard < 0) {
        return idletime_fail(err, "more than %d arena boards in one process",
                             IDLETIME_GUARDS);
    }
    return true;
}

bool idletime_board_open(IdletimeBoard *board, IdletimeArena *arena,
                         IdletimeBoardKind kind, bool writable,
                         IdletimeError *err)
{
    *board = (IdletimeBoard) {
        .arena = arena,
        .kind = kind,
        .writable = writable,
        .size = idletime_kinds[kind].size,
        .guard = -1,
    };
    if (asprintf(&board->path, "%s/%s", arena->path,
                 idletime_kinds[kind].name) < 0) {
        board->path = NULL;
        return idletime_fail(err, "out of memory");
    }
    if (!check_rights(board, err) || !check_file(board, err) ||
        !read_header(board, err) || !check_locks(board, err) ||
        !map_board(board, err)) {
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
    free(board->path);
    *board = (IdletimeBoard) { .guard = -1 };
}

/* ---- is it still the one? */

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

/* A file without a name is one that those who come later do not find. */
static bool has_name(const IdletimeFile *file, struct stat *st)
{
    return fstat(file->fd, st) == 0 && st->st_nlink > 0;
}

bool idletime_board_intact(const IdletimeBoard *board, bool deep)
{
    const IdletimeBoardFiles *files;
    struct stat st, unused;

    if (!board->map || !header_intact(header_of(board))) {
        return false;
    }
    if (!deep) {
        return true;
    }
    files = idletime_board_files(board);
    return has_name(&files->board, &st) &&
           (uint64_t)st.st_size == board->size &&
           has_name(&files->alive, &unused) &&
           (!board->writable || has_name(&files->lock, &unused)) &&
           idletime_arena_has(board->arena, idletime_kinds[board->kind].name,
                              board->device, board->inode);
}
