/*
 * Uplink: the interval from the time of packets, and its exact bounds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/uplink/interval.h"

#define FULL            1514
#define SAFE_NS         (5 * MS)
#define LEAST_NS        (2 * MS)
/* 1538 bytes at 10 Mbit/s */
#define SLOW_NS         (1538 * 800LL)

static IdletimeUplinkPackets after(int packets, uint32_t bytes, uint32_t n,
                            int64_t took_ns)
{
    IdletimeUplinkPackets u = { 0 };

    for (int i = 0; i < packets; i++) {
        idletime_uplink_note(&u, bytes, n, took_ns);
    }
    return u;
}

static void assert_interval(IdletimeUplinkPackets u, int64_t ns)
{
    g_assert_cmpint(ABS(idletime_uplink_interval(&u, SAFE_NS) - ns), <=, 1);
}

static void test_rates(void)
{
    assert_interval(after(16, FULL, 1, SLOW_NS), 4 * SLOW_NS);
    /* Two in service: each waits for the one before it. */
    assert_interval(after(16, FULL, 2, 2 * SLOW_NS), 4 * SLOW_NS);
    /* 1000 of 1538 bytes in 1000 of 1538 parts of the time. */
    assert_interval(after(16, 1000, 1, 1024 * 800), 4 * SLOW_NS);
    /* 100 Mbit/s: 492 us would be less than a round trip. */
    assert_interval(after(16, FULL, 1, SLOW_NS / 10), LEAST_NS);
    assert_interval(after(16, FULL, 1, 0), LEAST_NS);
}

static void test_unknown(void)
{
    assert_interval((IdletimeUplinkPackets) { 0 }, SAFE_NS);
    assert_interval(after(15, FULL, 1, SLOW_NS), SAFE_NS);
    assert_interval(after(1000, 999, 1, SLOW_NS), SAFE_NS);
}

/* The rate of the link changes: after some 300 packets that is known. */
static void test_change(void)
{
    IdletimeUplinkPackets u = after(1000, FULL, 1, SLOW_NS / 10);

    for (int i = 0; i < 300; i++) {
        idletime_uplink_note(&u, FULL, 1, SLOW_NS);
    }
    /* (63/64)^300 = 0.9 % of the old one is left: 43 us of 4.92 ms. */
    g_assert_cmpint(idletime_uplink_interval(&u, SAFE_NS), >,
                    4 * SLOW_NS * 99 / 100);
}

/* A clock that jumps, a count that is not one: bounded. */
static void test_hostile(void)
{
    assert_interval(after(16, FULL, 0, INT64_MIN), LEAST_NS);
    assert_interval(after(16, FULL, 1, INT64_MAX), 4 * SEC);
    assert_interval(after(16, UINT32_MAX, UINT32_MAX, SEC), LEAST_NS);
}

/* ---- exact values */

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
static void test_known_bytes(void)
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
    g_test_add_func("/uplink-interval/rates", test_rates);
    g_test_add_func("/uplink-interval/unknown", test_unknown);
    g_test_add_func("/uplink-interval/change", test_change);
    g_test_add_func("/uplink-interval/hostile", test_hostile);
    g_test_add_func("/uplink-interval/memory", test_memory);
    g_test_add_func("/uplink-interval/known-bytes", test_known_bytes);
    g_test_add_func("/uplink-interval/beside", test_beside);
    g_test_add_func("/uplink-interval/bounds", test_bounds);
    return g_test_run();
}
