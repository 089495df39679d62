/*
 * Arena: waking, sleeping, and those who wake too often.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Time is measured here, but only lower bounds are asserted: a busy machine
 * makes sleepers later, never earlier.
 */
#include "test.h"
#include <linux/futex.h>
#include <sys/syscall.h>

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

typedef struct Flood {
    Peer *victim;
    uint32_t how;
    uint32_t stop;
} Flood;

/* A proper wake, again and again. */
static void flood_wake(Flood *flood)
{
    idletime_bg_wake(&flood->victim->scan, flood->victim->slot.index);
}

/* The kernel is told to wake, and nothing was written. */
static void flood_futex(Flood *flood)
{
    syscall(SYS_futex, &idletime_scan_own(&flood->victim->scan)->wake,
            FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The word is written, and nobody is told. */
static void flood_word(Flood *flood)
{
    __atomic_add_fetch(&idletime_scan_own(&flood->victim->scan)->wake, 3,
                       __ATOMIC_RELAXED);
}

static void *flood_run(void *data)
{
    static void (*const ways[])(Flood *flood) = {
        flood_wake, flood_futex, flood_word,
    };
    Flood *flood = data;

    while (!__atomic_load_n(&flood->stop, __ATOMIC_ACQUIRE)) {
        ways[flood->how](flood);
    }
    return NULL;
}

/* How long it takes the victim to come back @count times. */
static int64_t time_of_returns(Peer *victim, int count, int timeout_ms)
{
    IdletimeSleep sleep = { 0 };
    int64_t begin_ns = 0;

    for (int i = 0; i < count; i++) {
        idletime_bg_sleep(&victim->scan, &sleep, timeout_ms);
        begin_ns = begin_ns ? begin_ns : clock_ns();
    }
    return clock_ns() - begin_ns;
}

static void test_flood(gconstpointer data)
{
    Flood flood = { .how = GPOINTER_TO_UINT(data) };
    Arena arena = arena_new();
    GThread *thread[FLOODERS];
    int64_t took_ns;
    Peer victim;

    peer_join(&victim, &arena, "victim");
    flood.victim = &victim;
    for (int i = 0; i < FLOODERS; i++) {
        thread[i] = g_thread_new("flood", flood_run, &flood);
    }
    took_ns = time_of_returns(&victim, HEARD, 1000);
    __atomic_store_n(&flood.stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < FLOODERS; i++) {
        g_thread_join(thread[i]);
    }
    /* A clock reading of ours may be late by the first return. */
    g_test_message("%d returns in %.1f ms", HEARD, took_ns / 1e6);
    g_assert_cmpint(took_ns, >=, (HEARD - 2) * IDLETIME_WAKE_GAP_NS);
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
    idletime_bg_wake(&peer.scan, peer.slot.index);
    g_assert_true(idletime_bg_sleep(&peer.scan, &sleep, 60000));
    g_assert_cmpint(sleep.not_before_ns, >, clock_ns() - SEC);
    /* Far in the past, as after a pause: nothing is waited for.  Were the
     * end of the gap not in the past any more, this would take for ever. */
    sleep.not_before_ns = clock_ns() - 1;
    idletime_bg_wake(&peer.scan, peer.slot.index);
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
        idletime_bg_wake(&peer.scan, peer.slot.index);
    }
    g_assert_true(idletime_bg_sleep(&peer.scan, &sleep, 60000));
    g_assert_cmpuint(sleep.seen, ==, 5);
    g_assert_false(idletime_bg_sleep(&peer.scan, &sleep, 1));
    idletime_bg_wake(&peer.scan, peer.slot.index);
    g_assert_true(idletime_bg_sleep(&peer.scan, &sleep, 60000));
    g_assert_cmpuint(sleep.seen, ==, 6);
    /* What is there when it begins counts as handled. */
    idletime_bg_wake(&peer.scan, peer.slot.index);
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
        idletime_bg_wake(&peer.scan, 0);
        g_assert_cmpint(child_hear(&child), ==, 'w');
    }
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    /* Nobody outside the board is woken, and nothing is hit. */
    idletime_bg_wake(&peer.scan, IDLETIME_SLOTS);
    idletime_bg_wake(&peer.scan, UINT32_MAX);
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
    g_test_add_data_func("/wake/flood/wake", GUINT_TO_POINTER(0), test_flood);
    g_test_add_data_func("/wake/flood/futex", GUINT_TO_POINTER(1), test_flood);
    g_test_add_data_func("/wake/flood/word", GUINT_TO_POINTER(2), test_flood);
    return g_test_run();
}
