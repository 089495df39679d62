/*
 * The foreground comes back to a disk with an arm: who pays for what.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "looks.h"

/* A way back of 8 ms is known. */
static World *arm(void)
{
    World *w = world();

    burst(w, 10 * MS);
    burst(w, 10 * MS);
    w->l.seek.cost_ns = 8 * MS;
    return w;
}

/* Ours begins in a gap, and its time is over. */
static void run(World *w, uint32_t own, uint32_t all)
{
    w->now += MS;
    w->totals.bg_started += all;
    for (uint32_t i = 0; i < own; i++) {
        idletime_learner_started(&w->l, (IdletimeFee) { 0 }, w->now);
    }
    look(w);
    w->now += D;
}

/*
 * A foreground that comes back to a disk whose arm is elsewhere waits for it,
 * and so do those behind it: paid when it is idle again, once.
 */
static void test_return(void)
{
    World *w = arm();

    run(w, 1, 4);
    begin(w, MS);
    g_assert_cmpuint(look(w), ==, 0);
    g_assert_true(w->l.collision.open);
    near(w->l.collision.delay_ns, 0);
    near(w->l.collision.seek_ns, 8 * MS);
    /* One start in four was ours. */
    near(w->l.collision.part, 0.25);
    served(w, D + 8 * MS, D + 8 * MS);
    g_assert_cmpuint(look(w), ==, 2 * MS);
    g_assert_cmpuint(look(w), ==, 0);
    burst(w, 10 * MS);
    g_assert_cmpuint(look(w), ==, 0);
    /* Seen when it is over, by one who held nothing. */
    w->l.seek.cost_ns = 8 * MS;
    run(w, 2, 2);
    begin(w, MS);
    served(w, D + 8 * MS, D + 8 * MS);
    g_assert_cmpuint(look(w), ==, 8 * MS);
    /* Ours is in service when it comes: for both together. */
    look(w);
    w->l.seek.cost_ns = 8 * MS;
    run(w, 1, 1);
    w->now -= 2 * MS;
    begin(w, 0);
    w->now += 2 * MS;
    look(w);
    idletime_learner_done(&w->l, &(IdletimeServed) {
        .bytes = 4096, .fg_idle = true, .since_ns = w->now - D }, w->now);
    near(w->l.collision.delay_ns, 2 * MS);
    near(w->l.collision.part, 1);
    near(w->l.collided_ns, 2 * MS);
    served(w, D + 8 * MS, D + 10 * MS);
    g_assert_cmpuint(look(w), ==, 10 * MS);
    free(w->fg);
}

/* Starts that no look has seen yet are in the share: seven of another's. */
static void test_return_share(void)
{
    World *w = arm();

    run(w, 1, 1);
    w->totals.bg_started += 7;
    w->now += 7 * D;
    begin(w, MS);
    look(w);
    near(w->l.collision.part, 1 / 8.0);
    /* Three wait: all of them lose what the first one waits for. */
    w->totals.fg_in_service = 3;
    w->totals.quiet = false;
    look(w);
    for (int i = 0; i < 3; i++) {
        w->now += D + (i == 0 ? 8 * MS : 0);
        w->totals.fg_done++;
        w->totals.fg_in_service--;
        w->totals.fg_request_ns += (3 - i) * (D + (i == 0 ? 8 * MS : 0));
        w->totals.fg_last_ns = w->now;
        w->totals.quiet = i == 2;
        if (i == 2) {
            end(w, 0);
            g_assert_cmpuint(look(w), ==, 3 * MS);
        } else {
            g_assert_cmpuint(look(w), ==, 0);
        }
    }
    free(w->fg);
}

/*
 * What waited before the gap does not wait for the arm: a request of ours that
 * began beside a foreground of many requests, which was idle between two looks.
 */
static void test_return_late(void)
{
    World *w = arm();

    begin(w, 10 * MS);
    w->totals.fg_in_service = 2;
    w->totals.quiet = false;
    run(w, 1, 1);
    for (int i = 0; i < 20; i++) {
        w->now += D;
        w->totals.fg_done++;
        w->totals.fg_request_ns += 10 * D;
        look(w);
    }
    end(w, 0);
    begin(w, MS);
    look(w);
    g_assert_true(w->l.collision.open);
    end(w, D);
    w->totals.fg_done++;
    w->totals.fg_in_service = 0;
    w->totals.fg_request_ns += D;
    w->totals.quiet = true;
    g_assert_cmpuint(look(w), ==, 8 * MS);
    free(w->fg);
}

/* The disk served it before ours, and then again: the arm is paid once. */
static void test_return_once(void)
{
    World *w = arm();

    run(w, 1, 1);
    w->totals.bg_in_service = true;
    w->totals.quiet = false;
    w->now -= 4 * MS;
    begin(w, 0);
    served(w, MS, MS);
    g_assert_cmpuint(look(w), ==, 8 * MS);
    begin(w, MS);
    w->now += 2 * MS;
    look(w);
    idletime_learner_done(&w->l, &(IdletimeServed) {
        .bytes = 4096, .fg_idle = true, .since_ns = w->l.start_ns }, w->now);
    near(w->l.collision.delay_ns, 4 * MS);
    near(w->l.collision.seek_ns, 0);
    near(w->l.collision.part, 1);
    free(w->fg);
}

/* With several servers nothing is sought. */
static void test_no_return(void)
{
    World *w = world();

    w->l.seek.cost_ns = 8 * MS;
    w->l.seek.before = IDLETIME_BEFORE_BG;
    burst(w, 10 * MS);
    for (int n = 1; n <= 4; n++) {
        w->l.channels.level[n] = (IdletimeLevel) { 100, D, 0 };
    }
    idletime_channels_note(&w->l.channels, 1, D);
    w->l.own_started = 4;
    w->totals.bg_started = 8;
    burst(w, 10 * MS);
    g_assert_cmpuint(w->l.own_started, ==, 0);
    run(w, 1, 1);
    burst(w, 10 * MS);
    g_assert_false(w->l.collision.open);
    g_assert_cmpuint(look(w), ==, 0);
    free(w->fg);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/learner/return", test_return);
    g_test_add_func("/learner/return/share", test_return_share);
    g_test_add_func("/learner/return/late", test_return_late);
    g_test_add_func("/learner/return/once", test_return_once);
    g_test_add_func("/learner/no-return", test_no_return);
    return g_test_run();
}
