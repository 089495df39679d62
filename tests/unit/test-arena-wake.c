/*
 * Arena: waking, sleeping, and those who wake too often.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Time is measured here, but only lower bounds are asserted: a busy machine
 * makes sleepers later, never earlier.
 */
#include "test.h"

#define FLOODERS 3
/* 200 ms at least, where one wake in 100 us is heard. */
#define HEARD 2000

static int64_t clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * SEC + ts.tv_nsec;
}

/* ---- floods */

/* How long it takes @victim to come back @count times after the first. */
static int64_t time_of_returns(Peer *victim, int count,
                               void (*before_each)(Peer *victim))
{
    IdletimeSleep sleep = { 0 };
    int64_t begin_ns = 0;

    for (int i = 0; i <= count; i++) {
        before_each(victim);
        idletime_bg_sleep(&victim->scan, &sleep, 60000);
        begin_ns = begin_ns ? begin_ns : sleep.not_before_ns -
                                         IDLETIME_WAKE_GAP_NS;
    }
    return clock_ns() - begin_ns;
}

static void assert_bounded(Peer *victim,
                           void (*before_each)(Peer *victim))
{
    int64_t took_ns = time_of_returns(victim, HEARD, before_each);

    g_test_message("%d returns in %.1f ms", HEARD, took_ns / 1e6);
    g_assert_cmpint(took_ns, >=, HEARD * IDLETIME_WAKE_GAP_NS);
}

static void wake_self(Peer *victim)
{
    idletime_bg_wake(victim->scan.bg, victim->slot.index);
}

static void do_nothing(Peer *victim)
{
    (void)victim;
}

/* There is always a wake that was not heard yet. */
static void test_always_woken(void)
{
    Arena arena = arena_new();
    Peer victim;

    peer_join(&victim, &arena, "victim");
    assert_bounded(&victim, wake_self);
    peer_leave(&victim);
    arena_remove(&arena);
}

static int flood(ChildEnd *end, void *data)
{
    Peer peer;

    peer_join(&peer, data, "flooder");
    end_tell(end, 'r');
    for (;;) {
        idletime_bg_wake(peer.scan.bg, 0);
    }
    return 0;
}

/* Three other processes do nothing but wake it. */
static void test_flood(void)
{
    Arena arena = arena_new();
    Child child[FLOODERS];
    Peer victim;

    peer_join(&victim, &arena, "victim");
    for (int i = 0; i < FLOODERS; i++) {
        child[i] = child_start(flood, &arena);
        g_assert_cmpint(child_hear(&child[i]), ==, 'r');
    }
    assert_bounded(&victim, do_nothing);
    for (int i = 0; i < FLOODERS; i++) {
        child_kill(&child[i]);
    }
    peer_leave(&victim);
    arena_remove(&arena);
}

/* ---- what is not a flood */

/* The first wake after a pause is heard at once, whenever the last was. */
static void test_first_is_not_delayed(void)
{
    Arena arena = arena_new();
    IdletimeSleep sleep = { 0 };
    Peer peer;

    peer_join(&peer, &arena, "peer");
    idletime_bg_wake(peer.scan.bg, peer.slot.index);
    g_assert_true(idletime_bg_sleep(&peer.scan, &sleep, 60000));
    g_assert_cmpint(sleep.not_before_ns, >, clock_ns() - SEC);
    /* Far in the past, as after a pause: nothing is waited for.  Were the
     * end of the gap not in the past any more, this would take for ever. */
    sleep.not_before_ns = clock_ns() - 1;
    idletime_bg_wake(peer.scan.bg, peer.slot.index);
    g_assert_true(idletime_bg_sleep(&peer.scan, &sleep, 60000));
    g_assert_cmpuint(sleep.seen, ==, 2);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* Wakes within the gap are one; none is lost. */
static void test_coalesced(void)
{
    Arena arena = arena_new();
    IdletimeSleep sleep = { 0 };
    Peer peer;

    peer_join(&peer, &arena, "peer");
    for (int i = 0; i < 5; i++) {
        idletime_bg_wake(peer.scan.bg, peer.slot.index);
    }
    g_assert_true(idletime_bg_sleep(&peer.scan, &sleep, 60000));
    g_assert_cmpuint(sleep.seen, ==, 5);
    g_assert_false(idletime_bg_sleep(&peer.scan, &sleep, 1));
    idletime_bg_wake(peer.scan.bg, peer.slot.index);
    g_assert_true(idletime_bg_sleep(&peer.scan, &sleep, 60000));
    g_assert_cmpuint(sleep.seen, ==, 6);
    /* What is there when it begins counts as handled. */
    idletime_bg_wake(peer.scan.bg, peer.slot.index);
    idletime_bg_sleep_begin(&peer.scan, &sleep);
    g_assert_false(idletime_bg_sleep(&peer.scan, &sleep, 1));
    peer_leave(&peer);
    arena_remove(&arena);
}

/* Milliseconds are milliseconds, below and above a second. */
static void test_timeout(void)
{
    static const int timeout_ms[] = { 50, 1050 };
    Arena arena = arena_new();
    Peer peer;

    peer_join(&peer, &arena, "peer");
    for (unsigned i = 0; i < G_N_ELEMENTS(timeout_ms); i++) {
        IdletimeSleep sleep = { 0 };
        int64_t begin_ns = clock_ns();

        g_assert_false(idletime_bg_sleep(&peer.scan, &sleep, timeout_ms[i]));
        g_assert_cmpint(clock_ns() - begin_ns, >=, timeout_ms[i] * MS);
    }
    peer_leave(&peer);
    arena_remove(&arena);
}

/* Sleeps until it is woken, as often as it is told. */
static int sleeper(ChildEnd *end, void *data)
{
    IdletimeSleep sleep = { 0 };
    Peer peer;

    peer_join(&peer, data, "sleeper");
    end_tell(end, 'r');
    while (sleep.seen < 100) {
        if (!idletime_bg_sleep(&peer.scan, &sleep, 60000)) {
            return 1;
        }
        end_tell(end, 'w');
    }
    return sleep.seen == 100 ? 0 : 2;
}

static void test_wake(void)
{
    Arena arena = arena_new();
    Child child = child_start(sleeper, &arena);
    Peer peer;

    g_assert_cmpint(child_hear(&child), ==, 'r');
    peer_join(&peer, &arena, "waker");
    for (int i = 0; i < 100; i++) {
        idletime_bg_wake(peer.scan.bg, 0);
        g_assert_cmpint(child_hear(&child), ==, 'w');
    }
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    /* Nobody outside the board is woken, and nothing is hit. */
    idletime_bg_wake(peer.scan.bg, IDLETIME_SLOTS);
    idletime_bg_wake(peer.scan.bg, UINT32_MAX);
    peer_leave(&peer);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/wake/wake", test_wake);
    g_test_add_func("/wake/coalesced", test_coalesced);
    g_test_add_func("/wake/first-is-not-delayed", test_first_is_not_delayed);
    g_test_add_func("/wake/timeout", test_timeout);
    g_test_add_func("/wake/always-woken", test_always_woken);
    g_test_add_func("/wake/flood", test_flood);
    return g_test_run();
}
