/*
 * Arena: the in-flight cap over processes, by tokens.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#define CONTENDERS 6
#define ROUNDS 20000

static const IdletimeRule one = { 20 * MS, 5 * SEC, 1 };

static int64_t clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * SEC + ts.tv_nsec;
}

/* ---- contention */

typedef struct Contest {
    Arena arena;
    IdletimeRule rule;
    uint32_t *in_hand;          /* shared, independent of the arena */
} Contest;

static int contend(ChildEnd *end, void *data)
{
    Contest *contest = data;
    IdletimeGrant grant;
    int taken = 0;
    Peer peer;

    peer_join(&peer, &contest->arena, "contender");
    end_hear(end);
    while (taken < ROUNDS) {
        int64_t now_ns = clock_ns();

        idletime_scan(&peer.scan, &contest->rule, now_ns);
        if (!idletime_token_take(&peer.scan, &contest->rule, now_ns, &grant)) {
            sched_yield();
            continue;
        }
        if (__atomic_add_fetch(contest->in_hand, 1, __ATOMIC_SEQ_CST) >
            contest->rule.max_inflight) {
            return 1;
        }
        taken++;
        __atomic_sub_fetch(contest->in_hand, 1, __ATOMIC_SEQ_CST);
        idletime_token_give(&peer.scan, grant);
    }
    return 0;
}

static void test_contention(gconstpointer data)
{
    Contest contest = {
        .arena = arena_new(),
        .rule = { 0, 5 * SEC, GPOINTER_TO_UINT(data) },
    };
    Child child[CONTENDERS];

    contest.in_hand = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < CONTENDERS; i++) {
        child[i] = child_start(contend, &contest);
    }
    for (int i = 0; i < CONTENDERS; i++) {
        child_tell(&child[i], 'g');
    }
    for (int i = 0; i < CONTENDERS; i++) {
        g_assert_cmpint(child_exit_status(&child[i]), ==, 0);
    }
    munmap(contest.in_hand, 4096);
    arena_remove(&contest.arena);
}

/* ---- owners that die or stop */

typedef struct Owner {
    Arena arena;
    int64_t now_ns;
} Owner;

static int take_and_wait(ChildEnd *end, void *data)
{
    Owner *owner = data;
    IdletimeGrant grant;
    Peer peer;

    peer_join(&peer, &owner->arena, "owner");
    end_tell(end, idletime_token_take(&peer.scan, &one, owner->now_ns, &grant)
             ? 'y' : 'n');
    end_hear(end);
    idletime_token_give(&peer.scan, grant);
    end_tell(end, 'g');
    end_hear(end);
    return 0;
}

static uint32_t taken(Peer *peer, int64_t now_ns)
{
    return idletime_scan(&peer->scan, &one, now_ns).bg_in_service;
}

static void test_killed(void)
{
    Owner owner = { arena_new(), 100 * MS };
    Child child = child_start(take_and_wait, &owner);
    IdletimeGrant grant;
    Peer peer;

    g_assert_cmpint(child_hear(&child), ==, 'y');
    peer_join(&peer, &owner.arena, "peer");
    g_assert_cmpuint(taken(&peer, 100 * MS), ==, 1);
    g_assert_false(idletime_token_take(&peer.scan, &one, 100 * MS, &grant));
    child_kill(&child);
    /* 10 ms old: doubted, asked about, and taken from the dead. */
    g_assert_cmpuint(taken(&peer, 109 * MS), ==, 1);
    g_assert_cmpuint(taken(&peer, 110 * MS), ==, 0);
    g_assert_true(idletime_token_take(&peer.scan, &one, 110 * MS, &grant));
    g_assert_cmpuint(taken(&peer, 111 * MS), ==, 1);
    peer_leave(&peer);
    arena_remove(&owner.arena);
}

/* Who has its slot next does not give the dead one's token a life. */
static void test_slot_used_again(void)
{
    Owner owner = { arena_new(), 100 * MS };
    Child child = child_start(take_and_wait, &owner);
    Peer peer, next;

    g_assert_cmpint(child_hear(&child), ==, 'y');
    peer_join(&peer, &owner.arena, "peer");
    child_kill(&child);
    peer_join(&next, &owner.arena, "next");
    g_assert_cmpuint(next.scan.self, ==, 0);
    g_assert_cmpuint(taken(&peer, 101 * MS), ==, 0);
    peer_leave(&next);
    peer_leave(&peer);
    arena_remove(&owner.arena);
}

static void test_stopped(void)
{
    Owner owner = { arena_new(), 100 * MS };
    Child child = child_start(take_and_wait, &owner);
    IdletimeGrant grant;
    Peer peer;

    g_assert_cmpint(child_hear(&child), ==, 'y');
    peer_join(&peer, &owner.arena, "peer");
    kill(child.pid, SIGSTOP);
    /* The lease is max_hold, 5 s, from 0.1 s on. */
    g_assert_cmpuint(taken(&peer, 5100 * MS), ==, 1);
    g_assert_cmpuint(taken(&peer, 5101 * MS), ==, 0);
    g_assert_true(idletime_token_take(&peer.scan, &one, 5101 * MS, &grant));
    /* It comes back and gives what is no longer its own. */
    kill(child.pid, SIGCONT);
    child_tell(&child, 'g');
    g_assert_cmpint(child_hear(&child), ==, 'g');
    g_assert_cmpuint(taken(&peer, 5101 * MS), ==, 1);
    idletime_token_give(&peer.scan, grant);
    g_assert_cmpuint(taken(&peer, 5101 * MS), ==, 0);
    child_tell(&child, 'q');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    peer_leave(&peer);
    arena_remove(&owner.arena);
}

/* ---- time */

/* One reads the clock, another takes a token, the first one looks. */
static void test_clock_read_before(void)
{
    Arena arena = arena_new();
    IdletimeGrant grant;
    Peer early, late;

    peer_join(&early, &arena, "early");
    peer_join(&late, &arena, "late");
    g_assert_true(idletime_token_take(&late.scan, &one, 101 * MS, &grant));
    g_assert_cmpuint(taken(&early, 101 * MS - 1), ==, 1);
    g_assert_cmpuint(taken(&early, 50 * MS), ==, 1);
    /* 5.001 s ahead (a lie) is more than a lease. */
    idletime_token_give(&late.scan, grant);
    g_assert_true(idletime_token_take(&late.scan, &one, 6001 * MS, &grant));
    g_assert_cmpuint(taken(&early, 1001 * MS), ==, 1);
    g_assert_cmpuint(taken(&early, 1000 * MS), ==, 0);
    peer_leave(&early);
    peer_leave(&late);
    arena_remove(&arena);
}

/* The token stores 48 bits of milliseconds; compared modulo that. */
static void test_wrap(void)
{
    const int64_t wrap_ms = 1LL << 48;
    Arena arena = arena_new();
    IdletimeBgBoard *board;
    IdletimeGrant grant;
    Peer peer;

    peer_join(&peer, &arena, "peer");
    board = idletime_bg_board(&peer.bg);
    /* Written 3 ms before the wrap; 2 ms after it it is 5 ms old.  int64_t ns
     * end at 2^63 / 10^6 ms, before the first wrap, so we write the word. */
    board->token[0] = 1ULL << 48 | (uint64_t)(wrap_ms - 3);
    g_assert_cmpuint(taken(&peer, 2 * MS), ==, 1);
    /* 4998 ms + 3 ms is over the lease of 5000. */
    g_assert_cmpuint(taken(&peer, 4997 * MS), ==, 1);
    g_assert_cmpuint(taken(&peer, 4998 * MS), ==, 0);
    /* At the end of time, too. */
    g_assert_true(idletime_token_take(&peer.scan, &one, INT64_MAX, &grant));
    g_assert_cmpuint(taken(&peer, INT64_MAX), ==, 1);
    g_assert_cmpuint(taken(&peer, INT64_MAX - 9 * MS), ==, 1);
    idletime_token_give(&peer.scan, grant);
    g_assert_cmpuint(taken(&peer, INT64_MAX), ==, 0);
    peer_leave(&peer);
    arena_remove(&arena);
}

/*
 * The clock jumps by an hour while a token is out: its lease is over, so it
 * is taken back from a living owner; what that one gives back then is not
 * the new owner's.
 */
static void test_jump(void)
{
    const int64_t hour = 3600 * SEC;
    Arena arena = arena_new();
    IdletimeGrant old, fresh;
    Peer a, b;

    peer_join(&a, &arena, "a");
    peer_join(&b, &arena, "b");
    g_assert_true(idletime_token_take(&a.scan, &one, SEC, &old));
    g_assert_false(idletime_token_take(&b.scan, &one, SEC + MS, &fresh));
    /* The look takes it back. */
    g_assert_cmpuint(taken(&b, SEC + hour), ==, 0);
    g_assert_true(idletime_token_take(&b.scan, &one, SEC + hour, &fresh));
    idletime_token_give(&a.scan, old);
    g_assert_cmpuint(taken(&a, SEC + hour), ==, 1);
    idletime_token_give(&b.scan, fresh);
    g_assert_cmpuint(taken(&a, SEC + hour), ==, 0);
    peer_leave(&a);
    peer_leave(&b);
    arena_remove(&arena);
}

static void test_lease(void)
{
    IdletimeRule rule = one;

    g_assert_cmpint(idletime_lease_ns(&rule), ==, 5 * SEC);
    rule.max_hold_ns = 70 * SEC;
    g_assert_cmpint(idletime_lease_ns(&rule), ==, 70 * SEC);
    rule.max_hold_ns = 0;
    g_assert_cmpint(idletime_lease_ns(&rule), >, 0);
}

/* 64 tokens, whatever the rule says; each another one; all come back. */
static void test_all(void)
{
    Arena arena = arena_new();
    IdletimeRule rule = { 0, 5 * SEC, 1000 };
    IdletimeGrant grant[IDLETIME_TOKENS + 1];
    Peer peer;

    peer_join(&peer, &arena, "peer");
    for (int i = 0; i < IDLETIME_TOKENS; i++) {
        g_assert_true(idletime_token_take(&peer.scan, &rule, MS, &grant[i]));
        g_assert_cmpuint(grant[i].index, ==, i);
    }
    g_assert_false(idletime_token_take(&peer.scan, &rule, MS,
                                       &grant[IDLETIME_TOKENS]));
    g_assert_cmpuint(idletime_scan(&peer.scan, &rule, MS).bg_in_service, ==,
                     IDLETIME_TOKENS);
    for (int i = 0; i < IDLETIME_TOKENS; i++) {
        idletime_token_give(&peer.scan, grant[i]);
    }
    g_assert_cmpuint(idletime_scan(&peer.scan, &rule, MS).bg_in_service, ==, 0);
    peer_leave(&peer);
    arena_remove(&arena);
}

/* Each sees the tokens of its own cap: two are out, of one or of two. */
static void test_smaller_cap(void)
{
    Arena arena = arena_new();
    IdletimeRule two = { 0, 5 * SEC, 2 };
    IdletimeGrant grant[2], none;
    Peer peer;

    peer_join(&peer, &arena, "peer");
    for (int i = 0; i < 2; i++) {
        g_assert_true(idletime_token_take(&peer.scan, &two, MS, &grant[i]));
    }
    g_assert_cmpuint(idletime_tokens_taken(&peer.scan, &two, MS), ==, 2);
    g_assert_cmpuint(idletime_tokens_taken(&peer.scan, &one, MS), ==, 1);
    g_assert_false(idletime_token_take(&peer.scan, &one, MS, &none));
    /* The second token is none of the cap of one. */
    idletime_token_give(&peer.scan, grant[0]);
    g_assert_cmpuint(idletime_tokens_taken(&peer.scan, &one, MS), ==, 0);
    g_assert_cmpuint(idletime_tokens_taken(&peer.scan, &two, MS), ==, 1);
    /* Given twice, it is not taken from who has it now. */
    g_assert_true(idletime_token_take(&peer.scan, &one, 2 * MS, &none));
    idletime_token_give(&peer.scan, grant[0]);
    g_assert_cmpuint(idletime_tokens_taken(&peer.scan, &one, 2 * MS), ==, 1);
    peer_leave(&peer);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/tokens/contention/1", GUINT_TO_POINTER(1),
                         test_contention);
    g_test_add_data_func("/tokens/contention/3", GUINT_TO_POINTER(3),
                         test_contention);
    g_test_add_func("/tokens/killed", test_killed);
    g_test_add_func("/tokens/slot-used-again", test_slot_used_again);
    g_test_add_func("/tokens/stopped", test_stopped);
    g_test_add_func("/tokens/clock-read-before", test_clock_read_before);
    g_test_add_func("/tokens/wrap", test_wrap);
    g_test_add_func("/tokens/jump", test_jump);
    g_test_add_func("/tokens/lease", test_lease);
    g_test_add_func("/tokens/all", test_all);
    g_test_add_func("/tokens/smaller-cap", test_smaller_cap);
    return g_test_run();
}
