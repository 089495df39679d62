/*
 * What a collision costs, told afterwards, against what a queue says that it
 * cost: the same foreground with and without it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/cost.h"
#include <math.h>

#define SERVICE (5.0 * MS)
#define REQUESTS 100000

/* One server, in order of arrival; one busy period after the other. */
typedef struct Queue {
    IdletimeCost cost;
    double counted_ns, lost_ns; /* in all collisions */
} Queue;

/* A busy period that lasted from 0 to @idle_ns, @delay_ns of it ours. */
static void busy_period(Queue *q, double delay_ns, double idle_ns, double done,
                        double request_ns)
{
    IdletimeSpan span = {
        .done = done, .request_ns = request_ns, .busy_ns = idle_ns,
        .background = delay_ns > 0, .quiet = true,
    };

    if (delay_ns > 0) {
        q->counted_ns += idletime_cost_collision(&q->cost, delay_ns,
                                                 idle_ns - delay_ns);
    }
    idletime_cost_look(&q->cost, &span, SERVICE);
}

/* ---- arrivals on their own schedule */

/* Serve from request @i on until idle; its number, and the sum of times. */
static int serve(const double *arrival, int i, double delay_ns, double *sum,
                 double *free_ns)
{
    double free = MAX(*free_ns, arrival[i] + delay_ns);

    *sum = 0;
    do {
        free = MAX(free, arrival[i]) + SERVICE;
        *sum += free - arrival[i];
        i++;
    } while (i < REQUESTS && arrival[i] < free);
    *free_ns = free;
    return i;
}

/* Times of requests @i to @end if nobody had delayed them. */
static double undelayed(const double *arrival, int i, int end)
{
    double free = 0, sum = 0;

    for (; i < end; i++) {
        free = MAX(free, arrival[i]) + SERVICE;
        sum += free - arrival[i];
    }
    return sum;
}

/* Every third busy period collides. */
static Queue open_queue(double load, uint64_t random)
{
    static double arrival[REQUESTS];
    Queue q = { 0 };
    double sum, free_ns = 0, at = 0;

    for (int i = 0; i < REQUESTS; i++) {
        arrival[i] = at -= log(1 - test_uniform(&random)) * SERVICE / load;
    }
    for (int i = 0, end; i < REQUESTS; i = end) {
        double delay_ns = test_random(&random) % 3 ? 0 :
                          test_uniform(&random) * SERVICE;

        end = serve(arrival, i, delay_ns, &sum, &free_ns);
        busy_period(&q, delay_ns, free_ns - arrival[i], end - i, sum);
        q.lost_ns += sum - undelayed(arrival, i, end);
    }
    return q;
}

/*
 * Counted, by what was lost, in @runs of REQUESTS each.  Long busy periods are
 * rare, so that one run at load 0.6 says 0.98 with a standard deviation of
 * 0.05; the other loads, 0.006 at most.
 */
static double counted_by_lost(double load, int runs)
{
    uint64_t random = test_seed();
    double counted_ns = 0, lost_ns = 0;

    for (int i = 0; i < runs; i++) {
        Queue q = open_queue(load, test_random(&random));

        counted_ns += q.counted_ns;
        lost_ns += q.lost_ns;
    }
    return counted_ns / lost_ns;
}

static void test_open(void)
{
    double light = counted_by_lost(0.1, 1), half = counted_by_lost(0.3, 1);
    double heavy = counted_by_lost(0.6, 16);

    /* All of them lose: never less than is true, and little more. */
    g_assert_cmpfloat(light, >, 0.95);
    g_assert_cmpfloat(light, <, 1.1);
    g_assert_cmpfloat(half, >, 0.95);
    g_assert_cmpfloat(half, <, 1.2);
    g_assert_cmpfloat(heavy, >, 0.9);
    g_assert_cmpfloat(heavy, <, 1.25);
}

/* ---- the next one is sent when one is done */

/*
 * Bursts of @n requests, @outstanding at a time, sent @early_ns before our
 * completion is seen less; half of them collide.
 */
static double closed_loop(int n, int outstanding, double early)
{
    uint64_t random = test_seed();
    Queue q = { 0 };

    for (int i = 0; i < 2000; i++) {
        double delay_ns = i % 2 ? test_uniform(&random) * SERVICE : 0;
        double really_ns = delay_ns * early;
        int first = MIN(n, outstanding);
        /* Those sent together wait for each other, then all alike. */
        double sum = SERVICE * first * (first + 1) / 2 +
                     SERVICE * first * (n - first) +
                     0.2 * MS * n * (test_uniform(&random) - 0.5);

        busy_period(&q, delay_ns, really_ns + n * SERVICE, n,
                    sum + first * really_ns);
        q.lost_ns += first * really_ns;
    }
    return q.counted_ns / q.lost_ns;
}

static void test_closed(void)
{
    /* One after the other; never less, if the device is free before that is
     * seen. */
    g_assert_cmpfloat(ABS(closed_loop(1, 1, 1) - 1), <, 1e-9);
    g_assert_cmpfloat(ABS(closed_loop(1, 1, 0.85) - 1 / 0.85), <, 1e-9);
    /* Six at once: all six. */
    g_assert_cmpfloat(closed_loop(6, 8, 1), >, 0.95);
    g_assert_cmpfloat(closed_loop(6, 8, 1), <, 1.05);
    /* 200, eight at a time: eight of them, where 25 times that is possible. */
    g_assert_cmpfloat(closed_loop(200, 8, 1), >, 0.9);
    g_assert_cmpfloat(closed_loop(200, 8, 1), <, 2);
    /* 320, 32 at a time: queues that are longer than ten services. */
    g_assert_cmpfloat(closed_loop(320, 32, 1), >, 0.9);
    g_assert_cmpfloat(closed_loop(320, 32, 1), <, 1.5);
}

/*
 * A mail server: between bursts short requests that nothing delays, in the
 * middle of bursts a queue of six, of which background meets none.  Bursts
 * begin with two requests that do collide, on their own schedule: both lose d.
 */
static void test_like_with_like(void)
{
    uint64_t random = test_seed();
    Queue q = { 0 };

    for (int i = 0; i < 2000; i++) {
        double delay_ns = test_uniform(&random) * SERVICE;

        busy_period(&q, delay_ns, delay_ns + 2 * SERVICE, 2,
                    2 * SERVICE + 2 * delay_ns);
        busy_period(&q, 0, 6 * SERVICE, 6, 21 * SERVICE);
        q.lost_ns += 2 * delay_ns;
    }
    /* The first is told by a service time of ours. */
    g_assert_cmpfloat(ABS(q.counted_ns / q.lost_ns - 1), <, 1e-3);
    g_assert_cmpfloat(idletime_cost_factor(&q.cost), >, 1.98);
    g_assert_cmpfloat(idletime_cost_factor(&q.cost), <=, 2);
}

/* ---- what is believed */

static void test_first_waits(void)
{
    Queue q = { 0 };

    /* Nothing known: each one of the busy period lost all of the delay. */
    g_assert_cmpfloat(idletime_cost_factor(&q.cost), ==, 1);
    busy_period(&q, 0, 5 * MS, 1, 5 * MS);
    q.cost.service_ns = SERVICE;
    g_assert_cmpfloat(idletime_cost_collision(&q.cost, 2 * MS, 20 * MS), ==,
                      8 * MS);
    /* Seven is short, eight is long; one in the prior: (5 + 8) / (5 + 2). */
    g_assert_cmpfloat(idletime_cost_factor(&q.cost), ==, 13 / 7.0);
    /* Sums that say that nobody waits are not believed: the first one did. */
    for (int i = 0; i < 1000; i++) {
        busy_period(&q, (1 + i % 5) * MS, (1 + i % 5) * MS + 40 * MS, 8,
                    40 * MS);
    }
    g_assert_cmpfloat(idletime_cost_collision(&q.cost, 2 * MS, 40 * MS), ==,
                      2 * MS);
    g_assert_cmpfloat(idletime_cost_collision(&q.cost, 2 * MS, 35 * MS), ==,
                      14 * MS);
}

/* After a change what was learned is worth eight collisions, and no more. */
static void test_doubt(void)
{
    Queue q = { 0 };
    double factor;

    for (int i = 0; i < 1000; i++) {
        busy_period(&q, 2 * MS, 12 * MS, 2, 14 * MS);
    }
    idletime_cost_doubt(&q.cost);
    /* 8 services of delay, twice that lost, and one service of the prior. */
    g_assert_cmpfloat(ABS(idletime_cost_factor(&q.cost) - 17 / 9.0), <, 1e-9);
    for (int i = 0; i < 20; i++) {
        busy_period(&q, 2 * MS, 7 * MS, 1, 7 * MS);
    }
    /* 20 times 2 ms that one request lost: (5 + 80 + 40) / (5 + 40 + 40). */
    factor = idletime_cost_factor(&q.cost);
    g_assert_cmpfloat(ABS(factor - 125 / 85.0), <, 1e-9);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cost/open", test_open);
    g_test_add_func("/cost/closed", test_closed);
    g_test_add_func("/cost/like-with-like", test_like_with_like);
    g_test_add_func("/cost/first-waits", test_first_waits);
    g_test_add_func("/cost/doubt", test_doubt);
    return g_test_run();
}
