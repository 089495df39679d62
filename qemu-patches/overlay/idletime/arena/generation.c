/*
 * Idletime arena: generations, where builds of different layouts share a path.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/directory-impl.h"
#include "idletime/arena/generation.h"
#include <dirent.h>

/* It has the path itself, as it had before there were others. */
#define FIRST_GENERATION    3
#define DIRECTORY_PREFIX    "abi-"

static const int open_flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

/* ---- what is there */

static IdletimeName name_in(const IdletimeArena *arena, const char *directory,
                            const char *file)
{
    IdletimeName name;

    if (snprintf(name.text, sizeof(name.text), "%s%s%s/%s", arena->base,
                 *directory ? "/" : "", directory, file) >=
        (int)sizeof(name.text)) {
        name.text[0] = '\0';
    }
    return name;
}

/* Of the boards in @directory below the base; 0: there are none. */
static uint32_t version_in(const IdletimeArena *arena, const char *directory)
{
    IdletimeName name = name_in(arena, directory, "foreground");
    int fd = openat(arena->root, name.text, open_flags);
    IdletimeBoardHeader header = { 0 };
    bool ok;

    if (fd < 0) {
        return 0;
    }
    ok = pread(fd, &header, offsetof(IdletimeBoardHeader, kind), 0) ==
             offsetof(IdletimeBoardHeader, kind) &&
         header.magic == IDLETIME_ARENA_MAGIC;
    close(fd);
    return ok ? header.abi : 0;
}

/* True also where one may not ask: others are seen rather than overlooked. */
static bool lives_by(const IdletimeArena *arena, const char *directory,
                     const char *file)
{
    IdletimeName name = name_in(arena, directory, file);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int fd = openat(arena->root, name.text, open_flags);
    bool locked;

    if (fd < 0) {
        return errno != ENOENT;
    }
    locked = fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
    close(fd);
    return locked;
}

static bool lives(const IdletimeArena *arena, const char *directory)
{
    return lives_by(arena, directory, "foreground.alive") ||
           lives_by(arena, directory, "background.alive");
}

/* ---- our own */

static bool append(char **path, const char *directory)
{
    char *longer;

    if (asprintf(&longer, "%s/%s", *path, directory) < 0) {
        return false;
    }
    free(*path);
    *path = longer;
    return true;
}

/*
 * The first generation gives way to boards of another version that are in its
 * place, made by a build that knew no generations; and stays beside them.
 */
static bool has_directory(const IdletimeArena *arena, const char *directory)
{
    uint32_t there = version_in(arena, "");

    return IDLETIME_ARENA_ABI != FIRST_GENERATION ||
           version_in(arena, directory) == IDLETIME_ARENA_ABI ||
           (there && there != IDLETIME_ARENA_ABI);
}

bool idletime_generation_enter(IdletimeArena *arena, IdletimeError *err)
{
    char directory[32];

    snprintf(directory, sizeof(directory), DIRECTORY_PREFIX "%d",
             IDLETIME_ARENA_ABI);
    arena->base = strdup(arena->place);
    if (!arena->base ||
        (has_directory(arena, directory) &&
         (!append(&arena->place, directory) ||
          !append(&arena->path, directory)))) {
        return idletime_fail(err, "out of memory");
    }
    return true;
}

/* ---- others */

static int by_version(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* @directory: "" is the base */
static void look_at(const IdletimeArena *arena, const char *directory,
                    uint32_t abi[IDLETIME_GENERATIONS], unsigned *n)
{
    uint32_t version = version_in(arena, directory);

    for (unsigned i = 0; i < *n; i++) {
        if (abi[i] == version) {
            return;
        }
    }
    if (version && version != IDLETIME_ARENA_ABI &&
        *n < IDLETIME_GENERATIONS && lives(arena, directory)) {
        abi[(*n)++] = version;
    }
}

unsigned idletime_generation_others(const IdletimeArena *arena,
                                    uint32_t abi[IDLETIME_GENERATIONS])
{
    int fd = openat(arena->root, arena->base,
                    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    unsigned n = 0;

    if (!dir) {
        if (fd >= 0) {
            close(fd);
        }
        return 0;
    }
    look_at(arena, "", abi, &n);
    while ((entry = readdir(dir))) {
        if (strncmp(entry->d_name, DIRECTORY_PREFIX,
                    strlen(DIRECTORY_PREFIX)) == 0) {
            look_at(arena, entry->d_name, abi, &n);
        }
    }
    closedir(dir);
    qsort(abi, n, sizeof(*abi), by_version);
    return n;
}
