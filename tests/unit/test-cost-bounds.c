/*
 * Cost of a collision: exact values at the bounds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/cost.h"

#define SERVICE         (4.0 * MS)

static void near(double got, double want)
{
    g_assert_cmpfloat(ABS(got - want), <=, 1e-6 * MAX(ABS(want), 1));
}

static double cost_look(IdletimeCost *c, IdletimeSpan s)
{
    return idletime_cost_look(c, &s, SERVICE);
}

static IdletimeSpan clean(double done, double busy_ns)
{
    return (IdletimeSpan) { .done = done, .busy_ns = busy_ns, .quiet = true };
}

/* What met no background is remembered, 2048 requests of it. */
static void test_clean(void)
{
    IdletimeCost c = { 0 };
    IdletimeSpan dirty = { .came = 5, .done = 10, .in_service = 3,
                           .request_ns = 70, .busy_ns = 50,
                           .background = true };

    near(cost_look(&c, clean(1000, 2000)), 0);
    near(c.clean_done, 1000);
    near(c.clean_busy_ns, 2000);
    near(c.service_ns, SERVICE);
    cost_look(&c, clean(3096, 8192));
    near(c.clean_done, 2048);
    near(c.clean_busy_ns, 10192 / 2.0);
    /* What met some is not among it, nor what comes before it is over. */
    cost_look(&c, dirty);
    dirty.background = false;
    dirty.in_service = 2;
    cost_look(&c, dirty);
    near(c.clean_done, 2048);
    near(c.came, 10);
    near(c.done, 20);
    near(c.request_ns, 140);
    near(c.in_service, 3);
    g_assert_true(c.dirty);
    cost_look(&c, clean(1, 1));
    g_assert_false(c.dirty);
    near(c.came + c.done + c.request_ns + c.in_service, 0);
    near(c.clean_done, 2048);
    dirty.background = dirty.quiet = true;
    cost_look(&c, dirty);
    g_assert_false(c.dirty);
    /* Of the most ever so much is forgotten, by requests that complete. */
    near(c.most, 3 * (1 - 10 / 1024.0) * (1 - 1 / 1024.0) * (1 - 10 / 1024.0));
    idletime_cost_doubt(&c);
    near(c.most, 0);
    near(c.clean_done, 16);
    near(c.clean_busy_ns, 10192 / 2.0 / 128);
}

/* One was delayed by 3 ms; requests take 2 ms, known of 16 of them. */
static IdletimeCost collision(void)
{
    IdletimeCost c = { .clean_done = 16, .clean_busy_ns = 32 * MS,
                       .service_ns = SERVICE };

    idletime_cost_collision(&c, 3.0 * MS);
    g_assert_true(c.dirty);
    near(c.first_ns, 3.0 * MS);
    return c;
}

/* So many came and completed, in @ms of all of them, @in_service are left. */
static double some(IdletimeCost *c, double came, double done, double ms,
                   double in_service)
{
    return cost_look(c, (IdletimeSpan) {
        .came = came, .done = done, .request_ns = ms * MS,
        .in_service = in_service, .settled = in_service == 0,
        .quiet = in_service == 0,
    });
}

/* The first waits for all of it, one that comes then no longer than it waits. */
static void test_waits(void)
{
    IdletimeCost c = collision();

    near(some(&c, 1, 1, 5, 0), 3 * MS);
    near(c.delay_ns, 3 * MS);
    near(c.lost_ns, 3 * MS);
    near(c.first_ns + c.left_ns + c.waits_ns, 0);
    g_assert_false(c.dirty);
    /* However much of it was seen. */
    c = collision();
    near(some(&c, 0, 0, 0, 0), 3 * MS);
    c = collision();
    near(some(&c, 1, 1, 1, 0), 3 * MS);
    /* The second waits for 1 ms: nothing without ours. */
    c = collision();
    near(some(&c, 2, 1, 5 + 1, 1), 0);
    near(c.left_ns, MS);
    near(some(&c, 0, 1, 2, 0), 4 * MS);
    /* For 2.5 and then 5 ms: no more than what was left of it. */
    c = collision();
    near(some(&c, 2, 1, 5 + 2.5, 1), 0);
    near(some(&c, 1, 1, 2 + 5, 1), 0);
    near(c.left_ns, 2.5 * MS);
    near(some(&c, 0, 1, 2, 0), 8 * MS);
    /* Four in one look: half of what they waited, each. */
    c = collision();
    near(some(&c, 4, 2, 3 + 4 + 4, 2), 0);
    near(c.left_ns, 2 * MS);
    near(some(&c, 0, 2, 4 + 2, 0), 3 * MS + 3 * 2 * MS);
    /* Who comes is counted when one is done: as it is known by then. */
    c = collision();
    near(some(&c, 2, 0, 4, 2), 0);
    near(c.waits_ns, 0);
    near(some(&c, 0, 1, 2, 1), 0);
    near(c.waits_ns, 4 * MS);
    /* A request is one of ours, as long as fewer than 16 are known. */
    c = collision();
    c.clean_done = 15.9;
    near(some(&c, 2, 1, 3 + 4 + 2, 1), 0);
    near(c.left_ns, 2 * MS);
    c = collision();
    c.clean_busy_ns = 0;
    near(some(&c, 2, 1, 3 + 4 + 2, 1), 0);
    near(c.left_ns, 2 * MS);
    /* A slot that leaves takes its requests along. */
    c = collision();
    near(some(&c, -3, 1, 5, 1), 0);
    near(c.waits_ns, 3 * MS);
}

/* More of ours, that ends later; and what came before it is not counted. */
static void test_again(void)
{
    IdletimeCost c = collision();

    near(some(&c, 3, 1, 9, 2), 0);
    idletime_cost_collision(&c, 4.0 * MS);
    near(c.waits_ns, 0);
    near(some(&c, 1, 1, 6, 0), 4 * MS);
    c = (IdletimeCost) { .service_ns = SERVICE, .dirty = true };
    near(some(&c, 7, 5, 90, 2), 0);
    near(c.done, 5);
    /* The foreground was idle since, but is busy again. */
    c = collision();
    near(cost_look(&c, (IdletimeSpan) {
        .came = 2, .done = 1, .request_ns = 5 * MS, .in_service = 1,
        .settled = true,
    }), 3 * MS);
    g_assert_true(c.dirty);
    near(c.came + c.done + c.request_ns + c.in_service, 0);
}

/* With as many in service as ever, who comes is sent by who is done. */
static void test_full(void)
{
    IdletimeCost c = collision();

    c.most = 10;
    near(some(&c, 9, 1, 3 + 2 + 18, 8), 0);
    near(c.waits_ns, 9 * 3 * MS);
    near(some(&c, 1, 1, 16, 8), 0);
    near(c.waits_ns, 10 * 3 * MS);
    c.most = 10;
    near(some(&c, 2, 1, 18, 9), 0);
    near(c.waits_ns, 10 * 3 * MS);
    /* At one of the looks since the last one was done. */
    near(some(&c, 1, 0, 9, 10), 0);
    near(some(&c, 0, 2, 9, 8), 0);
    near(c.waits_ns, 10 * 3 * MS);
    /* One at a time is not many. */
    c = collision();
    c.most = 1;
    near(some(&c, 1, 1, 5 + 2, 1), 0);
    near(some(&c, 1, 1, 4, 1), 0);
    near(c.waits_ns, 3 * MS + 2 * MS);
    /* "Ever" is 1024 requests. */
    c = collision();
    c.most = 100;
    near(some(&c, 1, 1, 5, 1), 0);
    near(c.most, 100 * (1 - 1 / 1024.0));
    near(some(&c, 2000, 2000, 4000, 1), 0);
    near(c.most, 1);
    near(some(&c, 7, 0, 0, 7), 0);
    near(c.most, 7);
}

/* Of a look that comes late only what was before it was over counts. */
static void test_late(void)
{
    IdletimeCost c = collision();
    IdletimeSpan late = { .came = 40, .done = 40, .request_ns = 200 * MS,
                          .after = 0.9, .settled = true, .quiet = true };

    /* Four, the first one among them: 20 ms, 8 of work and 3 of the first. */
    near(cost_look(&c, late), 3 * MS + 3 * 2.25 * MS);
    g_assert_false(c.dirty);
}

/* As many in service all the time: half of the mean is no deviation. */
static void test_steady(void)
{
    IdletimeCost c = { 0 };
    IdletimeSpan s = { .done = 1, .quiet = true };

    for (int i = 0; i < 1023; i++) {
        s.in_service = 2 + 2 * (i % 2);
        cost_look(&c, s);
    }
    g_assert_false(idletime_cost_steady(&c));
    cost_look(&c, s);
    near(c.seen, 1024);
    g_assert_cmpfloat(ABS(c.mean - 3), <, 0.01);
    g_assert_cmpfloat(ABS(c.square - 1), <, 0.01);
    g_assert_true(idletime_cost_steady(&c));
    c.square = c.mean * c.mean / 4 + 0.001;
    g_assert_false(idletime_cost_steady(&c));
    c.square -= 0.002;
    g_assert_true(idletime_cost_steady(&c));
    idletime_cost_doubt(&c);
    g_assert_false(idletime_cost_steady(&c));
}

/* What collisions cost, in delays of the first: with one as expected. */
static void test_factor(void)
{
    IdletimeCost c = { 0 };

    near(idletime_cost_factor(&c), 1);
    c = (IdletimeCost) { .service_ns = 4, .delay_ns = 4, .lost_ns = 12 };
    near(idletime_cost_factor(&c), 2);
    /* However short they are. */
    c = (IdletimeCost) { .service_ns = 0.25, .delay_ns = 0.25,
                         .lost_ns = 0.75 };
    near(idletime_cost_factor(&c), 2);
    c = (IdletimeCost) { .service_ns = 4, .delay_ns = 4 };
    c.lost_ns = 4 * 126;
    near(idletime_cost_factor(&c), 63.5);
    c.lost_ns = 4 * 150;
    near(idletime_cost_factor(&c), 64);
    /* 256 services of delay are remembered, 8 after a change. */
    c = (IdletimeCost) { .delay_ns = 511 * SERVICE, .lost_ns = 511 * SERVICE };
    idletime_cost_collision(&c, SERVICE);
    near(some(&c, 1, 1, 8, 0), SERVICE);
    near(c.delay_ns, 256 * SERVICE);
    near(c.lost_ns, 256 * SERVICE);
    idletime_cost_doubt(&c);
    near(c.delay_ns, 8 * SERVICE);
    near(c.lost_ns, 8 * SERVICE);
}

/*
 * One at a time, and requests that take longer than others: who came when the
 * first one was done has not waited, however long that one took.
 */
static void test_came_after(void)
{
    IdletimeSpan span = {
        .came = 2, .done = 1, .in_service = 1, .background = true,
        .request_ns = 9 * MS, .after = 0.1, .settled = true,
    };
    IdletimeCost c = { 0 };

    idletime_cost_collision(&c, 3 * MS);
    g_assert_cmpfloat(cost_look(&c, span), >, 4 * MS);
    span.came_after = 1;
    c = (IdletimeCost) { 0 };
    idletime_cost_collision(&c, 3 * MS);
    near(cost_look(&c, span), 3 * MS);
    /* Rings may tell of more than the sums do. */
    span.came_after = 200;
    c = (IdletimeCost) { 0 };
    idletime_cost_collision(&c, 3 * MS);
    near(cost_look(&c, span), 3 * MS);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cost/late", test_late);
    g_test_add_func("/cost/steady", test_steady);
    g_test_add_func("/cost/clean", test_clean);
    g_test_add_func("/cost/waits", test_waits);
    g_test_add_func("/cost/again", test_again);
    g_test_add_func("/cost/full", test_full);
    g_test_add_func("/cost/factor", test_factor);
    g_test_add_func("/cost/came-after", test_came_after);
    return g_test_run();
}
