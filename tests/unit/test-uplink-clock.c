/*
 * Uplink: the clock.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/uplink/clock.h"

#define RATE        100000000       /* 100 Mbit/s: 80 ns a byte */
#define NS_A_BYTE   80
#define CREDIT_NS   (250 * 1000)
#define NOW         (10 * SEC)

static void test_rate(void)
{
    Arena arena = arena_new();
    int64_t free_ns = NOW - CREDIT_NS;
    Peer peer;

    peer_join(&peer, &arena, "uplink");
    /* Back to back: each adds its own time, whatever the clock says. */
    for (int i = 1; i <= 1000; i++) {
        free_ns += i * NS_A_BYTE;
        g_assert_cmpint(idletime_uplink_clock_take(&peer.scan, RATE, i, NOW),
                        ==, free_ns);
    }
    /* An idle uplink saves up 250 us, not more. */
    g_assert_cmpint(idletime_uplink_clock_take(&peer.scan, RATE, 1000,
                                               NOW + SEC), ==,
                    NOW + SEC - CREDIT_NS + 1000 * NS_A_BYTE);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* Two processes share the uplink: each waits for the other's bytes. */
static void test_shared(void)
{
    Arena arena = arena_new();
    Peer peer[2];
    int64_t first, second;

    for (int i = 0; i < 2; i++) {
        peer_join(&peer[i], &arena, "uplink");
    }
    first = idletime_uplink_clock_take(&peer[0].scan, RATE, 5000, NOW);
    second = idletime_uplink_clock_take(&peer[1].scan, RATE, 5000, NOW);
    g_assert_cmpint(second - first, ==, 5000 * NS_A_BYTE);
    for (int i = 0; i < 2; i++) {
        peer_leave(&peer[i]);
    }
    arena_remove(&arena);
}

/* Whatever is on the board, the wait is bounded and nothing overflows. */
static void test_scribbled(void)
{
    static const int64_t value[] = {
        INT64_MIN, -1, 0, NOW + 2 * SEC, INT64_MAX - 1, INT64_MAX,
    };
    static const uint64_t rate[] = { 0, 1, RATE, 1000000000000ull,
                                     UINT64_MAX };
    Arena arena = arena_new();
    int64_t free_ns;
    Peer peer;

    peer_join(&peer, &arena, "uplink");
    for (unsigned v = 0; v < G_N_ELEMENTS(value); v++) {
        for (unsigned r = 0; r < G_N_ELEMENTS(rate); r++) {
            idletime_bg_board(&peer.bg)->header.uplink_free_ns = value[v];
            free_ns = idletime_uplink_clock_take(&peer.scan, rate[r],
                                                 UINT64_MAX, NOW);
            g_assert_cmpint(free_ns, >=, NOW - CREDIT_NS);
            g_assert_cmpint(free_ns, <=, NOW + SEC);
        }
    }
    peer_leave(&peer);
    arena_remove(&arena);
}

/* The foreground's bytes since the last look take the uplink from there on. */
static void test_foreground(void)
{
    Arena arena = arena_new();
    IdletimeUplinkClock clock = { 0 };
    Tenant tenant;
    Peer peer;

    tenant_join(&tenant, &arena, "fg");
    peer_join(&peer, &arena, "bg");
    idletime_fg_begin(&tenant.writer, NOW, 1 << 20);
    /* What was before the first look is not known. */
    g_assert_cmpint(idletime_uplink_clock_foreground(&clock, &peer.scan, RATE,
                                                     NOW), ==, 0);
    idletime_fg_begin(&tenant.writer, NOW, 1000);
    g_assert_cmpint(idletime_uplink_clock_foreground(&clock, &peer.scan, RATE,
                                                     NOW + 5 * MS),
                    ==, NOW + 1000 * NS_A_BYTE);
    idletime_fg_begin(&tenant.writer, NOW, 2000);
    g_assert_cmpint(idletime_uplink_clock_foreground(&clock, &peer.scan, RATE,
                                                     NOW + 6 * MS),
                    ==, NOW + 5 * MS + 2000 * NS_A_BYTE);
    /* More than a queue holds: bounded. */
    idletime_fg_begin(&tenant.writer, NOW, 1ull << 60);
    g_assert_cmpint(idletime_uplink_clock_foreground(&clock, &peer.scan, RATE,
                                                     NOW + 7 * MS),
                    ==, NOW + 107 * MS);
    /* It leaves: nothing is sent by that. */
    tenant_leave(&tenant);
    g_assert_cmpint(idletime_uplink_clock_foreground(&clock, &peer.scan, RATE,
                                                     NOW + SEC), ==, NOW + 107 * MS);
    peer_leave(&peer);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/uplink-clock/rate", test_rate);
    g_test_add_func("/uplink-clock/shared", test_shared);
    g_test_add_func("/uplink-clock/scribbled", test_scribbled);
    g_test_add_func("/uplink-clock/foreground", test_foreground);
    return g_test_run();
}
