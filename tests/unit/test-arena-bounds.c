/*
 * Arena: what is left behind, and what goes on, where something is in the way.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/arena/slot.h"
#include <fcntl.h>
#include <sys/resource.h>

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 1 };

/* Of files below @path. */
static unsigned mappings_of(const char *path)
{
    g_autofree char *maps = NULL;
    unsigned n = 0;

    g_assert_true(g_file_get_contents("/proc/self/maps", &maps, NULL, NULL));
    for (const char *at = maps; (at = strstr(at, path)); at++) {
        n++;
    }
    return n;
}

static void test_unmapped(void)
{
    Arena arena = arena_new();
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard board[IDLETIME_GUARDS + 1] = { 0 };
    IdletimeError err;

    for (int i = 0; i < IDLETIME_GUARDS; i++) {
        board[i] = must_open(&open, IDLETIME_BOARD_FOREGROUND, i % 2);
    }
    g_assert_cmpuint(mappings_of(arena.dir), ==, IDLETIME_GUARDS);
    /* One that cannot be guarded is not left mapped. */
    g_assert_false(idletime_board_open(&board[IDLETIME_GUARDS], &open,
                                       IDLETIME_BOARD_FOREGROUND, true, &err));
    g_assert_cmpuint(mappings_of(arena.dir), ==, IDLETIME_GUARDS);
    for (int i = 0; i < IDLETIME_GUARDS; i++) {
        idletime_board_close(&board[i]);
    }
    g_assert_cmpuint(mappings_of(arena.dir), ==, 0);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

/* A look asks memory alone: those who have the boards go on with them. */
static void test_unlinked(void)
{
    static const char *const name[] = { "foreground", "background" };

    for (int i = 0; i < 2; i++) {
        Arena arena = arena_new();
        g_autofree char *path = arena_file(&arena, name[i]);
        Tenant tenant;
        Peer peer;

        tenant_join(&tenant, &arena, "tenant");
        peer_join(&peer, &arena, "peer");
        g_assert_cmpint(unlink(path), ==, 0);
        idletime_fg_begin(&tenant.writer, SEC, 1);
        g_assert_cmpuint(idletime_scan(&peer.scan, &rule, SEC).fg_in_service,
                         ==, 1);
        g_assert_false(idletime_scan(&peer.scan, &rule, SEC).blind);
        tenant_leave(&tenant);
        peer_leave(&peer);
        arena_remove(&arena);
    }
}

/* A lock file that this process may only read: it is said, and not "full". */
static void test_lock_fails(void)
{
    Arena arena = arena_new();
    IdletimeArena files = must_enter(&arena);
    IdletimeBoard fg = must_open(&files, IDLETIME_BOARD_FOREGROUND, true);
    int *fd = &files.files[IDLETIME_BOARD_FOREGROUND].lock.fd, kept = *fd;
    g_autofree char *path = arena_file(&arena, "foreground.lock");
    IdletimeError err = { "" };
    IdletimeSlot slot;

    *fd = open(path, O_RDONLY | O_CLOEXEC);
    g_assert_cmpint(*fd, >=, 0);
    g_assert_false(idletime_slot_claim(&fg, &slot, "x", &err));
    g_assert_nonnull(strstr(err.text, "cannot lock a slot of arena board"));
    g_assert_nonnull(strstr(err.text, strerror(EBADF)));
    close(*fd);
    *fd = kept;
    /* And the slot is still there for the next one. */
    slot = must_claim(&fg, "x");
    g_assert_cmpuint(slot.index, ==, 0);
    idletime_slot_release(&fg, &slot);
    idletime_board_close(&fg);
    idletime_arena_close(&files);
    arena_remove(&arena);
}

/* ---- places that are none */

static unsigned descriptors(void)
{
    GDir *dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned n = 0;

    while (g_dir_read_name(dir)) {
        n++;
    }
    g_dir_close(dir);
    return n;
}

static void assert_no_place(const char *path, int error)
{
    unsigned before = descriptors();
    IdletimeError err = { "" };
    IdletimeArena files;

    errno = 0;
    g_assert_false(idletime_arena_open(&files, path, &err));
    g_assert_nonnull(strstr(err.text, "cannot create arena directory"));
    g_assert_nonnull(strstr(err.text, strerror(error)));
    g_assert_cmpuint(descriptors(), ==, before);
}

/* No path at all; one from a folder that is no more. */
static void test_no_place(void)
{
    g_autofree char *here = g_get_current_dir();
    g_autofree char *gone = g_dir_make_tmp("idletime-XXXXXX", NULL);

    assert_no_place("", ENOENT);
    g_assert_cmpint(chdir(gone), ==, 0);
    g_assert_cmpint(rmdir(gone), ==, 0);
    assert_no_place("arena", ENOENT);
    g_assert_cmpint(chdir(here), ==, 0);
}

/* Without standard input, the root directory is descriptor 0. */
static int no_input(ChildEnd *end, void *data)
{
    IdletimeError err;
    IdletimeArena files;

    (void)end;
    close(0);
    if (!idletime_arena_open(&files, ((Arena *)data)->dir, &err)) {
        return 1;
    }
    return files.root == 0 ? 0 : 2;
}

/* The root directory itself, of a process that has changed it. */
static int in_root(ChildEnd *end, void *data)
{
    IdletimeError err;
    IdletimeArena files;

    (void)end;
    if (chroot(((Arena *)data)->dir) != 0) {
        return 77;
    }
    return idletime_arena_open(&files, "/", &err) &&
           strcmp(files.place, ".") == 0 ? 0 : 1;
}

/* No memory to map a board in: it is said. */
static int no_addresses(ChildEnd *end, void *data)
{
    IdletimeArena files = must_enter(data);
    IdletimeError err = { "" };
    struct rlimit limit = { 0, 0 };
    IdletimeBoard board;

    (void)end;
    setrlimit(RLIMIT_AS, &limit);
    return !idletime_board_open(&board, &files, IDLETIME_BOARD_FOREGROUND,
                                true, &err) && !board.map &&
           strstr(err.text, "cannot map arena board") ? 0 : 1;
}

static void test_child(gconstpointer data)
{
    Arena arena = arena_new();
    Child child = child_start(*(ChildBody *const *)data, &arena);
    int status = child_exit_status(&child);

    if (status == 77) {
        g_test_skip("chroot needs root");
    } else {
        g_assert_cmpint(status, ==, 0);
    }
    arena_remove(&arena);
}

/* What is in the place of a lock file is not followed to elsewhere. */
static void test_lock_is_a_link(void)
{
    Arena arena = arena_directory_only();
    g_autofree char *link = arena_file(&arena, "foreground.lock");
    g_autofree char *elsewhere = g_build_filename(arena.root, "x", NULL);
    IdletimeError err;
    IdletimeArena files;

    g_assert_cmpint(g_mkdir_with_parents(arena.dir, 0755), ==, 0);
    g_assert_cmpint(symlink(elsewhere, link), ==, 0);
    if (idletime_arena_open(&files, arena.dir, &err)) {
        idletime_arena_close(&files);
    }
    g_assert_cmpint(access(elsewhere, F_OK), ==, -1);
    arena_remove(&arena);
}

/* A lost arena whose place is taken by something else: looked for in vain. */
static void test_place_taken(void)
{
    static const char *const name[] = {
        "foreground", "foreground.lock", "foreground.alive",
        "background", "background.lock", "background.alive",
    };
    Arena arena = arena_new();
    IdletimeArena files = must_enter(&arena), found;
    unsigned before = descriptors();
    IdletimeError err = { "" };

    for (unsigned i = 0; i < G_N_ELEMENTS(name); i++) {
        g_autofree char *path = arena_file(&arena, name[i]);

        g_assert_cmpint(unlink(path), ==, 0);
    }
    g_assert_cmpint(rmdir(arena.dir), ==, 0);
    g_assert_true(g_file_set_contents(arena.dir, "", 0, NULL));
    for (int i = 0; i < 3; i++) {
        g_assert_false(idletime_arena_reopen(&found, &files, &err));
        g_assert_cmpuint(descriptors(), ==, before);
    }
    idletime_arena_close(&files);
    g_assert_cmpint(unlink(arena.dir), ==, 0);
    arena_remove(&arena);
}

/* ---- slots that are none */

/* There is no slot behind the last one. */
static void test_no_slot(void)
{
    Arena arena = arena_new();
    Peer peer;

    peer_join(&peer, &arena, "peer");
    g_assert_true(idletime_slot_alive(&peer.bg, peer.slot.index));
    g_assert_false(idletime_slot_alive(&peer.bg, IDLETIME_SLOTS - 1));
    g_assert_false(idletime_slot_alive(&peer.bg, IDLETIME_SLOTS));
    g_assert_false(idletime_slot_alive(&peer.bg, UINT32_MAX));
    /* Nor is there anybody to pass over. */
    idletime_scan_skip(&peer.scan, IDLETIME_SLOTS, SEC);
    idletime_scan_skip(&peer.scan, UINT32_MAX, SEC);
    peer_leave(&peer);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    static ChildBody *const child[] = { no_input, in_root, no_addresses };

    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/arena/unmapped", test_unmapped);
    g_test_add_func("/arena/unlinked", test_unlinked);
    g_test_add_func("/arena/lock-fails", test_lock_fails);
    g_test_add_func("/arena/no-place", test_no_place);
    g_test_add_data_func("/arena/no-input", &child[0], test_child);
    g_test_add_data_func("/arena/in-root", &child[1], test_child);
    g_test_add_data_func("/arena/no-addresses", &child[2], test_child);
    g_test_add_func("/arena/lock-is-a-link", test_lock_is_a_link);
    g_test_add_func("/arena/place-taken", test_place_taken);
    g_test_add_func("/arena/no-slot", test_no_slot);
    return g_test_run();
}
