/*
 * Arena: builds with different layouts share a path.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/arena/generation.h"

#define OTHER   7

/* What another build leaves at @directory of the arena's path: "" is itself. */
static void write_other(const Arena *arena, const char *directory, uint32_t abi)
{
    const IdletimeBoardHeader header = {
        .magic = IDLETIME_ARENA_MAGIC, .abi = abi,
    };
    g_autofree char *path = g_build_filename(arena->dir, directory, NULL);
    g_autofree char *board = g_build_filename(path, "foreground", NULL);

    g_assert_cmpint(g_mkdir_with_parents(path, 0755), ==, 0);
    g_assert_true(g_file_set_contents(board, (const char *)&header,
                                      sizeof(header), NULL));
}

/* A participant of it, of which the kernel knows by its lock. */
static int live(const Arena *arena, const char *directory, const char *alive)
{
    struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET,
                          .l_start = 5, .l_len = 1 };
    g_autofree char *path = g_build_filename(arena->dir, directory, alive,
                                             NULL);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(fcntl(fd, F_OFD_SETLK, &lock), ==, 0);
    return fd;
}

static unsigned others(const Arena *arena, uint32_t *abi)
{
    IdletimeArena open = must_enter(arena);
    unsigned n = idletime_generation_others(&open, abi);

    idletime_arena_close(&open);
    return n;
}

static void assert_place(const Arena *arena, const char *directory)
{
    IdletimeArena open = must_enter(arena);
    g_autofree char *place = g_build_filename(arena->dir, directory, NULL);
    g_autofree char *board = g_build_filename(place, "background", NULL);

    g_assert_cmpstr(open.path, ==, place);
    g_assert_true(g_file_test(board, G_FILE_TEST_EXISTS));
    idletime_arena_close(&open);
}

static void test_alone(void)
{
    Arena arena = arena_directory_only();
    uint32_t abi[IDLETIME_GENERATIONS];

    assert_place(&arena, "");
    g_assert_cmpint(others(&arena, abi), ==, 0);
    arena_remove(&arena);
}

/* Another build is where we would be: both go on, each with its own. */
static void test_beside(void)
{
    Arena arena = arena_directory_only();
    uint32_t abi[IDLETIME_GENERATIONS];
    g_autofree char *board = arena_file(&arena, "foreground");
    int fd;

    write_other(&arena, "", OTHER);
    assert_place(&arena, "abi-3");
    /* Nobody lives there. */
    g_assert_cmpint(others(&arena, abi), ==, 0);
    fd = live(&arena, "", "background.alive");
    g_assert_cmpint(others(&arena, abi), ==, 1);
    g_assert_cmpint(abi[0], ==, OTHER);
    close(fd);
    g_assert_cmpint(others(&arena, abi), ==, 0);
    /* Those that come later find us, also when the other one has gone. */
    g_assert_cmpint(unlink(board), ==, 0);
    assert_place(&arena, "abi-3");
    arena_remove(&arena);
}

/* Later builds have directories of their own, in any number. */
static void test_later(void)
{
    Arena arena = arena_directory_only();
    uint32_t abi[IDLETIME_GENERATIONS];
    int fd[3];

    assert_place(&arena, "");
    write_other(&arena, "abi-9", 9);
    write_other(&arena, "abi-4", 4);
    write_other(&arena, "abi-5", 5);
    fd[0] = live(&arena, "abi-9", "foreground.alive");
    fd[1] = live(&arena, "abi-4", "background.alive");
    /* Our own participants are not others. */
    fd[2] = live(&arena, "", "foreground.alive");
    g_assert_cmpint(others(&arena, abi), ==, 2);
    g_assert_cmpint(abi[0], ==, 4);
    g_assert_cmpint(abi[1], ==, 9);
    for (int i = 0; i < 3; i++) {
        close(fd[i]);
    }
    assert_place(&arena, "");
    arena_remove(&arena);
}

/* What is no board of ours, and no other's, is an error as before. */
static void test_garbage(void)
{
    Arena arena = arena_directory_only();
    g_autofree char *board = arena_file(&arena, "foreground");
    IdletimeArena open;
    IdletimeBoard fg;
    IdletimeError err = { "" };

    g_assert_cmpint(g_mkdir_with_parents(arena.dir, 0755), ==, 0);
    g_assert_true(g_file_set_contents(board, "garbage", -1, NULL));
    open = must_enter(&arena);
    g_assert_false(idletime_board_open(&fg, &open, IDLETIME_BOARD_FOREGROUND,
                                       false, &err));
    g_assert_nonnull(strstr(err.text, board));
    idletime_arena_close(&open);
    arena_remove(&arena);
}

/* No board's begin, or too little of it: no generation, so no reason to go. */
static void test_no_board(void)
{
    const IdletimeBoardHeader header = {
        .magic = IDLETIME_ARENA_MAGIC + 1, .abi = OTHER,
    };
    const uint64_t magic = IDLETIME_ARENA_MAGIC;
    const struct { const void *bytes; size_t size; } is[] = {
        { &header, sizeof(header) }, { &magic, sizeof(magic) },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(is); i++) {
        Arena arena = arena_directory_only();
        g_autofree char *board = arena_file(&arena, "foreground");

        g_assert_cmpint(g_mkdir_with_parents(arena.dir, 0755), ==, 0);
        g_assert_true(g_file_set_contents(board, is[i].bytes, is[i].size,
                                          NULL));
        assert_place(&arena, "");
        arena_remove(&arena);
    }
}

/* It was lost, and is looked for: in the same place. */
static void test_reopen(void)
{
    Arena arena = arena_directory_only();
    IdletimeArena lost, found;
    IdletimeError err = { "" };

    write_other(&arena, "", OTHER);
    lost = must_enter(&arena);
    g_assert_true(idletime_arena_reopen(&found, &lost, &err));
    g_assert_cmpstr(found.place, ==, lost.place);
    g_assert_cmpstr(found.base, ==, lost.base);
    idletime_arena_close(&found);
    idletime_arena_close(&lost);
    arena_remove(&arena);
}

/* A lock that one may not ask for: others are seen rather than overlooked. */
static int ask_as_nobody(ChildEnd *end, void *data)
{
    uint32_t abi[IDLETIME_GENERATIONS];

    (void)end;
    if (!become(NOBODY, NOBODY)) {
        return 1;
    }
    return idletime_generation_others(data, abi) == 1 && abi[0] == OTHER ?
           0 : 2;
}

static void test_may_not_ask(void)
{
    Arena arena = arena_directory_only();
    uint32_t abi[IDLETIME_GENERATIONS];
    IdletimeArena open;
    Child child;

    if (is_root()) {
        write_other(&arena, "", OTHER);
        close(live(&arena, "", "foreground.alive"));
        open = must_enter(&arena);
        g_assert_cmpint(idletime_generation_others(&open, abi), ==, 0);
        child = child_start(ask_as_nobody, &open);
        g_assert_cmpint(child_exit_status(&child), ==, 0);
        idletime_arena_close(&open);
    }
    arena_remove(&arena);
}

/* No more are listed than there is room for, and these in order. */
static void test_many(void)
{
    enum { MANY = IDLETIME_GENERATIONS + 4 };
    Arena arena = arena_directory_only();
    struct { uint32_t abi[IDLETIME_GENERATIONS], guard; } seen = { .guard = 5 };
    int fd[MANY];

    assert_place(&arena, "");
    for (int i = 0; i < MANY; i++) {
        g_autofree char *name = g_strdup_printf("abi-%d", 100 - i);
        int listed = MIN(i + 1, IDLETIME_GENERATIONS);

        write_other(&arena, name, 100 - i);
        fd[i] = live(&arena, name, "foreground.alive");
        g_assert_cmpint(others(&arena, seen.abi), ==, listed);
        g_assert_cmpuint(seen.guard, ==, 5);
        for (int k = 1; k < listed; k++) {
            g_assert_cmpuint(seen.abi[k - 1], <, seen.abi[k]);
        }
    }
    for (int i = 0; i < MANY; i++) {
        close(fd[i]);
    }
    arena_remove(&arena);
}

/* Each version once; what has another name is nobody's; we are not others. */
static void test_names(void)
{
    static const struct { const char *directory; uint32_t abi; } is[] = {
        { "abi-9", 9 }, { "abi-9.old", 9 }, { "copy", 8 }, { "xabi-5", 5 },
        { "abi-3", IDLETIME_ARENA_ABI }, { "", OTHER },
    };
    Arena arena = arena_directory_only();
    uint32_t abi[IDLETIME_GENERATIONS];
    int fd[G_N_ELEMENTS(is)];

    for (unsigned i = 0; i < G_N_ELEMENTS(is); i++) {
        write_other(&arena, is[i].directory, is[i].abi);
        fd[i] = live(&arena, is[i].directory, "background.alive");
    }
    g_assert_cmpint(others(&arena, abi), ==, 2);
    g_assert_cmpuint(abi[0], ==, OTHER);
    g_assert_cmpuint(abi[1], ==, 9);
    for (unsigned i = 0; i < G_N_ELEMENTS(is); i++) {
        close(fd[i]);
    }
    arena_remove(&arena);
}

/* The arena is removed: nobody is beside us, and nothing is left open. */
static void test_removed(void)
{
    Arena arena = arena_directory_only();
    uint32_t abi[IDLETIME_GENERATIONS];
    IdletimeArena open = must_enter(&arena);
    int before = dup(0), after;

    close(before);
    g_assert_cmpint(idletime_generation_others(&open, abi), ==, 0);
    arena_remove(&arena);
    g_assert_cmpint(idletime_generation_others(&open, abi), ==, 0);
    /* The lowest that is free is the same. */
    after = dup(0);
    g_assert_cmpint(after, ==, before);
    close(after);
    idletime_arena_close(&open);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/arena-generation/alone", test_alone);
    g_test_add_func("/arena-generation/beside", test_beside);
    g_test_add_func("/arena-generation/later", test_later);
    g_test_add_func("/arena-generation/garbage", test_garbage);
    g_test_add_func("/arena-generation/no-board", test_no_board);
    g_test_add_func("/arena-generation/reopen", test_reopen);
    g_test_add_func("/arena-generation/may-not-ask", test_may_not_ask);
    g_test_add_func("/arena-generation/many", test_many);
    g_test_add_func("/arena-generation/names", test_names);
    g_test_add_func("/arena-generation/removed", test_removed);
    return g_test_run();
}
