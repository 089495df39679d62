/*
 * Arena: turns among background participants.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"

#define SERVICE_NS (5 * MS)
#define ROUNDS 6000

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 1 };

static int turn(Peer *peer, int64_t now_ns)
{
    return idletime_scan_next(&peer->scan, INT64_MIN, now_ns);
}

/* One request of whoever is next; the others agree on who that is. */
static int serve(Peer *peer, int peers, int64_t now_ns, int64_t service_ns)
{
    int next;

    for (int i = 0; i < peers; i++) {
        idletime_scan(&peer[i].scan, &rule, now_ns);
    }
    next = turn(&peer[0], now_ns);
    g_assert_cmpint(next, >=, 0);
    for (int i = 0; i < peers; i++) {
        g_assert_cmpint(turn(&peer[i], now_ns), ==, next);
        g_assert_cmpint(idletime_scan(&peer[i].scan, &rule, now_ns).
                        others_first, ==, i != next);
    }
    idletime_bg_started(&peer[next].scan);
    idletime_bg_done(&peer[next].scan, service_ns);
    return next;
}

static void assert_shares(const uint32_t *weight, int peers, bool uneven)
{
    Arena arena = arena_new();
    uint64_t random = test_seed();
    Peer peer[3];
    double got[3] = { 0 }, all = 0, sum = 0;

    for (int i = 0; i < peers; i++) {
        peer_join(&peer[i], &arena, "sharer");
        idletime_bg_enter(&peer[i].scan, rule.interval_ns, INT64_MAX,
                          weight[i]);
        sum += weight[i];
    }
    for (int i = 0; i < ROUNDS; i++) {
        int64_t ns = uneven ? (int64_t)test_range(&random, 1, 2 * SERVICE_NS) :
                              SERVICE_NS;
        int next = serve(peer, peers, i * SERVICE_NS, ns);

        got[next] += ns;
        all += ns;
        idletime_bg_enter(&peer[next].scan, rule.interval_ns, INT64_MAX,
                          weight[next]);
    }
    /* E.g. weights 100, 200, 300 of 600: 1/6, 1/3, 1/2 of the time. */
    for (int i = 0; i < peers; i++) {
        g_assert_cmpfloat(got[i] / all, >, 0.99 * weight[i] / sum);
        g_assert_cmpfloat(got[i] / all, <, 1.01 * weight[i] / sum);
        peer_leave(&peer[i]);
    }
    arena_remove(&arena);
}

static void test_shares(void)
{
    static const uint32_t weight[] = { 100, 200, 300 };
    static const uint32_t same[] = { 100, 100 };

    assert_shares(same, 2, false);
    assert_shares(weight, 2, false);
    assert_shares(weight, 3, false);
    assert_shares(weight, 3, true);
}

/* A pause of the second saves up 50 ms at most: the ten requests of 5 ms that
 * it then has at once, at equal weight, and one for the tie. */
static void test_credit(void)
{
    Arena arena = arena_new();
    int64_t now_ns = 0;
    int in_a_row = 0;
    Peer peer[2];

    peer_join(&peer[0], &arena, "busy");
    peer_join(&peer[1], &arena, "pausing");
    idletime_bg_enter(&peer[0].scan, rule.interval_ns, INT64_MAX, 100);
    for (int i = 0; i < 1000; i++) {
        serve(peer, 2, now_ns += SERVICE_NS, SERVICE_NS);
    }
    idletime_bg_enter(&peer[1].scan, rule.interval_ns, INT64_MAX, 100);
    while (serve(peer, 2, now_ns += SERVICE_NS, SERVICE_NS) == 1) {
        in_a_row++;
    }
    g_assert_cmpint(in_a_row, >=, 9);
    g_assert_cmpint(in_a_row, <=, 12);
    peer_leave(&peer[0]);
    peer_leave(&peer[1]);
    arena_remove(&arena);
}

/* Two silent ones before us: each is skipped once, then it is our turn. */
static void test_skip_deaf(void)
{
    Arena arena = arena_new();
    Peer peer[3];

    for (int i = 0; i < 3; i++) {
        peer_join(&peer[i], &arena, "peer");
        idletime_bg_enter(&peer[i].scan, rule.interval_ns, INT64_MAX, 100);
    }
    idletime_scan(&peer[2].scan, &rule, 0);
    for (int i = 0; i < 2; i++) {
        g_assert_cmpint(turn(&peer[2], 0), ==, i);
        idletime_scan_skip(&peer[2].scan, i, 0);
    }
    g_assert_cmpint(turn(&peer[2], 0), ==, 2);
    g_assert_false(idletime_scan(&peer[2].scan, &rule, 0).others_first);
    /* For 20 ms; then it has its turn once more, and 40 ms the next time. */
    g_assert_cmpint(turn(&peer[2], 20 * MS - 1), ==, 2);
    g_assert_cmpint(turn(&peer[2], 20 * MS), ==, 0);
    idletime_scan_skip(&peer[2].scan, 0, 20 * MS);
    idletime_scan_skip(&peer[2].scan, 1, 20 * MS);
    g_assert_cmpint(turn(&peer[2], 60 * MS - 1), ==, 2);
    g_assert_cmpint(turn(&peer[2], 60 * MS), ==, 0);
    /* It starts one: it is awake, and its turn counts again. */
    idletime_bg_started(&peer[0].scan);
    idletime_bg_done(&peer[0].scan, 0);
    g_assert_cmpint(turn(&peer[2], 0), ==, 0);
    /* Nobody outside the board is skipped, and nothing is hit. */
    idletime_scan_skip(&peer[2].scan, IDLETIME_SLOTS, 0);
    idletime_scan_skip(&peer[2].scan, UINT32_MAX, 0);
    for (int i = 0; i < 3; i++) {
        peer_leave(&peer[i]);
    }
    arena_remove(&arena);
}

static int wait_for_turn(ChildEnd *end, void *data)
{
    Peer peer;

    peer_join(&peer, data, "waiting");
    idletime_bg_enter(&peer.scan, rule.interval_ns, INT64_MAX, 100);
    end_tell(end, 'r');
    end_hear(end);
    return 0;
}

static void test_skip_dead(void)
{
    Arena arena = arena_new();
    Child child = child_start(wait_for_turn, &arena);
    Peer peer;

    g_assert_cmpint(child_hear(&child), ==, 'r');
    peer_join(&peer, &arena, "peer");
    idletime_bg_enter(&peer.scan, rule.interval_ns, INT64_MAX, 100);
    g_assert_true(idletime_scan(&peer.scan, &rule, 0).others_first);
    child_kill(&child);
    idletime_scan_skip(&peer.scan, 0, 0);
    g_assert_false(idletime_scan(&peer.scan, &rule, 0).others_first);
    g_assert_cmpuint(idletime_bg_board(&peer.bg)->line[0].waiting, ==, 0);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* Whoever may not start yet by its own interval has no turn. */
static void test_other_interval(void)
{
    Arena arena = arena_new();
    IdletimeRule slow = { 80 * MS, 5 * SEC, 1 };
    Peer peer[2];

    peer_join(&peer[0], &arena, "slow");
    peer_join(&peer[1], &arena, "fast");
    idletime_bg_enter(&peer[0].scan, slow.interval_ns, INT64_MAX, 100);
    idletime_bg_enter(&peer[1].scan, rule.interval_ns, INT64_MAX, 100);
    idletime_scan(&peer[1].scan, &rule, 0);
    /* Last foreground event at 1 s: 20 ms later the second, 80 ms the first. */
    g_assert_cmpint(idletime_scan_next(&peer[1].scan, SEC, 1019 * MS), ==, -1);
    g_assert_cmpint(idletime_scan_next(&peer[1].scan, SEC, 1020 * MS), ==, 1);
    g_assert_cmpint(idletime_scan_next(&peer[1].scan, SEC, 1079 * MS), ==, 1);
    g_assert_cmpint(idletime_scan_next(&peer[1].scan, SEC, 1080 * MS), ==, 0);
    /* Times near both ends must not wrap. */
    g_assert_cmpint(idletime_scan_next(&peer[1].scan, INT64_MIN + 1, INT64_MAX),
                    ==, 0);
    g_assert_cmpint(idletime_scan_next(&peer[1].scan, INT64_MAX, INT64_MIN),
                    ==, -1);
    peer_leave(&peer[0]);
    peer_leave(&peer[1]);
    arena_remove(&arena);
}

/* Past its deadline: before all turns, and the earliest deadline first. */
static void test_overdue(void)
{
    static const int64_t due_ns[] = { 300 * MS, 200 * MS, INT64_MAX };
    Arena arena = arena_new();
    IdletimeView view;
    Peer peer[3];

    for (int i = 0; i < 3; i++) {
        peer_join(&peer[i], &arena, "peer");
        idletime_bg_enter(&peer[i].scan, rule.interval_ns, due_ns[i], 100);
        /* Service received: 2, 1, 0 ms, so by turn the third is first. */
        idletime_bg_started(&peer[i].scan);
        idletime_bg_done(&peer[i].scan, (2 - i) * MS);
    }
    for (int i = 0; i < 3; i++) {
        idletime_scan(&peer[i].scan, &rule, 0);
        g_assert_cmpint(turn(&peer[i], 200 * MS - 1), ==, 2);
        g_assert_cmpint(turn(&peer[i], 200 * MS), ==, 1);
        g_assert_cmpint(turn(&peer[i], 300 * MS), ==, 1);
        view = idletime_scan(&peer[i].scan, &rule, 300 * MS);
        g_assert_cmpint(view.overdue_first, ==, i != 1);
        g_assert_cmpint(view.others_first, ==, i != 1);
    }
    /* Deaf: skipped, as in a turn.  Its next one is not overdue. */
    idletime_scan_skip(&peer[0].scan, 1, 300 * MS);
    g_assert_cmpint(turn(&peer[0], 300 * MS), ==, 0);
    idletime_bg_enter(&peer[1].scan, rule.interval_ns, SEC, 100);
    g_assert_cmpint(turn(&peer[2], 300 * MS), ==, 0);
    idletime_bg_leave(&peer[0].scan);
    g_assert_cmpint(turn(&peer[2], 300 * MS), ==, 2);
    for (int i = 0; i < 3; i++) {
        peer_leave(&peer[i]);
    }
    arena_remove(&arena);
}

/* While foreground is in service there are no turns, but deadlines. */
static void test_overdue_in_service(void)
{
    Arena arena = arena_new();
    IdletimeView view;
    Tenant tenant;
    Peer peer[2];

    for (int i = 0; i < 2; i++) {
        peer_join(&peer[i], &arena, "peer");
        idletime_bg_enter(&peer[i].scan, rule.interval_ns, 100 * MS, 100);
    }
    tenant_join(&tenant, &arena, "tenant");
    idletime_fg_begin(&tenant.writer, 1 * MS, 4096);
    view = idletime_scan(&peer[1].scan, &rule, 100 * MS - 1);
    g_assert_true(view.fg_in_service && !view.others_first);
    view = idletime_scan(&peer[1].scan, &rule, 100 * MS);
    g_assert_true(view.overdue_first);
    view = idletime_scan(&peer[0].scan, &rule, 100 * MS);
    g_assert_false(view.overdue_first);
    tenant_leave(&tenant);
    peer_leave(&peer[0]);
    peer_leave(&peer[1]);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/turns/shares", test_shares);
    g_test_add_func("/turns/credit", test_credit);
    g_test_add_func("/turns/skip-deaf", test_skip_deaf);
    g_test_add_func("/turns/skip-dead", test_skip_dead);
    g_test_add_func("/turns/other-interval", test_other_interval);
    g_test_add_func("/turns/overdue", test_overdue);
    g_test_add_func("/turns/overdue-in-service", test_overdue_in_service);
    return g_test_run();
}
