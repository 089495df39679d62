/*
 * Arena: where it is, for a process that changes its directory, its root
 * directory or its user, and whether it is still there.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include <dirent.h>
#include <sys/stat.h>

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 1 };

/* ---- a process that changes after it has opened */

typedef struct Change {
    const Arena *arena;
    const char *path;           /* by which it is opened */
    bool (*change)(const Arena *arena);
} Change;

/* Open all that a QEMU may need, change, and only then claim. */
static int claim_after_change(ChildEnd *end, void *data)
{
    const Change *change = data;
    IdletimeBoard fg, fg_write, bg;
    IdletimeSlot fg_slot, bg_slot;
    IdletimeError err = { "" };
    IdletimeFgWriter writer;
    IdletimeArena open;

    if (chdir(change->arena->root) != 0 ||
        !idletime_arena_open(&open, change->path, &err) ||
        !idletime_board_open(&fg, &open, IDLETIME_BOARD_FOREGROUND, false,
                             &err) ||
        !change->change(change->arena)) {
        return 1;
    }
    if (!idletime_board_open(&fg_write, &open, IDLETIME_BOARD_FOREGROUND,
                             true, &err) ||
        !idletime_board_open(&bg, &open, IDLETIME_BOARD_BACKGROUND, true,
                             &err) ||
        !idletime_slot_claim(&fg_write, &fg_slot, "late", &err) ||
        !idletime_slot_claim(&bg, &bg_slot, "late", &err)) {
        g_printerr("%s\n", err.text);
        return 2;
    }
    idletime_fg_attach(&writer, &fg_write, &fg_slot);
    idletime_fg_begin(&writer, MS, 1);
    if (!idletime_slot_alive(&fg, fg_slot.index) ||
        !idletime_board_intact(&fg, true) ||
        !idletime_board_intact(&fg_write, true) ||
        !idletime_board_intact(&bg, true)) {
        return 3;
    }
    end_tell(end, 'b');
    end_hear(end);
    return 0;
}

static bool change_directory(const Arena *arena)
{
    (void)arena;
    return chdir("/") == 0;
}

static bool change_root(const Arena *arena)
{
    g_autofree char *jail = g_build_filename(arena->root, "jail", NULL);

    return mkdir(jail, 0755) == 0 && chroot(jail) == 0 && chdir("/") == 0;
}

static bool change_user(const Arena *arena)
{
    /* The arena is root's, and nobody may even search it now. */
    return chmod(arena->dir, 0700) == 0 && become(NOBODY, NOBODY);
}

static bool change_all(const Arena *arena)
{
    return chmod(arena->dir, 0700) == 0 && change_root(arena) &&
           become(NOBODY, NOBODY);
}

/* Others see it on the boards of the path that it was given at the start. */
static void assert_seen_after(const char *path,
                              bool (*how)(const Arena *arena))
{
    Arena arena = arena_new();
    Change change = { &arena, path ? path : arena.dir, how };
    Child child;
    Peer peer;

    peer_join(&peer, &arena, "peer");
    child = child_start(claim_after_change, &change);
    g_assert_cmpint(child_hear(&child), ==, 'b');
    g_assert_cmpuint(idletime_scan(&peer.scan, &rule, 2 * MS).fg_in_service,
                     ==, 1);
    child_tell(&child, 'q');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    peer_leave(&peer);
    arena_remove(&arena);
}

static void test_directory(void)
{
    assert_seen_after("arena", change_directory);
    assert_seen_after("./arena/", change_directory);
    assert_seen_after(NULL, change_directory);
}

static void test_root(void)
{
    if (is_root()) {
        assert_seen_after(NULL, change_root);
        assert_seen_after("arena", change_root);
    }
}

static void test_user(void)
{
    if (is_root()) {
        assert_seen_after(NULL, change_user);
        assert_seen_after("arena", change_user);
        assert_seen_after("arena", change_all);
    }
}

/* ---- lost, and found again */

typedef int Loss(ChildEnd *end, IdletimeArena *open, IdletimeBoard *fg);

typedef struct Watch {
    const Arena *arena;
    bool (*change)(const Arena *arena);
    Loss *loss;
} Watch;

/* Opens by a relative path, changes, tells, and goes on when it is told. */
static int watch(ChildEnd *end, void *data)
{
    const Watch *w = data;
    IdletimeError err = { "" };
    IdletimeArena open;
    IdletimeBoard fg;

    if (chdir(w->arena->root) != 0 ||
        !idletime_arena_open(&open, "arena", &err) ||
        !idletime_board_open(&fg, &open, IDLETIME_BOARD_FOREGROUND, true,
                             &err) || !w->change(w->arena) ||
        !idletime_board_intact(&fg, true)) {
        return 1;
    }
    end_tell(end, 'o');
    end_hear(end);
    return w->loss(end, &open, &fg);
}

static int must_be_intact(ChildEnd *end, IdletimeArena *open,
                          IdletimeBoard *fg)
{
    (void)end, (void)open;
    return idletime_board_intact(fg, true) ? 0 : 2;
}

/* It is lost; made anew at the same place, where another one joins. */
static int find_again(ChildEnd *end, IdletimeArena *open, IdletimeBoard *fg)
{
    IdletimeError err = { "" };
    IdletimeArena found;
    IdletimeBoard board;
    IdletimeSlot slot;

    if (idletime_board_intact(fg, true)) {
        return 2;
    }
    if (!idletime_arena_reopen(&found, open, &err) ||
        !idletime_board_open(&board, &found, IDLETIME_BOARD_FOREGROUND, true,
                             &err) ||
        !idletime_slot_claim(&board, &slot, "found", &err)) {
        return 3;
    }
    end_tell(end, 'f');
    end_hear(end);
    return 0;
}

/* It is lost; this user cannot make it anew, and says what he may not. */
static int cannot_find(ChildEnd *end, IdletimeArena *open, IdletimeBoard *fg)
{
    IdletimeError err = { "" };
    IdletimeArena found;

    (void)end;
    return !idletime_board_intact(fg, true) &&
           !idletime_arena_reopen(&found, open, &err) &&
           strstr(err.text, "Permission denied") ? 0 : 2;
}

static Child watcher(Watch *w)
{
    Child child = child_start(watch, w);

    g_assert_cmpint(child_hear(&child), ==, 'o');
    return child;
}

static void remove_boards(const Arena *arena)
{
    static const char *const file[] = {
        "foreground", "foreground.lock", "foreground.alive",
        "background", "background.lock", "background.alive", ".",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(file); i++) {
        g_autofree char *path = arena_file(arena, file[i]);

        g_assert_cmpint(remove(i + 1 < G_N_ELEMENTS(file) ? path :
                               arena->dir), ==, 0);
    }
}

/* Where it looks anew is where it was, and where others look, too. */
static void assert_found_after(bool (*change)(const Arena *arena))
{
    Arena arena = arena_new();
    Watch w = { &arena, change, find_again };
    Child child = watcher(&w);
    Peer peer;

    remove_boards(&arena);
    child_tell(&child, 'r');
    g_assert_cmpint(child_hear(&child), ==, 'f');
    peer_join(&peer, &arena, "peer");
    g_assert_true(idletime_slot_alive(&peer.fg, 0));
    g_assert_false(idletime_slot_alive(&peer.fg, 1));
    peer_leave(&peer);
    child_tell(&child, 'q');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    arena_remove(&arena);
}

static void test_found_again(void)
{
    assert_found_after(change_directory);
    if (is_root()) {
        assert_found_after(change_root);
    }
}

static void test_lost_for_the_user(void)
{
    Watch w = { NULL, change_user, cannot_find };
    Arena arena;
    Child child;

    if (!is_root()) {
        return;
    }
    arena = arena_new();
    w.arena = &arena;
    child = watcher(&w);
    remove_boards(&arena);
    child_tell(&child, 'r');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    arena_remove(&arena);
}

static void move_away(const Arena *arena)
{
    g_autofree char *away = g_build_filename(arena->root, "away", NULL);

    g_assert_cmpint(rename(arena->dir, away), ==, 0);
}

/*
 * Moved away: lost, for who may look.  Who may not search the directory any
 * more does not know, and stays with what he has.
 */
static void test_moved_away(void)
{
    Arena arena = arena_new();
    Watch w = { &arena, change_directory, find_again };
    Child child = watcher(&w);

    move_away(&arena);
    child_tell(&child, 'm');
    g_assert_cmpint(child_hear(&child), ==, 'f');
    child_tell(&child, 'q');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    arena_remove(&arena);
    if (!is_root()) {
        return;
    }
    arena = arena_new();
    w = (Watch) { &arena, change_user, must_be_intact };
    child = watcher(&w);
    g_assert_cmpint(chmod(arena.root, 0700), ==, 0);
    move_away(&arena);
    child_tell(&child, 'm');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    arena_remove(&arena);
}

/* Both the arena and what it was in are gone. */
static void test_parents_are_made(void)
{
    Arena arena = arena_directory_only();
    g_autofree char *deep = g_build_filename(arena.root, "a/b/c", NULL);
    IdletimeArena open, found;
    IdletimeError err = { "" };
    Arena inner = { arena.root, deep };
    g_autofree char *b = g_build_filename(arena.root, "a/b", NULL);
    g_autofree char *a = g_build_filename(arena.root, "a", NULL);

    g_assert_true(idletime_arena_open(&open, deep, &err));
    remove_boards(&inner);
    g_assert_cmpint(rmdir(b), ==, 0);
    g_assert_cmpint(rmdir(a), ==, 0);
    g_assert_true(idletime_arena_reopen(&found, &open, &err));
    g_assert_cmpint(access(deep, F_OK), ==, 0);
    idletime_arena_close(&open);
    idletime_arena_close(&found);
    arena_remove(&arena);
}

/* A link in the path is followed once, when the arena is opened. */
static void test_link(void)
{
    Arena arena = arena_new();
    g_autofree char *link = g_build_filename(arena.root, "link", NULL);
    IdletimeError err = { "" };
    IdletimeArena open;
    IdletimeBoard fg;

    g_assert_cmpint(symlink(arena.dir, link), ==, 0);
    g_assert_true(idletime_arena_open(&open, link, &err));
    fg = must_open(&open, IDLETIME_BOARD_FOREGROUND, true);
    /* As the operator calls it. */
    g_assert_true(g_str_has_prefix(fg.path, link));
    g_assert_cmpint(unlink(link), ==, 0);
    g_assert_true(idletime_board_intact(&fg, true));
    idletime_board_close(&fg);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

/* ---- lock files that are missing */

static void test_lock_removed(gconstpointer data)
{
    const char *name = data;
    Arena arena = arena_new();
    g_autofree char *path = arena_file(&arena, name);
    IdletimeError err = { "" };
    IdletimeArena open;
    IdletimeBoard board;
    IdletimeSlot slot;
    Tenant tenant;

    tenant_join(&tenant, &arena, "tenant");
    g_assert_cmpint(unlink(path), ==, 0);
    g_assert_false(idletime_board_intact(&tenant.fg, true));
    g_assert_false(idletime_slot_claim(&tenant.fg, &slot, "x", &err));
    /* It is not made beside a board that is in use: slots would have two
     * owners. */
    g_assert_true(idletime_arena_open(&open, arena.dir, &err));
    g_assert_false(idletime_board_open(&board, &open,
                                       IDLETIME_BOARD_FOREGROUND, true, &err));
    g_assert_nonnull(strstr(err.text, name));
    g_assert_nonnull(strstr(err.text, "remove the arena directory"));
    g_assert_cmpint(access(path, F_OK), ==, -1);
    idletime_arena_close(&open);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

/* ---- descriptors */

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count;
}

static void test_claims_open_nothing(void)
{
    Arena arena = arena_new();
    int before = open_descriptors();
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard fg = must_open(&open, IDLETIME_BOARD_FOREGROUND, true);
    int opened = open_descriptors();
    IdletimeSlot slot[50];

    for (int i = 0; i < 50; i++) {
        slot[i] = must_claim(&fg, "x");
        g_assert_true(idletime_slot_alive(&fg, i));
    }
    g_assert_cmpint(open_descriptors(), ==, opened);
    for (int i = 0; i < 50; i++) {
        idletime_slot_release(&fg, &slot[i]);
    }
    idletime_board_close(&fg);
    idletime_arena_close(&open);
    g_assert_cmpint(open_descriptors(), ==, before);
    arena_remove(&arena);
}

/* Whatever fails leaves nothing open and nothing mapped. */
static void test_failures_leave_nothing(void)
{
    Arena arena = arena_new();
    g_autofree char *path = arena_file(&arena, "background");
    g_autofree char *below = g_build_filename(path, "arena", NULL);
    int before = open_descriptors();
    IdletimeError err = { "" };
    IdletimeArena open;
    IdletimeBoard board;

    g_assert_cmpint(truncate(path, 100), ==, 0);
    for (int i = 0; i < 300; i++) {
        g_assert_false(idletime_arena_open(&open, below, &err));
        open = must_enter(&arena);
        /* More than there are guards. */
        g_assert_false(idletime_board_open(&board, &open,
                                           IDLETIME_BOARD_BACKGROUND, true,
                                           &err));
        g_assert_null(board.map);
        idletime_arena_close(&open);
    }
    g_assert_cmpint(open_descriptors(), ==, before);
    arena_remove(&arena);
}

/* The 257th board in one process is refused; closing one makes room. */
static void test_guards_run_out(void)
{
    Arena arena = arena_new();
    IdletimeArena open = must_enter(&arena);
    g_autofree IdletimeBoard *board = g_new0(IdletimeBoard,
                                             IDLETIME_GUARDS + 1);
    IdletimeError err = { "" };
    int opened = open_descriptors();

    for (int i = 0; i < IDLETIME_GUARDS; i++) {
        board[i] = must_open(&open, IDLETIME_BOARD_BACKGROUND, true);
    }
    for (int i = 0; i < 2; i++) {
        g_assert_false(idletime_board_open(&board[IDLETIME_GUARDS], &open,
                                           IDLETIME_BOARD_BACKGROUND, true,
                                           &err));
        g_assert_nonnull(strstr(err.text, "256"));
    }
    idletime_board_close(&board[7]);
    board[7] = must_open(&open, IDLETIME_BOARD_BACKGROUND, true);
    for (int i = 0; i < IDLETIME_GUARDS; i++) {
        idletime_board_close(&board[i]);
    }
    g_assert_cmpint(open_descriptors(), ==, opened);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/place/directory", test_directory);
    g_test_add_func("/place/root", test_root);
    g_test_add_func("/place/user", test_user);
    g_test_add_func("/place/found-again", test_found_again);
    g_test_add_func("/place/lost-for-the-user", test_lost_for_the_user);
    g_test_add_func("/place/moved-away", test_moved_away);
    g_test_add_func("/place/parents-are-made", test_parents_are_made);
    g_test_add_func("/place/link", test_link);
    g_test_add_data_func("/place/lock-removed/lock", "foreground.lock",
                         test_lock_removed);
    g_test_add_data_func("/place/lock-removed/alive", "foreground.alive",
                         test_lock_removed);
    g_test_add_func("/place/claims-open-nothing", test_claims_open_nothing);
    g_test_add_func("/place/failures-leave-nothing",
                    test_failures_leave_nothing);
    g_test_add_func("/place/guards-run-out", test_guards_run_out);
    return g_test_run();
}
