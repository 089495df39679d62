/*
 * Cost of a collision: exact values at the bounds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/cost.h"
#include <math.h>

#define SERVICE         (4.0 * MS)

static void near(double got, double want)
{
    g_assert_cmpfloat(ABS(got - want), <=, 1e-6 * MAX(ABS(want), 1));
}

static IdletimeSpan span(double done, double request_ns, double busy_ns,
                         bool background, bool quiet)
{
    return (IdletimeSpan) { done, request_ns, busy_ns, background, quiet };
}

static void cost_look(IdletimeCost *c, IdletimeSpan s)
{
    idletime_cost_look(c, &s, SERVICE);
}

/* What met no background is remembered, 2048 requests of it. */
static void test_clean(void)
{
    IdletimeCost c = { 0 };

    cost_look(&c, span(1000, 1, 2000, false, true));
    near(c.clean_done, 1000);
    near(c.clean_busy_ns, 2000);
    near(c.service_ns, SERVICE);
    cost_look(&c, span(3096, 1, 8192, false, true));
    near(c.clean_done, 2048);
    near(c.clean_busy_ns, 10192 / 2.0);
    /* What met some is not among it, nor what comes before it is over. */
    cost_look(&c, span(10, 70, 50, true, false));
    cost_look(&c, span(10, 70, 50, false, false));
    near(c.clean_done, 2048);
    near(c.dirty_done, 20);
    near(c.dirty_ns, 140);
    g_assert_true(c.dirty);
    cost_look(&c, span(1, 0, 1, false, true));
    g_assert_false(c.dirty);
    near(c.dirty_done, 0);
    near(c.dirty_ns, 0);
    near(c.periods, 0);
    near(c.clean_done, 2048);
    cost_look(&c, span(10, 70, 50, true, true));
    g_assert_false(c.dirty);
    idletime_cost_doubt(&c);
    near(c.clean_done, 16);
    near(c.clean_busy_ns, 10192 / 2.0 / 128);
}

/* Whole requests; by the time of clean ones, of ours where none is known. */
static void test_requests(void)
{
    static const struct { double drain_ms, lost_ms; } pair[] = {
        { 0, 1 }, { 1, 1 }, { 2.9, 1 }, { 3.1, 2 }, { 4.9, 2 }, { 5.1, 3 },
        { 13, 7 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(pair); i++) {
        IdletimeCost c = { .clean_done = 16, .clean_busy_ns = 32 * MS,
                           .service_ns = SERVICE };

        near(idletime_cost_collision(&c, MS, pair[i].drain_ms * MS),
             pair[i].lost_ms * MS);
        g_assert_true(c.dirty);
        near(c.dirty_delay_ns, MS);
        near(c.delay_ns, MS);
        near(c.lost_ns, pair[i].lost_ms * MS);
        /* Fifteen are not known well enough: ours takes twice as long. */
        c = (IdletimeCost) { .clean_done = 15.9, .clean_busy_ns = 32 * MS,
                             .service_ns = SERVICE };
        near(idletime_cost_collision(&c, MS, 2 * pair[i].drain_ms * MS),
             pair[i].lost_ms * MS);
    }
    IdletimeCost c = { .clean_done = 100, .service_ns = SERVICE };

    near(idletime_cost_collision(&c, MS, 12 * MS), 3 * MS);
    c = (IdletimeCost) { 0 };
    near(idletime_cost_collision(&c, MS, 12 * MS), MS);
    /* Not more than a million, however long it took. */
    c = (IdletimeCost) { .service_ns = 1 };
    near(idletime_cost_collision(&c, 1, 1e18), 1e6);
}

/* Long periods with a delay alone; each weighs its requests. */
static void test_periods(void)
{
    IdletimeCost c = { .service_ns = SERVICE };

    c.dirty_delay_ns = MS;
    cost_look(&c, span(7, 70, 1, true, true));
    near(c.periods, 0);
    near(c.dirty_delay_ns, 0);
    cost_look(&c, span(8, 70, 1, true, true));
    near(c.periods, 0);
    c.dirty_delay_ns = 3;
    cost_look(&c, span(8, 80, 1, true, true));
    near(c.periods, 1);
    c.dirty_delay_ns = 5;
    cost_look(&c, span(20, 400, 1, true, true));
    near(c.periods, 2);
    near(c.n, 28);
    near(c.nd, 8 * 3 + 20 * 5);
    near(c.ny, 80 + 400);
    near(c.ndd, 8 * 9 + 20 * 25);
    near(c.ndy, 3 * 80 + 5 * 400);
    near(c.nyy, 8 * 100 + 20 * 400);
    /* 256 of them, and eight after a change. */
    c.periods = 511;
    c.dirty_delay_ns = 3;
    cost_look(&c, span(8, 80, 1, true, true));
    near(c.periods, 256);
    near(c.n, 18);
    near(c.nd, (8 * 3 + 20 * 5 + 24) / 2.0);
    near(c.ny, (80 + 400 + 80) / 2.0);
    near(c.ndd, (8 * 9 + 20 * 25 + 72) / 2.0);
    near(c.ndy, (3 * 80 + 5 * 400 + 240) / 2.0);
    near(c.nyy, (8 * 100 + 20 * 400 + 800) / 2.0);
    idletime_cost_doubt(&c);
    near(c.periods, 8);
    near(c.n, 18 / 32.0);
}

/*
 * A straight line through requests' means: of eight requests and more, so
 * much of the delay is lost as it says, and a standard error more.
 */
static double line(const double (*point)[3], int n, double service_ns)
{
    double w = 0, d = 0, y = 0, dd = 0, dy = 0, yy = 0, prior, slope;

    for (int i = 0; i < n; i++) {
        w += point[i][0];
        d += point[i][0] * point[i][1];
        y += point[i][0] * point[i][2];
    }
    d /= w;
    y /= w;
    for (int i = 0; i < n; i++) {
        dd += point[i][0] * (point[i][1] - d) * (point[i][1] - d);
        dy += point[i][0] * (point[i][1] - d) * (point[i][2] - y);
        yy += point[i][0] * (point[i][2] - y) * (point[i][2] - y);
    }
    /* One collision in the prior, spread alike, all of it lost. */
    prior = service_ns * service_ns / 12 * w / n;
    slope = (prior + dy) / (prior + dd);
    yy = (yy - 2 * slope * dy + slope * slope * dd) / n;
    return MIN(MAX(slope + sqrt(MAX(yy, 0) / (prior + dd)), 0), 1);
}

static void test_part(void)
{
    uint64_t random = test_seed();

    for (int round = 0; round < 200; round++) {
        double point[12][3], a = 1 + 9 * test_uniform(&random);
        double part = test_uniform(&random), want;
        int n = 1 + round % 12;
        IdletimeCost c = { .service_ns = 2 };

        for (int i = 0; i < n; i++) {
            point[i][0] = test_range(&random, 8, 60);
            point[i][1] = 20 * test_uniform(&random) + 0.1;
            point[i][2] = a + part * point[i][1] +
                          round % 3 * test_uniform(&random);
            c.dirty_delay_ns = point[i][1];
            idletime_cost_look(&c, &(IdletimeSpan) {
                .done = point[i][0], .background = true, .quiet = true,
                .request_ns = point[i][0] * point[i][2],
            }, 2);
        }
        want = line(point, n, 2);
        near(idletime_cost_collision(&c, 1, 40) / 20, MAX(want, 1 / 20.0));
        /* Seven are a short period: all of it. */
        near(idletime_cost_collision(&c, 1, 14), 7);
        near(idletime_cost_collision(&c, 1, 16), MAX(8 * want, 1));
    }
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
    c = (IdletimeCost) { .service_ns = 4, .delay_ns = 2047, .lost_ns = 2047 };
    idletime_cost_collision(&c, 1, 0);
    near(c.delay_ns, 1024);
    near(c.lost_ns, 1024);
    idletime_cost_doubt(&c);
    near(c.delay_ns, 32);
    near(c.lost_ns, 32);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cost/clean", test_clean);
    g_test_add_func("/cost/requests", test_requests);
    g_test_add_func("/cost/periods", test_periods);
    g_test_add_func("/cost/part", test_part);
    g_test_add_func("/cost/factor", test_factor);
    return g_test_run();
}
