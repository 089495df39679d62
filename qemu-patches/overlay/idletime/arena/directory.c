/*
 * Idletime arena: the files of an arena, made where absent and kept open.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/directory.h"
#include <sys/stat.h>

/* Who wants to see what the foreground does may; virt-idletime does. */
#define BOARD_MODE 0644
/* Whoever may open it may lock it: the operator decides who takes part. */
#define LOCK_MODE 0600
#define DIRECTORY_MODE 0755

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

/* ---- names */

/* The name of a file relative to the root; of a path that is too long: "". */
typedef struct Name {
    char text[PATH_MAX];
} Name;

static Name name_of(const IdletimeArena *arena, const char *file)
{
    Name name;

    if (snprintf(name.text, sizeof(name.text), "%s/%s", arena->place, file) >=
        (int)sizeof(name.text)) {
        name.text[0] = '\0';
    }
    return name;
}

/* ---- creation */

static bool make_directories(const IdletimeArena *arena, IdletimeError *err)
{
    char *copy = strdup(arena->place);
    bool ok = copy != NULL;

    for (char *p = copy; ok && p; ) {
        p = *p ? strchr(p + 1, '/') : NULL;
        if (p) {
            *p = '\0';
        }
        ok = mkdirat(arena->root, copy, DIRECTORY_MODE) == 0 ||
             errno == EEXIST || (p && errno == EROFS);
        if (p) {
            *p = '/';
        }
    }
    if (!ok) {
        idletime_fail(err, "cannot create arena directory '%s': %s; create "
                      "it, or point 'path' to a directory that this user may "
                      "write", arena->path, strerror(errno));
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
    errno = 0;
    return ftruncate(fd, idletime_kinds[kind].size) == 0 &&
           (errno = posix_fallocate(fd, 0, pages)) == 0 &&
           pwrite(fd, &header, sizeof(header), 0) == sizeof(header);
}

/* A lock file is empty, so it is complete at once. */
static bool create_lock(const IdletimeArena *arena, const char *file)
{
    Name name = name_of(arena, file);
    int fd = openat(arena->root, name.text,
                    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, LOCK_MODE);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0 || errno == EEXIST;
}

/* A name that no other process takes; it is linked and removed at once. */
static int create_temporary(const IdletimeArena *arena, const char *file,
                            Name *name)
{
    struct timespec now;
    char temporary[64];

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(temporary, sizeof(temporary), "%s.%d.%lld%09ld", file,
             (int)getpid(), (long long)now.tv_sec, now.tv_nsec);
    *name = name_of(arena, temporary);
    return openat(arena->root, name->text,
                  O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, BOARD_MODE);
}

/* The board gets its name only when it is complete. */
static bool write_board(const IdletimeArena *arena, IdletimeBoardKind kind,
                        int fd, const char *temporary)
{
    Name name = name_of(arena, idletime_kinds[kind].name);

    return write_header(fd, kind) && fchmod(fd, BOARD_MODE) == 0 &&
           (linkat(arena->root, temporary, arena->root, name.text, 0) == 0 ||
            errno == EEXIST);
}

/*
 * The lock files come first: a board that is there has them, or somebody
 * removed them.  They are not made for such a board: slots would have two
 * owners, one by each file.
 */
static bool create_board(const IdletimeArena *arena, IdletimeBoardKind kind,
                         IdletimeError *err)
{
    const IdletimeKind *k = &idletime_kinds[kind];
    Name temporary;
    int fd = -1;
    bool ok;

    if (create_lock(arena, k->lock) && create_lock(arena, k->alive)) {
        fd = create_temporary(arena, k->name, &temporary);
    }
    if (fd < 0) {
        return idletime_fail(err, "cannot create arena board '%s/%s': %s; "
                             "create the arena as a user who may write there, "
                             "or change 'path'", arena->path, k->name,
                             strerror(errno));
    }
    ok = write_board(arena, kind, fd, temporary.text);
    if (!ok) {
        idletime_fail(err, "cannot create arena board '%s/%s': %s; is its "
                      "filesystem full?", arena->path, k->name,
                      errno ? strerror(errno) : "short write");
    }
    unlinkat(arena->root, temporary.text, 0);
    close(fd);
    return ok;
}

static bool create_boards(const IdletimeArena *arena, IdletimeError *err)
{
    bool ok = true;

    for (int kind = IDLETIME_BOARD_FOREGROUND;
         ok && kind <= IDLETIME_BOARD_BACKGROUND; kind++) {
        Name name = name_of(arena, idletime_kinds[kind].name);
        struct stat st;

        ok = fstatat(arena->root, name.text, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
             (make_directories(arena, err) && create_board(arena, kind, err));
    }
    return ok;
}

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
    ok = arena->place ? make_directories(arena, err) :
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
    Name name = name_of(arena, file);
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
        !find_place(arena, err) || !create_boards(arena, err)) {
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
    arena->place = strdup(lost->place);
    return (arena->root >= 0 && arena->place) ||
           idletime_fail(err, "cannot look for arena '%s': %s", arena->path,
                         strerror(errno));
}

bool idletime_arena_reopen(IdletimeArena *arena, const IdletimeArena *lost,
                           IdletimeError *err)
{
    if (!arena_init(arena, lost->path, err) ||
        !same_place(arena, lost, err) || !create_boards(arena, err)) {
        idletime_arena_close(arena);
        return false;
    }
    open_files(arena);
    return true;
}

bool idletime_arena_has(const IdletimeArena *arena, const char *file,
                        uint64_t device, uint64_t inode)
{
    Name name = name_of(arena, file);
    struct stat st;

    if (fstatat(arena->root, name.text, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno != ENOENT && errno != ENOTDIR;
    }
    return st.st_dev == device && st.st_ino == inode;
}
