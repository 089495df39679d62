/*
 * Uplink: exact values at the bounds of clock and interval.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/uplink/clock.h"
#include "idletime/uplink/interval.h"

#define RATE        100000000       /* 100 Mbit/s: 80 ns a byte */
#define NS_A_BYTE   80
#define CREDIT_NS   (250 * 1000)
#define NOW         (10 * SEC)
#define FULL        1514
#define SAFE_NS     (5 * MS)

/* ---- the link's clock */

static void test_ahead(void)
{
    static const struct { int64_t seen, free_ns; } pair[] = {
        /* Less than the credit ago, the credit ago, longer ago. */
        { NOW - CREDIT_NS + 1, NOW - CREDIT_NS + 1 },
        { NOW - CREDIT_NS, NOW - CREDIT_NS },
        { NOW - CREDIT_NS - 1, NOW - CREDIT_NS },
        /* A queue of a second is one; of more, it is scribbled. */
        { NOW + SEC, NOW + SEC },
        { NOW + SEC + 1, NOW },
    };
    Arena arena = arena_new();
    Peer peer;

    peer_join(&peer, &arena, "link");
    for (unsigned n = 0; n < G_N_ELEMENTS(pair); n++) {
        int64_t *clock = &idletime_bg_board(&peer.bg)->header.uplink_free_ns;

        *clock = pair[n].seen;
        g_assert_cmpint(idletime_uplink_clock_take(&peer.scan, RATE, 100,
                                                   NOW),
                        ==, pair[n].free_ns + 100 * NS_A_BYTE);
        g_assert_cmpint(*clock, ==, pair[n].free_ns + 100 * NS_A_BYTE);
    }
    peer_leave(&peer);
    arena_remove(&arena);
}

/* One packet takes a second at most, at whatever rate. */
static void test_cost(void)
{
    static const struct { uint64_t rate, bytes; int64_t ns; } pair[] = {
        { 8, 1, SEC }, { 8, 2, SEC }, { 16, 1, SEC / 2 }, { 0, 1, SEC },
        { 1, 1, SEC }, { 2, 1, SEC }, { 9, 1, 8 * SEC / 9 },
        { RATE, 0, 0 }, { UINT64_MAX, 1, 0 },
    };
    Arena arena = arena_new();
    Peer peer;

    peer_join(&peer, &arena, "link");
    for (unsigned n = 0; n < G_N_ELEMENTS(pair); n++) {
        idletime_bg_board(&peer.bg)->header.uplink_free_ns = NOW;
        g_assert_cmpint(idletime_uplink_clock_take(&peer.scan, pair[n].rate,
                                                   pair[n].bytes, NOW),
                        ==, NOW + pair[n].ns);
    }
    peer_leave(&peer);
    arena_remove(&arena);
}

static int64_t foreground(IdletimeUplinkClock *link, const Peer *peer,
                          int64_t now_ns)
{
    return idletime_uplink_clock_foreground(link, &peer->scan, RATE, now_ns);
}

/* A foreground that sends nothing takes no time of the link. */
static void test_nothing_sent(void)
{
    Arena arena = arena_new();
    IdletimeUplinkClock link = { 0 };
    Tenant tenant;
    Peer peer;

    tenant_join(&tenant, &arena, "fg");
    peer_join(&peer, &arena, "bg");
    g_assert_cmpint(foreground(&link, &peer, NOW), ==, 0);
    g_assert_cmpint(foreground(&link, &peer, NOW + MS), ==, 0);
    idletime_fg_begin(&tenant.writer, NOW, 1000);
    g_assert_cmpint(foreground(&link, &peer, NOW + 2 * MS), ==,
                    NOW + MS + 1000 * NS_A_BYTE);
    g_assert_cmpint(foreground(&link, &peer, NOW + 3 * MS), ==,
                    NOW + MS + 1000 * NS_A_BYTE);
    peer_leave(&peer);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

/* What is queued already is before what comes. */
static void test_queue_grows(void)
{
    Arena arena = arena_new();
    IdletimeUplinkClock link = { 0 };
    Tenant tenant;
    Peer peer;

    tenant_join(&tenant, &arena, "fg");
    peer_join(&peer, &arena, "bg");
    foreground(&link, &peer, NOW);
    for (int i = 1; i <= 3; i++) {
        /* 8 ms of the link in each ms */
        idletime_fg_begin(&tenant.writer, NOW, 100000);
        g_assert_cmpint(foreground(&link, &peer, NOW + i * MS), ==,
                        NOW + i * 8 * MS);
    }
    peer_leave(&peer);
    tenant_leave(&tenant);
    arena_remove(&arena);
}

/* All foregrounds' bytes, of slots below the board's number alone. */
static void test_slots(void)
{
    Arena arena = arena_new();
    IdletimeUplinkClock link = { 0 };
    Tenant tenant[3];
    uint32_t *high;
    Peer peer;

    for (int i = 0; i < 3; i++) {
        tenant_join(&tenant[i], &arena, "fg");
    }
    peer_join(&peer, &arena, "bg");
    high = &((IdletimeBoardHeader *)tenant[0].fg.map)->slots_high;
    g_assert_cmpint(*high, ==, 3);
    *high = 2;
    foreground(&link, &peer, NOW);
    for (int i = 0; i < 3; i++) {
        idletime_fg_begin(&tenant[i].writer, NOW, 1000 << i);
    }
    g_assert_cmpint(foreground(&link, &peer, NOW + MS), ==,
                    NOW + 3000 * NS_A_BYTE);
    /* A scribbled number reads no further than the board. */
    *high = UINT32_MAX;
    link.free_ns = 0;
    g_assert_cmpint(foreground(&link, &peer, NOW + 2 * MS), ==,
                    NOW + MS + 4000 * NS_A_BYTE);
    for (int i = 0; i < 3; i++) {
        tenant_leave(&tenant[i]);
    }
    peer_leave(&peer);
    arena_remove(&arena);
}

/* ---- the interval */

static int64_t interval(const IdletimeUplinkPackets *u)
{
    return idletime_uplink_interval(u, SAFE_NS);
}

static void note(IdletimeUplinkPackets *u, int packets, int64_t took_ns)
{
    for (int i = 0; i < packets; i++) {
        idletime_uplink_note(u, FULL, 1, took_ns);
    }
}

/* The mean of 64 packets; of those before, each new one takes 1/64. */
static void test_memory(void)
{
    IdletimeUplinkPackets u = { 0 };

    note(&u, 63, MS);
    g_assert_cmpint(u.count, ==, 63);
    note(&u, 1, MS);
    g_assert_cmpint(u.count, ==, 64);
    note(&u, 1, 65 * MS);
    g_assert_cmpint(u.count, ==, 64);
    /* 63 of 1 ms and one of 65 ms: 2 ms in the mean, four packets 8 ms. */
    g_assert_cmpint(ABS(interval(&u) - 8 * MS), <=, 1);
}

/* 16 packets are a mean; 1000 bytes are a packet, 1024 of 1538 on the wire. */
static void test_known(void)
{
    IdletimeUplinkPackets u = { 0 };

    for (int i = 0; i < 16; i++) {
        g_assert_cmpint(interval(&u), ==, SAFE_NS);
        idletime_uplink_note(&u, 999, 1, 1024 * 1000);
        idletime_uplink_note(&u, 1000, 1, 1024 * 1000);
    }
    g_assert_cmpint(ABS(interval(&u) - 4 * 1538 * 1000), <=, 1);
}

static void test_beside(void)
{
    IdletimeUplinkPackets u = { 0 };

    /* Four at a time took 4 ms: each 1 ms. */
    for (int i = 0; i < 16; i++) {
        idletime_uplink_note(&u, FULL, 4, 4 * MS);
    }
    g_assert_cmpint(ABS(interval(&u) - 4 * MS), <=, 1);
}

/* A packet of longer than 1 s is taken for one of 1 s. */
static void test_bounds(void)
{
    IdletimeUplinkPackets u = { 0 };

    note(&u, 16, SEC);
    g_assert_cmpint(ABS(interval(&u) - 4 * SEC), <=, 4);
    u = (IdletimeUplinkPackets) { 0 };
    note(&u, 16, SEC + MS);
    g_assert_cmpint(ABS(interval(&u) - 4 * SEC), <=, 4);
    u = (IdletimeUplinkPackets) { 0 };
    note(&u, 16, -1);
    g_assert_cmpint(u.sum_ns, ==, 0);
    /* 2 ms at least: four packets of 500 us, and of a little more. */
    u = (IdletimeUplinkPackets) { 0 };
    note(&u, 16, 499 * 1000);
    g_assert_cmpint(interval(&u), ==, 2 * MS);
    u = (IdletimeUplinkPackets) { 0 };
    note(&u, 16, 501 * 1000);
    g_assert_cmpint(ABS(interval(&u) - 2004 * 1000), <=, 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/uplink/clock/ahead", test_ahead);
    g_test_add_func("/uplink/clock/cost", test_cost);
    g_test_add_func("/uplink/clock/nothing-sent", test_nothing_sent);
    g_test_add_func("/uplink/clock/queue-grows", test_queue_grows);
    g_test_add_func("/uplink/clock/slots", test_slots);
    g_test_add_func("/uplink/interval/memory", test_memory);
    g_test_add_func("/uplink/interval/known", test_known);
    g_test_add_func("/uplink/interval/beside", test_beside);
    g_test_add_func("/uplink/interval/bounds", test_bounds);
    return g_test_run();
}
