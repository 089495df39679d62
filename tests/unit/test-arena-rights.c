/*
 * Arena: what a user can do to others with the rights that he has.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include <signal.h>
#include <sys/stat.h>

/* Two users who share an arena, and the group that both are in. */
#define FOREGROUND_USER 64001
#define BACKGROUND_USER 64002
#define GROUP 64000

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 1 };

/* ---- locks of those who only read */

/* Take a read lock on the whole file; 0 or an errno. */
static int read_lock(const char *path, int command)
{
    struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
    int fd = open(path, O_RDONLY);

    return fd < 0 || fcntl(fd, command, &lock) != 0 ? errno : 0;
}

typedef struct Squatter {
    const Arena *arena;
    const char *file[2];
    int command;
    gid_t group;
} Squatter;

static int squat(ChildEnd *end, void *data)
{
    const Squatter *squatter = data;

    if (!become(NOBODY, squatter->group)) {
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        if (read_lock(arena_file(squatter->arena, squatter->file[i]),
                      squatter->command) != 0) {
            return 2;
        }
    }
    end_tell(end, 'l');
    end_hear(end);
    return 0;
}

/* A foreground participant and a background one start, work and end. */
static void assert_arena_works(const Arena *arena)
{
    IdletimeGrant grant;
    Tenant tenant;
    Peer peer;

    tenant_join(&tenant, arena, "tenant");
    peer_join(&peer, arena, "peer");
    g_assert_cmpuint(tenant.slot.index, ==, 0);
    g_assert_cmpuint(peer.slot.index, ==, 0);
    g_assert_true(idletime_slot_alive(&peer.fg, 0));
    g_assert_true(idletime_slot_alive(&peer.bg, 0));
    idletime_fg_begin(&tenant.writer, MS, 1);
    g_assert_cmpuint(idletime_scan(&peer.scan, &rule, 2 * MS).fg_in_service,
                     ==, 1);
    g_assert_true(idletime_token_take(&peer.scan, &rule, 2 * MS, &grant));
    tenant_leave(&tenant);
    peer_leave(&peer);
}

static void assert_read_lock_is_harmless(int command)
{
    Arena arena = arena_new();
    Squatter squatter = { &arena, { "foreground", "background" }, command,
                          NOBODY };
    Child child = child_start(squat, &squatter);
    Peer peer;

    g_assert_cmpint(child_hear(&child), ==, 'l');
    assert_arena_works(&arena);
    /* Nobody's slots are dead. */
    peer_join(&peer, &arena, "peer");
    for (uint32_t i = 0; i < IDLETIME_SLOTS; i++) {
        g_assert_false(idletime_slot_alive(&peer.fg, i));
        g_assert_cmpint(idletime_slot_alive(&peer.bg, i), ==, i == 0);
    }
    peer_leave(&peer);
    child_tell(&child, 'q');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    arena_remove(&arena);
}

static void test_read_lock(void)
{
    if (is_root()) {
        assert_read_lock_is_harmless(F_OFD_SETLK);
        assert_read_lock_is_harmless(F_SETLK);
    }
}

static int open_locks(ChildEnd *end, void *data)
{
    static const char *const file[] = {
        "foreground.lock", "foreground.alive",
        "background.lock", "background.alive",
    };
    static const int flags[] = { O_RDONLY, O_WRONLY, O_RDWR };

    (void)end;
    if (!become(NOBODY, NOBODY)) {
        return 1;
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 3; j++) {
            if (open(arena_file(data, file[i]), flags[j]) >= 0 ||
                errno != EACCES) {
                return 2;
            }
        }
    }
    return 0;
}

/* Whatever the umask of the first who came was. */
static void test_locks_are_closed(void)
{
    mode_t before = umask(0);
    Arena arena = arena_new();
    Child child;

    umask(before);
    if (is_root()) {
        child = child_start(open_locks, &arena);
        g_assert_cmpint(child_exit_status(&child), ==, 0);
    }
    arena_remove(&arena);
}

/* ---- two users */

static void grant(const Arena *arena, const char *name, uid_t owner,
                  mode_t mode)
{
    g_autofree char *path = arena_file(arena, name);

    g_assert_cmpint(chown(path, owner, GROUP), ==, 0);
    g_assert_cmpint(chmod(path, mode), ==, 0);
}

/* As the man page of idletimed tells who wants to separate the two. */
static Arena arena_of_two_users(void)
{
    Arena arena = arena_new();

    grant(&arena, ".", 0, 0750);
    grant(&arena, "foreground", FOREGROUND_USER, 0640);
    grant(&arena, "foreground.lock", FOREGROUND_USER, 0600);
    grant(&arena, "foreground.alive", FOREGROUND_USER, 0640);
    grant(&arena, "background", BACKGROUND_USER, 0660);
    grant(&arena, "background.lock", BACKGROUND_USER, 0660);
    grant(&arena, "background.alive", BACKGROUND_USER, 0660);
    return arena;
}

static int foreground_user(ChildEnd *end, void *data)
{
    Tenant tenant;

    if (!become(FOREGROUND_USER, GROUP)) {
        return 1;
    }
    tenant_join(&tenant, data, "tenant");
    idletime_fg_begin(&tenant.writer, MS, 1);
    end_tell(end, 'b');
    end_hear(end);
    return 0;
}

/* Sees the foreground, and sees that it died. */
static int background_user(ChildEnd *end, void *data)
{
    Peer peer;

    if (!become(BACKGROUND_USER, GROUP)) {
        return 1;
    }
    peer_join(&peer, data, "peer");
    if (idletime_scan(&peer.scan, &rule, 2 * MS).fg_in_service != 1) {
        return 2;
    }
    end_tell(end, 's');
    end_hear(end);
    return idletime_scan(&peer.scan, &rule, 2 * MS).fg_in_service == 0 ? 0 : 3;
}

static void test_two_users(void)
{
    Child foreground, background;
    Arena arena;

    if (!is_root()) {
        return;
    }
    arena = arena_of_two_users();
    foreground = child_start(foreground_user, &arena);
    g_assert_cmpint(child_hear(&foreground), ==, 'b');
    background = child_start(background_user, &arena);
    g_assert_cmpint(child_hear(&background), ==, 's');
    child_kill(&foreground);
    child_tell(&background, 'd');
    g_assert_cmpint(child_exit_status(&background), ==, 0);
    arena_remove(&arena);
}

/*
 * A background user locks what he may read: the foreground starts as ever.
 * Its dead slots look alive, for which background alone waits.
 */
static void test_reader_cannot_stop_foreground(void)
{
    Child child, foreground;
    Squatter squatter;
    Arena arena;
    Peer peer;

    if (!is_root()) {
        return;
    }
    arena = arena_of_two_users();
    squatter = (Squatter) {
        &arena, { "foreground", "foreground.alive" }, F_OFD_SETLK, GROUP,
    };
    child = child_start(squat, &squatter);
    g_assert_cmpint(child_hear(&child), ==, 'l');
    foreground = child_start(foreground_user, &arena);
    g_assert_cmpint(child_hear(&foreground), ==, 'b');
    peer_join(&peer, &arena, "peer");
    g_assert_true(idletime_slot_alive(&peer.fg, 7));
    peer_leave(&peer);
    child_kill(&foreground);
    child_kill(&child);
    arena_remove(&arena);
}

/* ---- one right less */

typedef struct Less {
    uid_t user;
    IdletimeBoardKind kind;
    bool writable;
    const char *file;           /* that loses a right */
    mode_t mode;
    const char *said;
} Less;

typedef struct Attempt {
    const Arena *arena;
    const Less *less;
} Attempt;

static int open_as(ChildEnd *end, void *data)
{
    const Attempt *attempt = data;
    const Less *less = attempt->less;
    IdletimeArena open = { 0 };
    IdletimeError err = { "" };
    IdletimeBoard board;

    (void)end;
    if (!become(less->user, GROUP)) {
        return 1;
    }
    if (idletime_arena_open(&open, attempt->arena->dir, &err) &&
        idletime_board_open(&board, &open, less->kind, less->writable, &err)) {
        return less->said ? 2 : 0;
    }
    return less->said && strstr(err.text, less->said) &&
           strstr(err.text, "Permission denied") ? 0 : 3;
}

static void test_one_right_less(void)
{
    static const Less cases[] = {
        { FOREGROUND_USER, IDLETIME_BOARD_FOREGROUND, true, NULL, 0, NULL },
        { FOREGROUND_USER, IDLETIME_BOARD_BACKGROUND, true, NULL, 0, NULL },
        { BACKGROUND_USER, IDLETIME_BOARD_FOREGROUND, false, NULL, 0, NULL },
        { BACKGROUND_USER, IDLETIME_BOARD_BACKGROUND, true, NULL, 0, NULL },
        { BACKGROUND_USER, IDLETIME_BOARD_FOREGROUND, true, NULL, 0,
          "/foreground' for writing" },
        { BACKGROUND_USER, IDLETIME_BOARD_FOREGROUND, false, "foreground",
          0600, "/foreground' for reading" },
        { BACKGROUND_USER, IDLETIME_BOARD_FOREGROUND, false,
          "foreground.alive", 0600, "/foreground.alive' for reading" },
        { FOREGROUND_USER, IDLETIME_BOARD_FOREGROUND, true, "foreground.lock",
          0400, "/foreground.lock' for writing" },
        { FOREGROUND_USER, IDLETIME_BOARD_BACKGROUND, true, "background.lock",
          0640, "/background.lock' for writing" },
        { FOREGROUND_USER, IDLETIME_BOARD_BACKGROUND, true,
          "background.alive", 0600, "/background.alive' for reading" },
        { FOREGROUND_USER, IDLETIME_BOARD_FOREGROUND, true, ".", 0700,
          "/foreground'" },
    };

    if (!is_root()) {
        return;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Arena arena = arena_of_two_users();
        Attempt attempt = { &arena, &cases[i] };
        Child child;

        if (cases[i].file) {
            g_autofree char *path = arena_file(&arena, cases[i].file);

            g_assert_cmpint(chmod(path, cases[i].mode), ==, 0);
        }
        child = child_start(open_as, &attempt);
        g_assert_cmpint(child_exit_status(&child), ==, 0);
        arena_remove(&arena);
    }
}

/* A board that is mapped for reading gives no slots, to root neither. */
static void test_no_claim_by_readers(void)
{
    Arena arena = arena_new();
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard fg = must_open(&open, IDLETIME_BOARD_FOREGROUND, false);
    IdletimeError err = { "" };
    IdletimeSlot slot;

    g_assert_false(idletime_slot_claim(&fg, &slot, "x", &err));
    g_assert_false(slot.claimed);
    g_assert_nonnull(strstr(err.text, "mapped for reading"));
    idletime_board_close(&fg);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rights/read-lock", test_read_lock);
    g_test_add_func("/rights/locks-are-closed", test_locks_are_closed);
    g_test_add_func("/rights/two-users", test_two_users);
    g_test_add_func("/rights/reader-cannot-stop-foreground",
                    test_reader_cannot_stop_foreground);
    g_test_add_func("/rights/one-right-less", test_one_right_less);
    g_test_add_func("/rights/no-claim-by-readers", test_no_claim_by_readers);
    return g_test_run();
}
