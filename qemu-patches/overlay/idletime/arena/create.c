/*
 * Idletime arena: make the files where absent.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/directory-impl.h"
#include <sys/stat.h>

/* Who wants to see what the foreground does may; virt-idletime does. */
#define BOARD_MODE 0644
/* Whoever may open it may lock it: the operator decides who takes part. */
#define LOCK_MODE 0600
#define DIRECTORY_MODE 0755

bool idletime_make_directories(const IdletimeArena *arena, IdletimeError *err)
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
    IdletimeName name = idletime_name_of(arena, file);
    int fd = openat(arena->root, name.text,
                    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, LOCK_MODE);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0 || errno == EEXIST;
}

/* A name that no other process takes; it is linked and removed at once. */
static int create_temporary(const IdletimeArena *arena, const char *file,
                            IdletimeName *name)
{
    struct timespec now;
    char temporary[64];

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(temporary, sizeof(temporary), "%s.%d.%lld%09ld", file,
             (int)getpid(), (long long)now.tv_sec, now.tv_nsec);
    *name = idletime_name_of(arena, temporary);
    return openat(arena->root, name->text,
                  O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, BOARD_MODE);
}

/* The board gets its name only when it is complete. */
static bool write_board(const IdletimeArena *arena, IdletimeBoardKind kind,
                        int fd, const char *temporary)
{
    IdletimeName name = idletime_name_of(arena, idletime_kinds[kind].name);

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
    IdletimeName temporary;
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

bool idletime_create_boards(const IdletimeArena *arena, IdletimeError *err)
{
    bool ok = true;

    for (int kind = IDLETIME_BOARD_FOREGROUND;
         ok && kind <= IDLETIME_BOARD_BACKGROUND; kind++) {
        IdletimeName name = idletime_name_of(arena, idletime_kinds[kind].name);
        struct stat st;

        ok = fstatat(arena->root, name.text, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
             (idletime_make_directories(arena, err) &&
              create_board(arena, kind, err));
    }
    return ok;
}
