/*
 * The learner's looks: collisions, from a start of ours to what it has cost.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "looks.h"

/* A look that knows of all that its foreground did. */
static uint64_t seen(World *w)
{
    w->totals.fg_in_service = w->w.in_service;
    w->totals.fg_done = w->w.started - w->w.in_service;
    w->totals.fg_request_ns = w->w.request_ns;
    w->totals.quiet = !w->w.in_service;
    return look(w);
}

/* Ours starts, the foreground comes 3 ms later. */
static World *collision(void)
{
    World *w = world();

    burst(w, 10 * MS);
    burst(w, 10 * MS);
    w->l.cost.clean_done = 100;
    w->l.cost.clean_busy_ns = 100.0 * D;
    w->now += 10 * MS;
    idletime_learner_started(&w->l, (IdletimeFee) { .probe = false },
                             w->now);
    g_assert_cmpint(w->l.arrival_ns, ==, INT64_MAX);
    g_assert_cmpint(w->l.start_ns, ==, w->now);
    g_assert_cmpuint(w->l.own_started, ==, 1);
    begin(w, 3 * MS);
    look(w);
    g_assert_cmpint(w->l.arrival_ns, ==, w->now);
    return w;
}

/* Ours is over, so long after its start. */
static void done(World *w, int64_t took_ns, bool fg_idle)
{
    int64_t since_ns = w->l.start_ns;

    w->now = since_ns + took_ns;
    idletime_learner_done(&w->l, &(IdletimeServed) {
        .bytes = 4096, .fg_idle = fg_idle, .since_ns = since_ns,
    }, w->now);
    g_assert_cmpint(w->l.done_ns, ==, w->now);
}

static void test_collision(void)
{
    World *w = collision();

    done(w, D, true);
    g_assert_true(w->l.collision.open);
    near(w->l.cost.first_ns, 2 * MS);
    near(w->l.services.any.count, 11);
    /* Two more of them come before it is idle. */
    begin(w, 0);
    begin(w, 0);
    for (int i = 0; i < 3; i++) {
        g_assert_true(w->l.collision.open);
        g_assert_cmpuint(seen(w), ==, 0);
        end(w, D);
    }
    g_assert_cmpuint(seen(w), ==, 3 * 2 * MS);
    g_assert_false(w->l.collision.open);
    g_assert_cmpuint(seen(w), ==, 0);
    near(w->l.budget.cost_ns, 3 * 2 * MS);
    free(w->fg);
}

/* The first arrival is told, though more come; in one look or in two. */
static void test_first_arrival(void)
{
    World *w = collision();

    end(w, MS / 2);
    begin(w, MS / 2);
    look(w);
    done(w, D, true);
    near(w->l.cost.first_ns, 2 * MS);
    /* It was idle in between: the collision's end lies after that. */
    g_assert_cmpuint(look(w), ==, 0);
    g_assert_true(w->l.collision.open);
    free(w->fg);
    w = world();
    burst(w, 10 * MS);
    w->now += 10 * MS;
    idletime_learner_started(&w->l, (IdletimeFee) { .probe = false },
                             w->now);
    begin(w, MS);
    end(w, MS);
    begin(w, MS);
    look(w);
    g_assert_cmpint(w->l.arrival_ns, ==, w->l.start_ns + MS);
    /* What came at the very start was before it; what comes later counts. */
    free(w->fg);
    w = world();
    burst(w, 10 * MS);
    begin(w, 10 * MS);
    idletime_learner_started(&w->l, (IdletimeFee) { .probe = false },
                             w->now);
    end(w, MS);
    begin(w, MS);
    look(w);
    g_assert_cmpint(w->l.arrival_ns, ==, w->l.start_ns + 2 * MS);
    free(w->fg);
}

/* Idle again in the same look as its return. */
static void test_settled_in_gap(void)
{
    World *w = collision();

    done(w, D, true);
    end(w, 2 * D);
    begin(w, 10 * MS);
    end(w, D);
    begin(w, 10 * MS);
    g_assert_cmpuint(look(w), ==, 2 * MS);
    g_assert_false(w->l.collision.open);
    free(w->fg);
}

/* Beside foreground, or before it: none. */
static void test_no_collision(void)
{
    World *w = collision();

    done(w, D, false);
    g_assert_false(w->l.collision.open);
    near(w->l.services.any.count, 10);
    free(w->fg);
    w = collision();
    done(w, 3 * MS, true);
    g_assert_false(w->l.collision.open);
    near(w->l.services.any.count, 11);
    free(w->fg);
    w = collision();
    w->l.arrival_ns = w->l.start_ns;
    done(w, D, true);
    g_assert_false(w->l.collision.open);
    free(w->fg);
    /* Nothing is known of a service time yet. */
    w = collision();
    w->l.services.any.count = 1;
    done(w, D, true);
    g_assert_false(w->l.collision.open);
    done(w, D, true);
    g_assert_true(w->l.collision.open);
    free(w->fg);
}

/* A host that was stalled: a quarter more than the mean is ours, no more. */
static void test_stall(void)
{
    World *w = collision();

    done(w, 100 * MS, true);
    near(w->l.cost.first_ns, D + D / 4 - 3 * MS);
    free(w->fg);
}

/* Several in service at a time are one: the first to be met, the last end. */
static void test_one_collision(void)
{
    World *w = collision();
    int64_t arrival_ns = w->l.arrival_ns;

    done(w, D, true);
    w->l.arrival_ns += MS;
    done(w, D + MS, true);
    g_assert_cmpint(w->l.collision.arrival_ns, ==, arrival_ns);
    near(w->l.cost.first_ns, D + MS - 3 * MS);
    free(w->fg);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/learner/collision/cost", test_collision);
    g_test_add_func("/learner/collision/first-arrival", test_first_arrival);
    g_test_add_func("/learner/collision/in-gap", test_settled_in_gap);
    g_test_add_func("/learner/collision/none", test_no_collision);
    g_test_add_func("/learner/collision/stall", test_stall);
    g_test_add_func("/learner/collision/one", test_one_collision);
    return g_test_run();
}
