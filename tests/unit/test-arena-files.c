/*
 * Arena: creating and opening, with every kind of wrong file.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include <sys/stat.h>

#define CREATORS 8

static void write_at(const Arena *arena, const char *name, off_t at,
                     const void *data, size_t size)
{
    g_autofree char *path = arena_file(arena, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(pwrite(fd, data, size, at), ==, size);
    close(fd);
}

static void resize(const Arena *arena, const char *name, off_t size)
{
    g_autofree char *path = arena_file(arena, name);

    g_assert_cmpint(truncate(path, size), ==, 0);
}

/* Both boards refuse in words that contain all of @part. */
static void assert_refused(const Arena *arena, IdletimeBoardKind kind,
                           bool writable, const char *const *part)
{
    IdletimeArena open = must_enter(arena);
    IdletimeError err = { "" };
    IdletimeBoard board;

    g_assert_false(idletime_board_open(&board, &open, kind, writable, &err));
    for (; *part; part++) {
        if (!strstr(err.text, *part)) {
            g_error("'%s' is not in '%s'", *part, err.text);
        }
    }
    /* Closing what never opened is harmless, twice too. */
    idletime_board_close(&board);
    idletime_board_close(&board);
    idletime_arena_close(&open);
    idletime_arena_close(&open);
}

#define refused(arena, kind, ...) \
    assert_refused(arena, IDLETIME_BOARD_ ## kind, true, \
                   (const char *const []) { (arena)->dir, __VA_ARGS__, NULL })

static int create_when_told(ChildEnd *end, void *data)
{
    const Arena *arena = data;
    IdletimeError err;
    IdletimeArena open;
    IdletimeBoard board;

    end_hear(end);
    return idletime_arena_open(&open, arena->dir, &err) &&
           idletime_board_open(&board, &open, IDLETIME_BOARD_BACKGROUND, true,
                               &err) ? 0 : 1;
}

static void test_create_at_once(void)
{
    Arena arena = arena_directory_only();
    Child child[CREATORS];
    g_autoptr(GDir) dir = NULL;
    int files = 0;

    for (int i = 0; i < CREATORS; i++) {
        child[i] = child_start(create_when_told, &arena);
    }
    for (int i = 0; i < CREATORS; i++) {
        child_tell(&child[i], 'g');
    }
    for (int i = 0; i < CREATORS; i++) {
        g_assert_cmpint(child_exit_status(&child[i]), ==, 0);
    }
    dir = g_dir_open(arena.dir, 0, NULL);
    while (g_dir_read_name(dir)) {
        files++;
    }
    /* The two boards, two lock files each, and no temporary file. */
    g_assert_cmpint(files, ==, 6);
    arena_remove(&arena);
}

static void test_sizes(void)
{
    Arena arena = arena_new();
    struct stat st;
    off_t sum = 0;

    for (int i = 0; i < 2; i++) {
        g_autofree char *path = arena_file(&arena, i ? "foreground" :
                                                       "background");

        g_assert_cmpint(stat(path, &st), ==, 0);
        g_assert_cmpint(st.st_mode & 0777, ==, 0644);
        sum += st.st_size;
    }
    /* 4096 + 1024 * (64 + 4096) = 4263936, 2 * 4096 + 1024 * 64 = 73728. */
    g_assert_cmpint(sum, ==, 4263936 + 73728);
    g_assert_cmpint(sum, <=, 8 << 20);
    arena_remove(&arena);
}

static void test_version(void)
{
    Arena arena = arena_new();
    uint32_t abi = 7;

    write_at(&arena, "background", offsetof(IdletimeBoardHeader, abi), &abi,
             sizeof(abi));
    refused(&arena, BACKGROUND, "version 7", "version 3");
    arena_remove(&arena);
}

static void test_magic_and_kind(void)
{
    Arena arena = arena_new();
    g_autofree char *fg = arena_file(&arena, "foreground");
    g_autofree char *bg = arena_file(&arena, "background");

    write_at(&arena, "background", 0, "!", 1);
    refused(&arena, BACKGROUND, "not an idletime board", "magic");
    /* One board under the other's name, of the right size. */
    g_assert_cmpint(rename(fg, bg), ==, 0);
    refused(&arena, BACKGROUND, "bytes");
    resize(&arena, "background", sizeof(IdletimeBgBoard));
    refused(&arena, BACKGROUND, "damaged");
    arena_remove(&arena);
}

static void test_truncated_and_empty(void)
{
    Arena arena = arena_new();

    resize(&arena, "foreground", 5000);
    refused(&arena, FOREGROUND, "5000 bytes", "4263936");
    resize(&arena, "foreground", 0);
    refused(&arena, FOREGROUND, "0 bytes");
    resize(&arena, "foreground", 4263937);
    refused(&arena, FOREGROUND, "4263937 bytes");
    arena_remove(&arena);
}

/* Each byte of the header with each bit flipped: refused, or a field that
 * may have any value (slots_high, clock). */
static void test_header_fuzz(void)
{
    Arena arena = arena_new();
    g_autofree char *path = arena_file(&arena, "background");
    size_t free_from = offsetof(IdletimeBoardHeader, clock);
    size_t high = offsetof(IdletimeBoardHeader, slots_high);

    for (size_t at = 0; at < sizeof(IdletimeBoardHeader) * 8; at++) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        IdletimeArena open = must_enter(&arena);
        IdletimeBoard board;
        IdletimeError err;
        uint8_t byte, wrong;
        bool ok;

        g_assert_cmpint(pread(fd, &byte, 1, at / 8), ==, 1);
        wrong = byte ^ 1 << at % 8;
        g_assert_cmpint(pwrite(fd, &wrong, 1, at / 8), ==, 1);
        ok = idletime_board_open(&board, &open, IDLETIME_BOARD_BACKGROUND,
                                 true, &err);
        g_assert_cmpint(ok, ==, at / 8 >= free_from ||
                                at / 8 - high < sizeof(uint32_t));
        idletime_board_close(&board);
        idletime_arena_close(&open);
        g_assert_cmpint(pwrite(fd, &byte, 1, at / 8), ==, 1);
        close(fd);
    }
    arena_remove(&arena);
}

static void replace(const Arena *arena, const char *name, int how)
{
    g_autofree char *path = arena_file(arena, name);

    g_assert_cmpint(unlink(path), ==, 0);
    g_assert_cmpint(how == 'd' ? mkdir(path, 0755) :
                    how == 'f' ? mkfifo(path, 0644) :
                    symlink("/dev/zero", path), ==, 0);
}

static void test_not_a_file(void)
{
    static const char *const nothing[] = { NULL };

    for (const char *how = "dfs"; *how; how++) {
        Arena arena = arena_new();

        replace(&arena, "foreground", *how);
        /* A reader must not hang on a FIFO either. */
        assert_refused(&arena, IDLETIME_BOARD_FOREGROUND, false, nothing);
        assert_refused(&arena, IDLETIME_BOARD_FOREGROUND, true, nothing);
        arena_remove(&arena);
    }
}

static void test_bad_directories(void)
{
    Arena arena = arena_directory_only();
    IdletimeError err = { "" };
    IdletimeArena open;
    g_autofree char *file = g_build_filename(arena.root, "file", NULL);
    g_autofree char *below = g_build_filename(file, "arena", NULL);
    g_autofree char *deep = g_build_filename(arena.root, "a/b/c/", NULL);

    g_assert_true(g_file_set_contents(file, "x", 1, NULL));
    g_assert_false(idletime_arena_open(&open, below, &err));
    g_assert_nonnull(strstr(err.text, below));
    g_assert_false(idletime_arena_open(&open, file, &err));
    g_assert_true(idletime_arena_open(&open, deep, &err));
    idletime_arena_close(&open);
    g_assert_false(idletime_arena_open(&open, "", &err));
    g_assert_nonnull(strstr(err.text, "''"));
    arena_remove(&arena);
}

static int create_as_nobody(ChildEnd *end, void *data)
{
    const Arena *arena = data;
    IdletimeError err = { "" };
    IdletimeArena open;

    (void)end;
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) {
        return 2;
    }
    return idletime_arena_open(&open, arena->dir, &err) ? 3 :
           strstr(err.text, "Permission denied") && strstr(err.text, "path") ?
           0 : 4;
}

static void test_no_permission(void)
{
    Arena arena = arena_directory_only();
    Child child;

    g_assert_cmpint(chmod(arena.root, geteuid() ? 0555 : 0755), ==, 0);
    child = child_start(create_as_nobody, &arena);
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    g_assert_cmpint(chmod(arena.root, 0755), ==, 0);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/files/create-at-once", test_create_at_once);
    g_test_add_func("/files/sizes", test_sizes);
    g_test_add_func("/files/version", test_version);
    g_test_add_func("/files/magic-and-kind", test_magic_and_kind);
    g_test_add_func("/files/truncated-and-empty", test_truncated_and_empty);
    g_test_add_func("/files/header-fuzz", test_header_fuzz);
    g_test_add_func("/files/not-a-file", test_not_a_file);
    g_test_add_func("/files/bad-directories", test_bad_directories);
    g_test_add_func("/files/no-permission", test_no_permission);
    return g_test_run();
}
