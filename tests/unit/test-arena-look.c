/*
 * Arena: what a look and the sums of it are, to the last unit.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 2 };

/* ---- foreground */

/*
 * Two tenants: the first has two requests, from 10 and 20 ms on, one of them
 * ended at 25 ms; the second had one from 30 to 37 ms.
 */
static void test_foreground_totals(void)
{
    Arena arena = arena_new();
    Tenant a, b;
    IdletimeView view;
    Peer peer;

    peer_join(&peer, &arena, "peer");
    view = idletime_scan(&peer.scan, &rule, 5 * MS);
    g_assert_cmpuint(view.fg_started, ==, 0);
    g_assert_cmpint(view.fg_last_ns, ==, INT64_MIN);
    tenant_join(&a, &arena, "a");
    tenant_join(&b, &arena, "b");
    idletime_fg_begin(&a.writer, 10 * MS, 1);
    idletime_fg_begin(&a.writer, 20 * MS, 2);
    view = idletime_scan(&peer.scan, &rule, 21 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 1);
    g_assert_cmpuint(view.fg_requests, ==, 2);
    g_assert_cmpuint(view.fg_started, ==, 2);
    /* One request for 10 ms; the second begins. */
    g_assert_cmpuint(view.fg_request_ns, ==, 10 * MS);
    g_assert_cmpint(view.fg_last_ns, ==, 20 * MS);
    idletime_fg_end(&a.writer, 25 * MS);
    idletime_fg_begin(&b.writer, 30 * MS, 4);
    view = idletime_scan(&peer.scan, &rule, 31 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 2);
    g_assert_cmpuint(view.fg_requests, ==, 2);
    /* a: 10 + 2 * 5 ms, and 5 ms until b comes. */
    g_assert_cmpuint(view.fg_request_ns, ==, 25 * MS);
    g_assert_cmpint(view.fg_last_ns, ==, 30 * MS);
    idletime_fg_end(&b.writer, 37 * MS);
    view = idletime_scan(&peer.scan, &rule, 38 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 1);
    g_assert_cmpuint(view.fg_requests, ==, 1);
    g_assert_cmpuint(view.fg_started, ==, 3);
    /* a: 7 ms more, b: 7 ms. */
    g_assert_cmpuint(view.fg_request_ns, ==, 39 * MS);
    g_assert_cmpint(view.fg_last_ns, ==, 37 * MS);
    g_assert_cmpuint(view.bg_in_service, ==, 0);
    g_assert_false(view.blind || view.others_first || view.overdue_first);
    tenant_leave(&b);
    tenant_leave(&a);
    /* What they did leaves with them. */
    view = idletime_scan(&peer.scan, &rule, 39 * MS);
    g_assert_cmpuint(view.fg_started, ==, 0);
    g_assert_cmpuint(view.fg_request_ns, ==, 0);
    g_assert_cmpint(view.fg_last_ns, ==, INT64_MIN);
    peer_leave(&peer);
    arena_remove(&arena);
}

static int tenant_in_service(ChildEnd *end, void *data)
{
    Tenant tenant;

    tenant_join(&tenant, data, "tenant");
    idletime_fg_begin(&tenant.writer, 10 * MS, 1);
    end_tell(end, 'b');
    end_hear(end);
    return 0;
}

/*
 * One died in service, its neighbour works on: the dead one's requests stay
 * in the sum until its slot is used again, its service does not.
 */
static void test_dead_beside_living(void)
{
    Arena arena = arena_new();
    Child child = child_start(tenant_in_service, &arena);
    IdletimeView view;
    Tenant tenant;
    Peer peer;

    g_assert_cmpint(child_hear(&child), ==, 'b');
    tenant_join(&tenant, &arena, "tenant");
    g_assert_cmpuint(tenant.slot.index, ==, 1);
    idletime_fg_begin(&tenant.writer, 4 * MS, 1);
    idletime_fg_end(&tenant.writer, 5 * MS);
    child_kill(&child);
    peer_join(&peer, &arena, "peer");
    view = idletime_scan(&peer.scan, &rule, 11 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 0);
    g_assert_cmpuint(view.fg_requests, ==, 0);
    g_assert_cmpuint(view.fg_started, ==, 2);
    g_assert_cmpint(view.fg_last_ns, ==, 5 * MS);
    /* A time in the future is of the living only; now is no future. */
    idletime_fg_board(&tenant.fg)->line[0].in_service = 0;
    view = idletime_scan(&peer.scan, &rule, 10 * MS);
    g_assert_cmpint(view.fg_last_ns, ==, 10 * MS);
    view = idletime_scan(&peer.scan, &rule, 10 * MS - 1);
    g_assert_cmpint(view.fg_last_ns, ==, 5 * MS);
    tenant_leave(&tenant);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* A move to another slot takes along all sums and what is in service. */
static void test_move(void)
{
    Arena arena = arena_new();
    Tenant tenant;
    IdletimeSlot old;
    IdletimeView view;
    Peer peer;

    peer_join(&peer, &arena, "peer");
    tenant_join(&tenant, &arena, "tenant");
    for (int i = 1; i <= 3; i++) {
        idletime_fg_begin(&tenant.writer, i * MS, 100);
    }
    idletime_fg_end(&tenant.writer, 4 * MS);
    old = tenant.slot;
    tenant.slot = must_claim(&tenant.fg, "tenant");
    g_assert_cmpuint(tenant.slot.index, ==, 1);
    idletime_fg_move(&tenant.writer, &tenant.fg, &tenant.slot, 6 * MS);
    idletime_slot_release(&tenant.fg, &old);
    view = idletime_scan(&peer.scan, &rule, 7 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 1);
    g_assert_cmpuint(view.fg_started, ==, 3);
    g_assert_cmpint(view.fg_last_ns, ==, 6 * MS);
    /* 1 + 2 + 3 ms until the end of the first; the gap of the move is lost. */
    g_assert_cmpuint(view.fg_request_ns, ==, 6 * MS);
    g_assert_cmpuint(tenant.writer.line->bytes, ==, 300);
    g_assert_cmpuint(tenant.writer.line->ring_head, ==, 1);
    g_assert_cmpuint(tenant.writer.page->ring[0], ==, 6 * MS << 1 | 1);
    idletime_fg_end(&tenant.writer, 8 * MS);
    g_assert_cmpuint(tenant.writer.line->in_service, ==, 1);
    idletime_fg_end(&tenant.writer, 9 * MS);
    g_assert_cmpuint(tenant.writer.line->in_service, ==, 0);
    /* 2 * 2 + 1 ms more. */
    g_assert_cmpuint(tenant.writer.line->request_ns, ==, 11 * MS);
    g_assert_cmpuint(tenant.writer.line->ring_head, ==, 2);
    tenant_leave(&tenant);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* Nothing in service: the move is no event, but the sums go along. */
static void test_move_idle(void)
{
    Arena arena = arena_new();
    IdletimeSlot slot;
    Tenant tenant;

    tenant_join(&tenant, &arena, "tenant");
    idletime_fg_begin(&tenant.writer, MS, 100);
    idletime_fg_end(&tenant.writer, 3 * MS);
    slot = must_claim(&tenant.fg, "tenant");
    idletime_fg_move(&tenant.writer, &tenant.fg, &slot, 6 * MS);
    g_assert_cmpuint(tenant.writer.line->ring_head, ==, 0);
    g_assert_cmpuint(tenant.writer.line->in_service, ==, 0);
    idletime_fg_begin(&tenant.writer, 7 * MS, 1);
    g_assert_cmpuint(tenant.writer.line->started, ==, 2);
    g_assert_cmpuint(tenant.writer.line->bytes, ==, 101);
    g_assert_cmpuint(tenant.writer.line->request_ns, ==, 2 * MS);
    idletime_slot_release(&tenant.fg, &slot);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

/* ---- background */

static void test_background_totals(void)
{
    Arena arena = arena_new();
    IdletimeBgTotals totals;
    Peer peer[3];

    for (int i = 0; i < 3; i++) {
        peer_join(&peer[i], &arena, "peer");
        for (int n = 0; n <= i; n++) {
            idletime_bg_started(&peer[i].scan);
        }
        idletime_bg_cost(&peer[i].scan, 10 + i);
    }
    idletime_bg_cost(&peer[1].scan, 100);
    totals = idletime_scan_background(&peer[0].scan);
    g_assert_cmpuint(totals.started, ==, 1 + 2 + 3);
    g_assert_cmpuint(totals.cost_ns, ==, 10 + 11 + 12 + 100);
    /* What lies behind the last slot that was ever claimed is no slot. */
    idletime_bg_board(&peer[0].bg)->line[3].started = 1000;
    g_assert_cmpuint(idletime_scan_background(&peer[0].scan).started, ==, 6);
    peer_leave(&peer[1]);
    totals = idletime_scan_background(&peer[0].scan);
    g_assert_cmpuint(totals.started, ==, 1 + 3);
    g_assert_cmpuint(totals.cost_ns, ==, 10 + 12);
    peer_leave(&peer[2]);
    peer_leave(&peer[0]);
    arena_remove(&arena);
}

/* At the cap nobody has a turn; one below it somebody has. */
static void test_turns_below_the_cap(void)
{
    Arena arena = arena_new();
    IdletimeGrant grant[2];
    IdletimeView view;
    Peer peer[2];

    for (int i = 0; i < 2; i++) {
        peer_join(&peer[i], &arena, "peer");
        idletime_bg_enter(&peer[i].scan, 0, INT64_MAX, 100);
    }
    for (int i = 0; i < 2; i++) {
        view = idletime_scan(&peer[1].scan, &rule, SEC);
        g_assert_cmpuint(view.bg_in_service, ==, i);
        g_assert_true(view.others_first);
        g_assert_true(idletime_token_take(&peer[0].scan, &rule, SEC,
                                          &grant[i]));
    }
    view = idletime_scan(&peer[1].scan, &rule, SEC);
    g_assert_cmpuint(view.bg_in_service, ==, 2);
    g_assert_false(view.others_first);
    idletime_token_give(&peer[0].scan, grant[0]);
    view = idletime_scan(&peer[1].scan, &rule, SEC);
    g_assert_cmpuint(view.bg_in_service, ==, 1);
    g_assert_true(view.others_first);
    peer_leave(&peer[0]);
    peer_leave(&peer[1]);
    arena_remove(&arena);
}

/* What an own slot says, field by field. */
static void test_own_line(void)
{
    Arena arena = arena_new();
    IdletimeBgBoard *board;
    IdletimeBgLine *line;
    Peer peer;

    peer_join(&peer, &arena, "peer");
    board = idletime_bg_board(&peer.bg);
    line = idletime_scan_own(&peer.scan);
    /* Saved up: at most 50 ms behind the clock of 60 ms. */
    board->header.clock = 60 * MS;
    idletime_bg_enter(&peer.scan, 7 * MS, 9 * MS, 50);
    g_assert_cmpuint(line->waiting, ==, 1);
    g_assert_cmpint(line->interval_ns, ==, 7 * MS);
    g_assert_cmpint(line->due_ns, ==, 9 * MS);
    g_assert_cmpuint(line->weight, ==, 50);
    g_assert_cmpuint(line->vtime_ns, ==, 10 * MS);
    idletime_bg_started(&peer.scan);
    g_assert_cmpuint(line->started, ==, 1);
    g_assert_cmpuint(board->header.clock, ==, 60 * MS);
    /* 30 ms at weight 50 are 60 ms: 70 ms. */
    idletime_bg_done(&peer.scan, 30 * MS);
    g_assert_cmpuint(line->vtime_ns, ==, 70 * MS);
    idletime_bg_started(&peer.scan);
    g_assert_cmpuint(board->header.clock, ==, 70 * MS);
    idletime_bg_done(&peer.scan, -1);
    g_assert_cmpuint(line->vtime_ns, ==, 70 * MS);
    /* A scribbled weight of 0 counts as 1. */
    line->weight = 0;
    idletime_bg_done(&peer.scan, MS);
    g_assert_cmpuint(line->vtime_ns, ==, 170 * MS);
    /* Ahead of the clock, nothing is taken back. */
    idletime_bg_enter(&peer.scan, 0, INT64_MAX, 100);
    g_assert_cmpuint(line->vtime_ns, ==, 170 * MS);
    idletime_bg_leave(&peer.scan);
    g_assert_cmpuint(line->waiting, ==, 0);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* A clock below 50 ms: nothing can be saved up, and nothing wraps. */
static void test_young_clock(void)
{
    Arena arena = arena_new();
    Peer peer;

    peer_join(&peer, &arena, "peer");
    idletime_bg_board(&peer.bg)->header.clock = 50 * MS;
    idletime_bg_enter(&peer.scan, 0, INT64_MAX, 100);
    g_assert_cmpuint(idletime_scan_own(&peer.scan)->vtime_ns, ==, 0);
    idletime_bg_board(&peer.bg)->header.clock = 50 * MS + 1;
    idletime_bg_enter(&peer.scan, 0, INT64_MAX, 100);
    g_assert_cmpuint(idletime_scan_own(&peer.scan)->vtime_ns, ==, 1);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* ---- which is first */

static int first(Peer *peer, int64_t now_ns)
{
    return idletime_scan_next(&peer->scan, INT64_MIN, now_ns);
}

/* Whatever the order of the slots: the earliest deadline, the least time. */
static void test_first_of_three(void)
{
    static const int orders[6][3] = {
        { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
        { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
    };
    Arena arena = arena_new();
    Peer peer[3];

    for (int i = 0; i < 3; i++) {
        peer_join(&peer[i], &arena, "peer");
    }
    for (int n = 0; n < 6; n++) {
        const int *slot = orders[n];

        for (int i = 0; i < 3; i++) {
            idletime_bg_enter(&peer[slot[i]].scan, 0, (i + 1) * SEC, 100);
            idletime_scan_own(&peer[slot[i]].scan)->vtime_ns = (3 - i) * MS;
        }
        idletime_scan(&peer[0].scan, &rule, 0);
        /* Nobody is overdue: the least virtual time is the third's. */
        g_assert_cmpint(first(&peer[0], SEC - 1), ==, slot[2]);
        g_assert_cmpint(first(&peer[0], SEC), ==, slot[0]);
        g_assert_cmpint(first(&peer[0], 4 * SEC), ==, slot[0]);
        for (int i = 0; i < 3; i++) {
            IdletimeView view = idletime_scan(&peer[slot[i]].scan, &rule,
                                              SEC - 1);

            g_assert_cmpint(view.others_first, ==, i != 2);
            g_assert_false(view.overdue_first);
            view = idletime_scan(&peer[slot[i]].scan, &rule, SEC);
            g_assert_cmpint(view.others_first, ==, i != 0);
            g_assert_cmpint(view.overdue_first, ==, i != 0);
        }
        idletime_bg_leave(&peer[slot[0]].scan);
        g_assert_cmpint(first(&peer[0], 4 * SEC), ==, slot[1]);
        idletime_bg_leave(&peer[slot[1]].scan);
        g_assert_cmpint(first(&peer[0], 4 * SEC), ==, slot[2]);
        idletime_bg_leave(&peer[slot[2]].scan);
        g_assert_cmpint(first(&peer[0], 4 * SEC), ==, -1);
    }
    /* What lies behind the last slot that was ever claimed does not wait. */
    idletime_bg_board(&peer[0].bg)->line[3].waiting = 1;
    g_assert_cmpint(first(&peer[0], 4 * SEC), ==, -1);
    for (int i = 0; i < 3; i++) {
        peer_leave(&peer[i]);
    }
    arena_remove(&arena);
}

/* The same deadline, the same virtual time: the lower slot. */
static void test_ties(void)
{
    Arena arena = arena_new();
    Peer peer[2];

    for (int i = 0; i < 2; i++) {
        peer_join(&peer[i], &arena, "peer");
        idletime_bg_enter(&peer[i].scan, 0, SEC, 100);
    }
    idletime_scan(&peer[1].scan, &rule, 0);
    g_assert_cmpint(first(&peer[1], 0), ==, 0);
    g_assert_cmpint(first(&peer[1], SEC), ==, 0);
    peer_leave(&peer[0]);
    peer_leave(&peer[1]);
    arena_remove(&arena);
}

/* 20 ms, doubled six times to 1.28 s, and never more. */
static void test_skip_doubles(void)
{
    Arena arena = arena_new();
    int64_t now_ns = 0;
    Peer peer[2];

    for (int i = 0; i < 2; i++) {
        peer_join(&peer[i], &arena, "peer");
        idletime_bg_enter(&peer[i].scan, 0, INT64_MAX, 100);
    }
    idletime_scan(&peer[1].scan, &rule, 0);
    for (int i = 0; i < 12; i++) {
        int64_t skip_ns = MIN(20 * MS << i, 1280 * MS);

        g_assert_cmpint(first(&peer[1], now_ns), ==, 0);
        idletime_scan_skip(&peer[1].scan, 0, now_ns);
        g_assert_cmpint(first(&peer[1], now_ns + skip_ns - 1), ==, 1);
        now_ns += skip_ns;
    }
    /* It started one: the next skip is the first again. */
    idletime_bg_started(&peer[0].scan);
    idletime_scan_skip(&peer[1].scan, 0, now_ns);
    g_assert_cmpint(first(&peer[1], now_ns + 20 * MS - 1), ==, 1);
    g_assert_cmpint(first(&peer[1], now_ns + 20 * MS), ==, 0);
    peer_leave(&peer[0]);
    peer_leave(&peer[1]);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/look/foreground-totals", test_foreground_totals);
    g_test_add_func("/look/dead-beside-living", test_dead_beside_living);
    g_test_add_func("/look/move", test_move);
    g_test_add_func("/look/move-idle", test_move_idle);
    g_test_add_func("/look/background-totals", test_background_totals);
    g_test_add_func("/look/turns-below-the-cap", test_turns_below_the_cap);
    g_test_add_func("/look/own-line", test_own_line);
    g_test_add_func("/look/young-clock", test_young_clock);
    g_test_add_func("/look/first-of-three", test_first_of_three);
    g_test_add_func("/look/ties", test_ties);
    g_test_add_func("/look/skip-doubles", test_skip_doubles);
    return g_test_run();
}
