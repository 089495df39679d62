/*
 * Uplink: the clock, what it promises and its exact bounds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/uplink/clock.h"

#define RATE        100000000       /* 100 Mbit/s: 80 ns a byte */
#define NS_A_BYTE   80
#define CREDIT_NS   (250 * 1000)
#define NOW         (10 * SEC)

/* An uplink with so many background and foreground participants. */
typedef struct Uplink {
    Arena arena;
    Peer peer[2];
    Tenant tenant[3];
    int peers, tenants;
    IdletimeUplinkClock seen;   /* of the foreground, by the first peer */
} Uplink;

static void uplink_begin(Uplink *u, int peers, int tenants)
{
    *u = (Uplink) { .arena = arena_new(), .peers = peers, .tenants = tenants };
    for (int i = 0; i < tenants; i++) {
        tenant_join(&u->tenant[i], &u->arena, "fg");
    }
    for (int i = 0; i < peers; i++) {
        peer_join(&u->peer[i], &u->arena, "bg");
    }
}

static void uplink_end(Uplink *u)
{
    for (int i = 0; i < u->tenants; i++) {
        tenant_leave(&u->tenant[i]);
    }
    for (int i = 0; i < u->peers; i++) {
        peer_leave(&u->peer[i]);
    }
    arena_remove(&u->arena);
}

static int64_t *clock_of(Uplink *u)
{
    return &idletime_bg_board(&u->peer[0].bg)->header.uplink_free_ns;
}

static int64_t take(Uplink *u, int peer, uint64_t rate, uint64_t bytes,
                    int64_t now_ns)
{
    return idletime_uplink_clock_take(&u->peer[peer].scan, rate, bytes, now_ns);
}

static void send_bytes(Uplink *u, int tenant, uint64_t bytes)
{
    idletime_fg_begin(&u->tenant[tenant].writer, NOW, bytes);
}

static int64_t foreground(Uplink *u, int64_t now_ns)
{
    return idletime_uplink_clock_foreground(&u->seen, &u->peer[0].scan, RATE,
                                            now_ns);
}

/* ---- what the background sends */

static void test_rate(void)
{
    int64_t free_ns = NOW - CREDIT_NS;
    Uplink u;

    uplink_begin(&u, 1, 0);
    /* Back to back: each adds its own time, whatever the clock says. */
    for (int i = 1; i <= 1000; i++) {
        free_ns += i * NS_A_BYTE;
        g_assert_cmpint(take(&u, 0, RATE, i, NOW), ==, free_ns);
    }
    /* An idle uplink saves up 250 us, not more. */
    g_assert_cmpint(take(&u, 0, RATE, 1000, NOW + SEC), ==,
                    NOW + SEC - CREDIT_NS + 1000 * NS_A_BYTE);
    uplink_end(&u);
}

/* Two processes share the uplink: each waits for the other's bytes. */
static void test_shared(void)
{
    int64_t first, second;
    Uplink u;

    uplink_begin(&u, 2, 0);
    first = take(&u, 0, RATE, 5000, NOW);
    second = take(&u, 1, RATE, 5000, NOW);
    g_assert_cmpint(second - first, ==, 5000 * NS_A_BYTE);
    uplink_end(&u);
}

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
    Uplink u;

    uplink_begin(&u, 1, 0);
    for (unsigned n = 0; n < G_N_ELEMENTS(pair); n++) {
        *clock_of(&u) = pair[n].seen;
        g_assert_cmpint(take(&u, 0, RATE, 100, NOW), ==,
                        pair[n].free_ns + 100 * NS_A_BYTE);
        g_assert_cmpint(*clock_of(&u), ==, pair[n].free_ns + 100 * NS_A_BYTE);
    }
    uplink_end(&u);
}

/* One packet takes a second at most, at whatever rate. */
static void test_cost(void)
{
    static const struct { uint64_t rate, bytes; int64_t ns; } pair[] = {
        { 8, 1, SEC }, { 8, 2, SEC }, { 16, 1, SEC / 2 }, { 0, 1, SEC },
        { 1, 1, SEC }, { 2, 1, SEC }, { 9, 1, 8 * SEC / 9 },
        { RATE, 0, 0 }, { UINT64_MAX, 1, 0 },
    };
    Uplink u;

    uplink_begin(&u, 1, 0);
    for (unsigned n = 0; n < G_N_ELEMENTS(pair); n++) {
        *clock_of(&u) = NOW;
        g_assert_cmpint(take(&u, 0, pair[n].rate, pair[n].bytes, NOW), ==,
                        NOW + pair[n].ns);
    }
    uplink_end(&u);
}

/* Whatever is on the board, the wait is bounded and nothing overflows. */
static void test_scribbled(void)
{
    static const int64_t value[] = {
        INT64_MIN, -1, 0, NOW + 2 * SEC, INT64_MAX - 1, INT64_MAX,
    };
    static const uint64_t rate[] = { 0, 1, RATE, 1000000000000ull,
                                     UINT64_MAX };
    int64_t free_ns;
    Uplink u;

    uplink_begin(&u, 1, 0);
    for (unsigned v = 0; v < G_N_ELEMENTS(value); v++) {
        for (unsigned r = 0; r < G_N_ELEMENTS(rate); r++) {
            *clock_of(&u) = value[v];
            free_ns = take(&u, 0, rate[r], UINT64_MAX, NOW);
            g_assert_cmpint(free_ns, >=, NOW - CREDIT_NS);
            g_assert_cmpint(free_ns, <=, NOW + SEC);
        }
    }
    uplink_end(&u);
}

/* ---- what the foreground sends */

/* The foreground's bytes since the last look take the uplink from there on. */
static void test_foreground(void)
{
    Uplink u;

    uplink_begin(&u, 1, 1);
    send_bytes(&u, 0, 1 << 20);
    /* What was before the first look is not known. */
    g_assert_cmpint(foreground(&u, NOW), ==, 0);
    send_bytes(&u, 0, 1000);
    g_assert_cmpint(foreground(&u, NOW + 5 * MS), ==, NOW + 1000 * NS_A_BYTE);
    send_bytes(&u, 0, 2000);
    g_assert_cmpint(foreground(&u, NOW + 6 * MS), ==,
                    NOW + 5 * MS + 2000 * NS_A_BYTE);
    /* More than a queue holds: bounded. */
    send_bytes(&u, 0, 1ull << 60);
    g_assert_cmpint(foreground(&u, NOW + 7 * MS), ==, NOW + 107 * MS);
    /* It leaves: nothing is sent by that. */
    tenant_leave(&u.tenant[--u.tenants]);
    g_assert_cmpint(foreground(&u, NOW + SEC), ==, NOW + 107 * MS);
    uplink_end(&u);
}

/* What an observer saw takes the uplink as slots do; who dies takes it along. */
static void test_observed(void)
{
    IdletimeObserved page = {
        .magic = IDLETIME_OBSERVED_MAGIC, .version = IDLETIME_OBSERVED_VERSION,
    };
    IdletimeObserver observer = { .page = &page };
    Uplink u;

    uplink_begin(&u, 1, 1);
    u.peer[0].scan.observer = &observer;
    foreground(&u, NOW);
    page.bytes = 1000;
    send_bytes(&u, 0, 2000);
    g_assert_cmpint(foreground(&u, NOW + MS), ==, NOW + 3000 * NS_A_BYTE);
    page.bytes = 5000;
    g_assert_cmpint(foreground(&u, NOW + 2 * MS), ==,
                    NOW + MS + 4000 * NS_A_BYTE);
    page = (IdletimeObserved) { 0 };
    g_assert_cmpint(foreground(&u, NOW + 3 * MS), ==,
                    NOW + MS + 4000 * NS_A_BYTE);
    u.peer[0].scan.observer = NULL;
    uplink_end(&u);
}

/* A foreground that sends nothing takes no time of the link. */
static void test_nothing_sent(void)
{
    Uplink u;

    uplink_begin(&u, 1, 1);
    g_assert_cmpint(foreground(&u, NOW), ==, 0);
    g_assert_cmpint(foreground(&u, NOW + MS), ==, 0);
    send_bytes(&u, 0, 1000);
    g_assert_cmpint(foreground(&u, NOW + 2 * MS), ==,
                    NOW + MS + 1000 * NS_A_BYTE);
    g_assert_cmpint(foreground(&u, NOW + 3 * MS), ==,
                    NOW + MS + 1000 * NS_A_BYTE);
    uplink_end(&u);
}

/* What is queued already is before what comes. */
static void test_queue_grows(void)
{
    Uplink u;

    uplink_begin(&u, 1, 1);
    foreground(&u, NOW);
    for (int i = 1; i <= 3; i++) {
        /* 8 ms of the link in each ms */
        send_bytes(&u, 0, 100000);
        g_assert_cmpint(foreground(&u, NOW + i * MS), ==, NOW + i * 8 * MS);
    }
    uplink_end(&u);
}

/* All foregrounds' bytes, of slots below the board's number alone. */
static void test_slots(void)
{
    uint32_t *high;
    Uplink u;

    uplink_begin(&u, 1, 3);
    high = &((IdletimeBoardHeader *)u.tenant[0].fg.map)->slots_high;
    g_assert_cmpint(*high, ==, 3);
    *high = 2;
    foreground(&u, NOW);
    for (int i = 0; i < 3; i++) {
        send_bytes(&u, i, 1000 << i);
    }
    g_assert_cmpint(foreground(&u, NOW + MS), ==, NOW + 3000 * NS_A_BYTE);
    /* A scribbled number reads no further than the board. */
    *high = UINT32_MAX;
    u.seen.free_ns = 0;
    g_assert_cmpint(foreground(&u, NOW + 2 * MS), ==,
                    NOW + MS + 4000 * NS_A_BYTE);
    uplink_end(&u);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/uplink-clock/rate", test_rate);
    g_test_add_func("/uplink-clock/shared", test_shared);
    g_test_add_func("/uplink-clock/ahead", test_ahead);
    g_test_add_func("/uplink-clock/cost", test_cost);
    g_test_add_func("/uplink-clock/scribbled", test_scribbled);
    g_test_add_func("/uplink-clock/foreground", test_foreground);
    g_test_add_func("/uplink-clock/observed", test_observed);
    g_test_add_func("/uplink-clock/nothing-sent", test_nothing_sent);
    g_test_add_func("/uplink-clock/queue-grows", test_queue_grows);
    g_test_add_func("/uplink-clock/slots", test_slots);
    return g_test_run();
}
