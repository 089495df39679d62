/*
 * Idletime arena: the files of an arena, made where absent and kept open.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/directory-impl.h"
#include "idletime/arena/generation.h"
#include <sys/stat.h>

const IdletimeKind idletime_kinds[] = {
    [IDLETIME_BOARD_FOREGROUND] = {
        "foreground", "foreground.lock", "foreground.alive",
        sizeof(IdletimeFgBoard), offsetof(IdletimeFgBoard, line),
        sizeof(IdletimeFgLine),
    },
    [IDLETIME_BOARD_BACKGROUND] = {
        "background", "background.lock", "background.alive",
        sizeof(IdletimeBgBoard), offsetof(IdletimeBgBoard, line),
        sizeof(IdletimeBgLine),
    },
};

/* ---- the place */

/* Absolute, by the directory that the process is in now; NULL with errno. */
static char *absolute_path(const char *path)
{
    char *here, *absolute;

    if (*path == '/') {
        return strdup(path);
    }
    if (!*path) {
        errno = ENOENT;
        return NULL;
    }
    here = getcwd(NULL, 0);
    if (!here || asprintf(&absolute, "%s/%s", here, path) < 0) {
        absolute = NULL;
    }
    free(here);
    return absolute;
}

/* As seen from the root directory: "" would be no name. */
static char *relative_to_root(const char *absolute)
{
    while (*absolute == '/') {
        absolute++;
    }
    return strdup(*absolute ? absolute : ".");
}

/* A link on the way would be followed from another root after chroot. */
static bool resolve_links(IdletimeArena *arena, const char *absolute,
                          IdletimeError *err)
{
    char *resolved = realpath(absolute, NULL);

    if (!resolved) {
        return idletime_fail(err, "cannot resolve the arena's path '%s': %s",
                             arena->path, strerror(errno));
    }
    free(arena->place);
    arena->place = relative_to_root(resolved);
    free(resolved);
    return arena->place || idletime_fail(err, "out of memory");
}

static bool find_place(IdletimeArena *arena, IdletimeError *err)
{
    char *absolute = absolute_path(arena->path);
    bool ok;

    if (!absolute) {
        return idletime_fail(err, "cannot create arena directory '%s': %s; "
                             "point 'path' to a directory", arena->path,
                             strerror(errno));
    }
    arena->place = relative_to_root(absolute);
    ok = arena->place ? idletime_make_directories(arena, err) :
                        idletime_fail(err, "out of memory");
    ok = ok && resolve_links(arena, absolute, err);
    free(absolute);
    return ok;
}

/* ---- opening */

/* For writing if this user may, else for reading. */
static IdletimeFile open_file(const IdletimeArena *arena, const char *file)
{
    /* Not blocking: a FIFO under that name must not hang us. */
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    IdletimeName name = idletime_name_of(arena, file);
    IdletimeFile opened = { 0 };

    opened.fd = openat(arena->root, name.text, flags | O_RDWR);
    if (opened.fd < 0) {
        opened.write_error = errno;
        opened.fd = openat(arena->root, name.text, flags | O_RDONLY);
    }
    return opened;
}

static void open_files(IdletimeArena *arena)
{
    for (int kind = IDLETIME_BOARD_FOREGROUND;
         kind <= IDLETIME_BOARD_BACKGROUND; kind++) {
        const IdletimeKind *k = &idletime_kinds[kind];

        arena->files[kind] = (IdletimeBoardFiles) {
            .board = open_file(arena, k->name),
            .lock = open_file(arena, k->lock),
            .alive = open_file(arena, k->alive),
        };
    }
}

static void close_file(const IdletimeFile *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
}

void idletime_arena_close(IdletimeArena *arena)
{
    if (!arena->path) {
        return;     /* never opened: its zeros are no descriptors */
    }
    for (int kind = IDLETIME_BOARD_FOREGROUND;
         kind <= IDLETIME_BOARD_BACKGROUND; kind++) {
        close_file(&arena->files[kind].board);
        close_file(&arena->files[kind].lock);
        close_file(&arena->files[kind].alive);
    }
    if (arena->root >= 0) {
        close(arena->root);
    }
    free(arena->base);
    free(arena->place);
    free(arena->path);
    *arena = (IdletimeArena) { 0 };
}

/* Nothing is open yet. */
static bool arena_init(IdletimeArena *arena, const char *path,
                       IdletimeError *err)
{
    const IdletimeFile none = { .fd = -1 };

    *arena = (IdletimeArena) { .path = strdup(path), .root = -1 };
    for (int kind = IDLETIME_BOARD_FOREGROUND;
         kind <= IDLETIME_BOARD_BACKGROUND; kind++) {
        arena->files[kind] = (IdletimeBoardFiles) { none, none, none, { 0 } };
    }
    return arena->path || idletime_fail(err, "out of memory");
}

static bool open_root(IdletimeArena *arena, IdletimeError *err)
{
    arena->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return arena->root >= 0 ||
           idletime_fail(err, "cannot open the root directory for arena '%s': "
                         "%s", arena->path, strerror(errno));
}

bool idletime_arena_open(IdletimeArena *arena, const char *path,
                         IdletimeError *err)
{
    if (!arena_init(arena, path, err) || !open_root(arena, err) ||
        !find_place(arena, err) || !idletime_generation_enter(arena, err) ||
        !idletime_create_boards(arena, err)) {
        idletime_arena_close(arena);
        return false;
    }
    open_files(arena);
    return true;
}

/* The same place under the same root. */
static bool same_place(IdletimeArena *arena, const IdletimeArena *lost,
                       IdletimeError *err)
{
    arena->root = fcntl(lost->root, F_DUPFD_CLOEXEC, 0);
    arena->base = strdup(lost->base);
    arena->place = strdup(lost->place);
    return (arena->root >= 0 && arena->base && arena->place) ||
           idletime_fail(err, "cannot look for arena '%s': %s", arena->path,
                         strerror(errno));
}

bool idletime_arena_reopen(IdletimeArena *arena, const IdletimeArena *lost,
                           IdletimeError *err)
{
    if (!arena_init(arena, lost->path, err) ||
        !same_place(arena, lost, err) || !idletime_create_boards(arena, err)) {
        idletime_arena_close(arena);
        return false;
    }
    open_files(arena);
    return true;
}

bool idletime_arena_has(const IdletimeArena *arena, const char *file,
                        uint64_t device, uint64_t inode)
{
    IdletimeName name = idletime_name_of(arena, file);
    struct stat st;

    if (fstatat(arena->root, name.text, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno != ENOENT && errno != ENOTDIR;
    }
    return st.st_dev == device && st.st_ino == inode;
}
