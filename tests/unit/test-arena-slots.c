/*
 * Arena: who owns a slot, and what is left when the owner dies.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include <signal.h>

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 1 };

/* A tenant that stays in service until it is killed. */
static int tenant_in_service(ChildEnd *end, void *data)
{
    Tenant tenant;

    tenant_join(&tenant, data, "tenant");
    idletime_fg_begin(&tenant.writer, 100 * MS, 4096);
    end_tell(end, 'r');
    end_hear(end);
    idletime_fg_end(&tenant.writer, 105 * MS);
    end_tell(end, 'e');
    end_hear(end);
    return 0;
}

static void test_life(void)
{
    Arena arena = arena_new();
    Child child = child_start(tenant_in_service, &arena);
    IdletimeView view;
    Peer peer;

    peer_join(&peer, &arena, "peer");
    g_assert_cmpint(child_hear(&child), ==, 'r');
    view = idletime_scan(&peer.scan, &rule, 101 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 1);
    g_assert_cmpuint(view.fg_started, ==, 1);
    g_assert_cmpint(view.fg_last_ns, ==, 100 * MS);
    child_tell(&child, 'e');
    g_assert_cmpint(child_hear(&child), ==, 'e');
    view = idletime_scan(&peer.scan, &rule, 106 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 0);
    g_assert_cmpint(view.fg_last_ns, ==, 105 * MS);
    child_tell(&child, 'q');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    peer_leave(&peer);
    arena_remove(&arena);
}

static void test_killed_in_service(void)
{
    Arena arena = arena_new();
    Peer peer;

    peer_join(&peer, &arena, "peer");
    for (int i = 0; i < 20; i++) {
        Child child = child_start(tenant_in_service, &arena);

        g_assert_cmpint(child_hear(&child), ==, 'r');
        g_assert_true(idletime_slot_alive(&peer.fg, 0));
        g_assert_cmpuint(idletime_scan(&peer.scan, &rule, 101 * MS).
                         fg_in_service, ==, 1);
        child_kill(&child);
        g_assert_false(idletime_slot_alive(&peer.fg, 0));
        g_assert_cmpuint(idletime_scan(&peer.scan, &rule, 101 * MS).
                         fg_in_service, ==, 0);
    }
    /* All of them had the same slot, one after the other. */
    g_assert_cmpuint(peer.scan.fg_high, ==, 1);
    peer_leave(&peer);
    arena_remove(&arena);
}

static void test_stopped_in_service(void)
{
    Arena arena = arena_new();
    Child child = child_start(tenant_in_service, &arena);
    Peer peer;

    peer_join(&peer, &arena, "peer");
    g_assert_cmpint(child_hear(&child), ==, 'r');
    kill(child.pid, SIGSTOP);
    /* It lives: its request may really be in service. */
    g_assert_cmpuint(idletime_scan(&peer.scan, &rule, 101 * MS).fg_in_service,
                     ==, 1);
    child_kill(&child);
    peer_leave(&peer);
    arena_remove(&arena);
}

static void test_reuse_is_zeroed(void)
{
    Arena arena = arena_new();
    Child child = child_start(tenant_in_service, &arena);
    IdletimeFgBoard *fg;
    Tenant tenant;

    g_assert_cmpint(child_hear(&child), ==, 'r');
    child_kill(&child);
    tenant_join(&tenant, &arena, "a label that is longer than the sixty-three "
                "characters there is room for");
    fg = idletime_fg_board(&tenant.fg);
    g_assert_cmpuint(tenant.slot.index, ==, 0);
    g_assert_cmpuint(fg->line[0].in_service, ==, 0);
    g_assert_cmpuint(fg->line[0].started, ==, 0);
    g_assert_cmpuint(fg->line[0].ring_head, ==, 0);
    g_assert_cmpint(fg->line[0].last_ns, ==, INT64_MIN);
    g_assert_cmpuint(fg->line[0].pid, ==, getpid());
    g_assert_cmpuint(fg->page[0].ring[0], ==, 0);
    g_assert_cmpuint(strlen(fg->page[0].label), ==, IDLETIME_LABEL_BYTES - 1);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

static void test_ring(void)
{
    Arena arena = arena_new();
    Tenant tenant;
    IdletimeFgPage *page;

    tenant_join(&tenant, &arena, "tenant");
    page = tenant.writer.page;
    /* Two overlapping requests are one busy time: 10..30. */
    idletime_fg_begin(&tenant.writer, 10, 1);
    idletime_fg_begin(&tenant.writer, 20, 2);
    idletime_fg_end(&tenant.writer, 25);
    idletime_fg_end(&tenant.writer, 30);
    g_assert_cmpuint(tenant.writer.line->ring_head, ==, 2);
    g_assert_cmpuint(page->ring[0], ==, 10 << 1 | 1);
    g_assert_cmpuint(page->ring[1], ==, 30 << 1);
    g_assert_cmpuint(tenant.writer.line->bytes, ==, 3);
    /* 128 more pairs: 258 transitions, the ring of 256 has wrapped by two. */
    for (int i = 0; i < 128; i++) {
        idletime_fg_begin(&tenant.writer, 100 + i, 0);
        idletime_fg_end(&tenant.writer, 100 + i);
    }
    g_assert_cmpuint(tenant.writer.line->ring_head, ==, 258);
    g_assert_cmpuint(page->ring[0], ==, 227 << 1 | 1);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

/* Another thread's end was read, an earlier one: time does not go back. */
static void test_earlier_end(void)
{
    Arena arena = arena_new();
    Tenant tenant;
    IdletimeFgLine *line;

    tenant_join(&tenant, &arena, "tenant");
    line = tenant.writer.line;
    idletime_fg_begin(&tenant.writer, 100, 1);
    idletime_fg_begin(&tenant.writer, 120, 1);
    idletime_fg_end(&tenant.writer, 110);
    g_assert_cmpint(line->last_ns, ==, 120);
    g_assert_cmpuint(line->request_ns, ==, 20);
    idletime_fg_end(&tenant.writer, 90);
    g_assert_cmpint(line->last_ns, ==, 120);
    g_assert_cmpuint(tenant.writer.page->ring[1], ==, 120 << 1);
    idletime_fg_begin(&tenant.writer, 119, 1);
    g_assert_cmpuint(tenant.writer.page->ring[2], ==, 120 << 1 | 1);
    idletime_fg_end(&tenant.writer, 150);
    g_assert_cmpuint(line->request_ns, ==, 20 + 30);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

/* The board is truth for nobody but readers: the writer's copy heals it. */
static void test_scribbled_writer(void)
{
    Arena arena = arena_new();
    Tenant tenant;

    tenant_join(&tenant, &arena, "tenant");
    idletime_fg_begin(&tenant.writer, 1, 0);
    memset(tenant.writer.line, 0xff, sizeof(*tenant.writer.line));
    idletime_fg_end(&tenant.writer, 2);
    g_assert_cmpuint(tenant.writer.line->in_service, ==, 0);
    g_assert_cmpint(tenant.writer.line->last_ns, ==, 2);
    idletime_fg_begin(&tenant.writer, 3, 0);
    g_assert_cmpuint(tenant.writer.line->started, ==, 2);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

static void test_full(void)
{
    Arena arena = arena_new();
    g_autofree char *path = arena_file(&arena, "background");
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard board = must_open(&open, IDLETIME_BOARD_BACKGROUND, true);
    g_autofree IdletimeSlot *slot = g_new(IdletimeSlot, IDLETIME_SLOTS + 1);
    IdletimeError err = { "" };

    for (int i = 0; i < IDLETIME_SLOTS; i++) {
        g_assert_true(idletime_slot_claim(&board, &slot[i], "x", &err));
        g_assert_cmpuint(slot[i].index, ==, i);
    }
    g_assert_false(idletime_slot_claim(&board, &slot[IDLETIME_SLOTS], "x",
                                       &err));
    g_assert_false(slot[IDLETIME_SLOTS].claimed);
    g_assert_nonnull(strstr(err.text, "1024"));
    g_assert_nonnull(strstr(err.text, path));
    /* One leaves, one fits. */
    idletime_slot_release(&board, &slot[500]);
    g_assert_true(idletime_slot_claim(&board, &slot[500], "x", &err));
    g_assert_cmpuint(slot[500].index, ==, 500);
    for (int i = 0; i < IDLETIME_SLOTS; i++) {
        idletime_slot_release(&board, &slot[i]);
    }
    idletime_board_close(&board);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

/* What is given back is as new: nothing waits, nothing is in service. */
static void test_release_clears(void)
{
    Arena arena = arena_new();
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard fg = must_open(&open, IDLETIME_BOARD_FOREGROUND, false);
    IdletimeBoard bg = must_open(&open, IDLETIME_BOARD_BACKGROUND, false);
    static const IdletimeBgLine zero;
    const IdletimeFgLine *line = &idletime_fg_board(&fg)->line[0];
    Tenant tenant;
    Peer peer;

    tenant_join(&tenant, &arena, "tenant");
    idletime_fg_begin(&tenant.writer, MS, 4096);
    g_assert_cmpstr(idletime_fg_board(&fg)->page[0].label, ==, "tenant");
    tenant_leave(&tenant);
    g_assert_false(tenant.slot.claimed);
    g_assert_cmpuint(line->in_service, ==, 0);
    g_assert_cmpuint(line->started, ==, 0);
    g_assert_cmpint(line->last_ns, ==, INT64_MIN);
    g_assert_cmpstr(idletime_fg_board(&fg)->page[0].label, ==, "");
    g_assert_cmpuint(idletime_fg_board(&fg)->page[0].ring[0], ==, 0);
    peer_join(&peer, &arena, "peer");
    idletime_bg_enter(&peer.scan, 20 * MS, SEC, 100);
    idletime_bg_started(&peer.scan);
    peer_leave(&peer);
    g_assert_cmpmem(&idletime_bg_board(&bg)->line[0], sizeof(zero), &zero,
                    sizeof(zero));
    idletime_board_close(&fg);
    idletime_board_close(&bg);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

/* In and out more often than there are slots; it is always the same one. */
static void test_in_and_out(void)
{
    Arena arena = arena_new();
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard bg = must_open(&open, IDLETIME_BOARD_BACKGROUND, true);

    for (int i = 0; i <= IDLETIME_SLOTS; i++) {
        IdletimeSlot slot = must_claim(&bg, "x");

        g_assert_cmpuint(slot.index, ==, 0);
        g_assert_true(idletime_slot_alive(&bg, 0));
        idletime_slot_release(&bg, &slot);
        g_assert_false(slot.claimed);
        g_assert_false(idletime_slot_alive(&bg, 0));
        /* Twice is once. */
        idletime_slot_release(&bg, &slot);
    }
    g_assert_false(idletime_slot_alive(&bg, IDLETIME_SLOTS));
    g_assert_false(idletime_slot_alive(&bg, UINT32_MAX));
    idletime_board_close(&bg);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

/* How far others read: to the highest slot ever claimed. */
static void test_high_water(void)
{
    Arena arena = arena_new();
    IdletimeArena open = must_enter(&arena);
    IdletimeBoard bg = must_open(&open, IDLETIME_BOARD_BACKGROUND, true);
    IdletimeBoardHeader *header = bg.map;
    IdletimeSlot slot[3];

    g_assert_cmpuint(header->slots_high, ==, 0);
    for (uint32_t i = 0; i < 3; i++) {
        slot[i] = must_claim(&bg, "x");
        g_assert_cmpuint(header->slots_high, ==, i + 1);
    }
    idletime_slot_release(&bg, &slot[0]);
    slot[0] = must_claim(&bg, "x");
    g_assert_cmpuint(slot[0].index, ==, 0);
    g_assert_cmpuint(header->slots_high, ==, 3);
    /* More than there are is no number; all of them is one. */
    header->slots_high = IDLETIME_SLOTS;
    idletime_slot_release(&bg, &slot[1]);
    slot[1] = must_claim(&bg, "x");
    g_assert_cmpuint(header->slots_high, ==, IDLETIME_SLOTS);
    header->slots_high = IDLETIME_SLOTS + 1;
    idletime_slot_release(&bg, &slot[1]);
    slot[1] = must_claim(&bg, "x");
    g_assert_cmpuint(header->slots_high, ==, IDLETIME_SLOTS);
    /* What is less than there are hides some until their owners show them. */
    header->slots_high = 0;
    idletime_slot_show(&bg, &slot[2]);
    g_assert_cmpuint(header->slots_high, ==, 3);
    idletime_slot_show(&bg, &slot[0]);
    g_assert_cmpuint(header->slots_high, ==, 3);
    idletime_board_close(&bg);
    idletime_arena_close(&open);
    arena_remove(&arena);
}

/* Two openings in one process are as two processes, and see each other. */
static void test_two_openings(void)
{
    Arena arena = arena_new();
    Peer a, b;

    peer_join(&a, &arena, "a");
    peer_join(&b, &arena, "b");
    g_assert_cmpuint(a.slot.index, ==, 0);
    g_assert_cmpuint(b.slot.index, ==, 1);
    for (uint32_t i = 0; i < 3; i++) {
        g_assert_cmpint(idletime_slot_alive(&a.bg, i), ==, i < 2);
        g_assert_cmpint(idletime_slot_alive(&b.bg, i), ==, i < 2);
    }
    /* Given back: the other one sees it, and may have it. */
    idletime_slot_release(&a.bg, &a.slot);
    g_assert_false(idletime_slot_alive(&b.bg, 0));
    idletime_slot_release(&b.bg, &b.slot);
    b.slot = must_claim(&b.bg, "b");
    g_assert_cmpuint(b.slot.index, ==, 0);
    g_assert_true(idletime_slot_alive(&a.bg, 0));
    a.slot = must_claim(&a.bg, "a");
    g_assert_cmpuint(a.slot.index, ==, 1);
    /* Closed without a word, as by a crash: its slot is free. */
    idletime_board_close(&a.fg);
    idletime_board_close(&a.bg);
    idletime_arena_close(&a.open);
    g_assert_false(idletime_slot_alive(&b.bg, 1));
    peer_leave(&b);
    arena_remove(&arena);
}

static int claim_slots(ChildEnd *end, void *data)
{
    IdletimeArena open = must_enter(data);
    IdletimeBoard board = must_open(&open, IDLETIME_BOARD_FOREGROUND, true);
    IdletimeSlot slot;
    IdletimeError err;

    end_hear(end);
    for (int i = 0; i < 16; i++) {
        if (!idletime_slot_claim(&board, &slot, "many", &err)) {
            return 1;
        }
        end_tell(end, (char)(slot.index + 1));
    }
    end_hear(end);
    return 0;
}

/* Six processes claim 16 slots each at once: 96 different ones. */
static void test_claim_at_once(void)
{
    Arena arena = arena_new();
    bool taken[97] = { false };
    Child child[6];

    for (int i = 0; i < 6; i++) {
        child[i] = child_start(claim_slots, &arena);
    }
    for (int i = 0; i < 6; i++) {
        child_tell(&child[i], 'g');
    }
    for (int i = 0; i < 96; i++) {
        int index = child_hear(&child[i % 6]);

        g_assert_cmpint(index, >=, 1);
        g_assert_cmpint(index, <=, 96);
        g_assert_false(taken[index]);
        taken[index] = true;
    }
    for (int i = 0; i < 6; i++) {
        child_tell(&child[i], 'q');
        g_assert_cmpint(child_exit_status(&child[i]), ==, 0);
    }
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/slots/life", test_life);
    g_test_add_func("/slots/killed-in-service", test_killed_in_service);
    g_test_add_func("/slots/stopped-in-service", test_stopped_in_service);
    g_test_add_func("/slots/reuse-is-zeroed", test_reuse_is_zeroed);
    g_test_add_func("/slots/ring", test_ring);
    g_test_add_func("/slots/earlier-end", test_earlier_end);
    g_test_add_func("/slots/scribbled-writer", test_scribbled_writer);
    g_test_add_func("/slots/full", test_full);
    g_test_add_func("/slots/release-clears", test_release_clears);
    g_test_add_func("/slots/in-and-out", test_in_and_out);
    g_test_add_func("/slots/high-water", test_high_water);
    g_test_add_func("/slots/two-openings", test_two_openings);
    g_test_add_func("/slots/claim-at-once", test_claim_at_once);
    return g_test_run();
}
