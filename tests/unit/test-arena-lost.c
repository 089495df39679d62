/*
 * Arena: boards that are truncated, scribbled over or removed while mapped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include <signal.h>
#include <sys/stat.h>

#define SCRIBBLES 3000

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 4 };

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    if (!idletime_arena_sigbus(info->si_addr)) {
        _exit(70);
    }
}

static void guard_on(void)
{
    struct sigaction action = {
        .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO,
    };

    g_assert_cmpint(sigaction(SIGBUS, &action, NULL), ==, 0);
}

static void cut(const Arena *arena, const char *name, off_t size)
{
    g_autofree char *path = arena_file(arena, name);

    g_assert_cmpint(truncate(path, size), ==, 0);
}

/* Everything that a background participant does with its boards. */
static IdletimeView use_all(Peer *peer, int64_t now_ns)
{
    IdletimeGrant grant;
    IdletimeView view = idletime_scan(&peer->scan, &rule, now_ns);
    int next;

    idletime_bg_enter(&peer->scan, rule.interval_ns, INT64_MAX, 100);
    if (idletime_token_take(&peer->scan, &rule, now_ns, &grant)) {
        idletime_bg_started(&peer->scan);
        idletime_bg_done(&peer->scan, 5 * MS);
        idletime_token_give(&peer->scan, grant);
    }
    next = idletime_scan_next(&peer->scan, view.fg_last_ns, now_ns);
    if (next >= 0) {
        idletime_bg_wake(peer->scan.bg, next);
        idletime_scan_skip(&peer->scan, next, now_ns);
    }
    idletime_bg_leave(&peer->scan);
    return view;
}

static void test_truncated(gconstpointer data)
{
    const char *name = data;
    Arena arena = arena_new();
    Tenant tenant;
    Peer peer;

    guard_on();
    tenant_join(&tenant, &arena, "tenant");
    peer_join(&peer, &arena, "peer");
    idletime_fg_begin(&tenant.writer, MS, 1);
    g_assert_false(use_all(&peer, 2 * MS).blind);
    cut(&arena, name, 0);
    /* The writer writes into the void, the reader is blind; no crash. */
    idletime_fg_end(&tenant.writer, 3 * MS);
    idletime_fg_begin(&tenant.writer, 4 * MS, 1);
    g_assert_true(use_all(&peer, 5 * MS).blind);
    g_assert_true(use_all(&peer, 6 * MS).blind);
    tenant_leave(&tenant);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* Cut behind the header: the loss is noticed by the deep check at least. */
static void test_truncated_behind_header(void)
{
    Arena arena = arena_new();
    Peer peer;

    guard_on();
    peer_join(&peer, &arena, "peer");
    cut(&arena, "background", IDLETIME_PAGE_BYTES);
    use_all(&peer, MS);
    g_assert_false(idletime_board_intact(&peer.bg, true));
    g_assert_true(use_all(&peer, 2 * MS).blind);
    peer_leave(&peer);
    arena_remove(&arena);
}

static void test_removed(void)
{
    Arena arena = arena_new();
    g_autofree char *path = arena_file(&arena, "foreground");
    IdletimeError err;
    IdletimeArena open;
    Peer peer;

    peer_join(&peer, &arena, "peer");
    g_assert_true(idletime_board_intact(&peer.fg, true));
    g_assert_cmpint(unlink(path), ==, 0);
    g_assert_true(idletime_board_intact(&peer.fg, false));
    g_assert_false(idletime_board_intact(&peer.fg, true));
    /* A new board at the same path is not ours. */
    g_assert_true(idletime_arena_open(&open, arena.dir, &err));
    g_assert_false(idletime_board_intact(&peer.fg, true));
    idletime_arena_close(&open);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* A slot of the new file would be a slot of somebody else on the old one. */
static void test_claim_after_replacement(void)
{
    Arena arena = arena_new();
    g_autofree char *path = arena_file(&arena, "foreground");
    IdletimeError err = { "" };
    IdletimeSlot slot;
    IdletimeArena open;
    Tenant tenant;

    tenant_join(&tenant, &arena, "tenant");
    idletime_fg_begin(&tenant.writer, MS, 1);
    g_assert_cmpint(unlink(path), ==, 0);
    g_assert_false(idletime_slot_claim(&tenant.fg, &slot, "late", &err));
    g_assert_true(idletime_arena_open(&open, arena.dir, &err));
    g_assert_false(idletime_slot_claim(&tenant.fg, &slot, "late", &err));
    idletime_arena_close(&open);
    g_assert_false(slot.claimed);
    g_assert_nonnull(strstr(err.text, path));
    g_assert_cmpuint(tenant.writer.line->in_service, ==, 1);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

static int write_read_only(ChildEnd *end, void *data)
{
    IdletimeArena open = must_enter(data);
    IdletimeBoard fg = must_open(&open, IDLETIME_BOARD_FOREGROUND, false);

    (void)end;
    signal(SIGSEGV, SIG_DFL);
    ((volatile IdletimeFgBoard *)fg.map)->line[0].in_service = 0;
    return 0;
}

static void test_read_only(void)
{
    Arena arena = arena_new();
    Child child = child_start(write_read_only, &arena);
    int status = child_exit_status(&child);
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard fg = must_open(&open, IDLETIME_BOARD_FOREGROUND, false);
    IdletimeError err = { "" };
    IdletimeSlot slot;

    /* The sanitizer reports the signal and exits with 1. */
    g_assert_true(status == -SIGSEGV || status == 1);
    /* A claim is refused in words, even to root. */
    g_assert_false(idletime_slot_claim(&fg, &slot, "x", &err));
    g_assert_false(slot.claimed);
    g_assert_cmpstr(err.text, !=, "");
    idletime_board_close(&fg);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

static void scribble(uint64_t *random, void *map, size_t from, size_t size)
{
    uint64_t pick = test_random(random);
    uint8_t *at = (uint8_t *)map + from + test_random(random) % size;

    if (pick % 4 == 0) {
        memset((uint8_t *)map + from, pick >> 8, size);
    } else {
        for (unsigned i = 0; i < 256; i++) {
            at = (uint8_t *)map + from + test_random(random) % size;
            *at = test_random(random);
        }
    }
}

/* All but magic and version, of which a change makes us blind at once. */
static void test_scribbled(void)
{
    Arena arena = arena_new();
    uint64_t random = test_seed();
    size_t from = offsetof(IdletimeBoardHeader, kind);
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard fg = must_open(&open, IDLETIME_BOARD_FOREGROUND, true);
    Peer peer;

    peer_join(&peer, &arena, "peer");
    for (int i = 0; i < SCRIBBLES; i++) {
        int64_t now_ns = (int64_t)test_random(&random);

        scribble(&random, fg.map, from, 4096 + 65536 - from);
        scribble(&random, peer.bg.map, from, peer.bg.size - from);
        use_all(&peer, i % 2 ? now_ns : i * MS);
    }
    ((IdletimeFgBoard *)fg.map)->header.magic++;
    g_assert_true(use_all(&peer, MS).blind);
    idletime_board_close(&fg);
    idletime_arena_close(&open);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* The guard knows a board from its first byte to its last. */
static void test_guard_bounds(void)
{
    Arena arena = arena_new();
    g_autofree char *path = arena_file(&arena, "foreground.alive");
    IdletimeError err = { "" };
    IdletimeArena open;
    IdletimeBoard board;
    Peer peer;
    uint8_t *map;

    peer_join(&peer, &arena, "peer");
    map = peer.bg.map;
    g_assert_false(idletime_arena_sigbus(map - 1));
    g_assert_false(idletime_arena_sigbus(NULL));
    g_assert_true(idletime_board_intact(&peer.bg, false));
    g_assert_true(idletime_arena_sigbus(map + peer.bg.size - 1));
    /* It is zeroed memory now. */
    g_assert_false(idletime_board_intact(&peer.bg, false));
    g_assert_true(idletime_board_intact(&peer.fg, false));
    g_assert_true(idletime_arena_sigbus(map));
    /* Another board that cannot be opened takes no guard away. */
    g_assert_cmpint(unlink(path), ==, 0);
    open = must_enter(&arena);
    g_assert_false(idletime_board_open(&board, &open,
                                       IDLETIME_BOARD_FOREGROUND, false,
                                       &err));
    idletime_arena_close(&open);
    g_assert_true(idletime_arena_sigbus(peer.fg.map));
    peer_leave(&peer);
    g_assert_false(idletime_arena_sigbus(map));
    arena_remove(&arena);
}

/* A board that was never opened may be closed: no foreign file or guard. */
static void test_close_unopened(void)
{
    IdletimeBoard board = { 0 };

    guard_on();
    g_assert_cmpint(fcntl(0, F_GETFD), >=, 0);
    idletime_board_close(&board);
    g_assert_cmpint(fcntl(0, F_GETFD), >=, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/lost/truncated-foreground", "foreground",
                         test_truncated);
    g_test_add_data_func("/lost/truncated-background", "background",
                         test_truncated);
    g_test_add_func("/lost/truncated-behind-header",
                    test_truncated_behind_header);
    g_test_add_func("/lost/removed", test_removed);
    g_test_add_func("/lost/claim-after-replacement",
                    test_claim_after_replacement);
    g_test_add_func("/lost/read-only", test_read_only);
    g_test_add_func("/lost/scribbled", test_scribbled);
    g_test_add_func("/lost/guard-bounds", test_guard_bounds);
    g_test_add_func("/lost/close-unopened", test_close_unopened);
    return g_test_run();
}
