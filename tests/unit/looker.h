/*
 * What the tests of an observer share: somebody who looks beside it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_LOOKER_H
#define IDLETIME_LOOKER_H

#include "test.h"
#include "tests/qtest/idletime-observer.h"
#include <signal.h>

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 1 };

/* Who looks, beside the observer. */
typedef struct Looker {
    Arena arena;
    IdletimeObserver observer;
    Peer peer;
} Looker;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    if (!idletime_arena_sigbus(info->si_addr)) {
        _exit(70);
    }
}

static void look_from(Looker *l, bool any_file)
{
    IdletimeError err = { "" };

    l->arena = arena_new();
    peer_join(&l->peer, &l->arena, "peer");
    g_assert_true(idletime_observer_open(&l->observer, &l->peer.open, &err));
    l->observer.any_file = any_file;
    l->peer.scan.observer = &l->observer;
}

static void look_end(Looker *l)
{
    idletime_observer_close(&l->observer);
    idletime_observer_close(&l->observer);
    peer_leave(&l->peer);
    arena_remove(&l->arena);
}

static IdletimeView look(Looker *l, int64_t now_ns)
{
    return idletime_scan(&l->peer.scan, &rule, now_ns);
}

#define assert_news(l, news) \
    g_assert_cmpint(idletime_observer_watch(&(l)->observer), ==, \
                    IDLETIME_OBSERVER_##news)
#define assert_state(l, state) \
    g_assert_cmpint(idletime_observer_state(&(l)->observer), ==, \
                    IDLETIME_OBSERVER_##state)

static void declare(const Looker *l)
{
    g_autofree char *path = arena_file(&l->arena, IDLETIME_OBSERVED_DECLARED);

    g_assert_true(g_file_set_contents(path, "", 0, NULL));
}

/* One that listens is found. */
static void meet(Looker *l, TestObserver *o)
{
    assert_news(l, NO_NEWS);
    observer_greet(o);
    assert_news(l, CAME);
    assert_state(l, SEEN);
}

static void look_and_meet(Looker *l, TestObserver *o)
{
    look_from(l, true);
    observer_start(o, l->arena.dir);
    meet(l, o);
}

/* Pages that are truncated become empty ones. */
static void guard_pages(void)
{
    struct sigaction action = {
        .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO,
    };

    g_assert_cmpint(sigaction(SIGBUS, &action, NULL), ==, 0);
}

#endif
