/*
 * What a collision costs, measured while it goes on, against what a queue says
 * that it cost: the same foreground with and without it.
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

/* Requests of a busy period, in order of both. */
typedef struct Period {
    const double *arrival, *end;
    int n;
} Period;

/* What a participant's sums say at @now: they are those of its last event. */
static IdletimeSpan sums_at(Period p, double now)
{
    IdletimeSpan s = { 0 };
    double last = p.arrival[0];
    int came = 0, done = 0;

    while (done < p.n) {
        bool begin = came < p.n && p.arrival[came] <= p.end[done];
        double at = begin ? p.arrival[came] : p.end[done];

        if (at > now) {
            break;
        }
        s.request_ns += (came - done) * (at - last);
        last = at;
        came += begin;
        done += !begin;
    }
    s.came = came;
    s.done = done;
    s.in_service = came - done;
    return s;
}

static void look(Queue *q, Period p, IdletimeSpan *before, double now,
                 bool background)
{
    IdletimeSpan sums = sums_at(p, now), span = sums;
    bool over = sums.done == p.n;

    span.came -= before->came;
    span.done -= before->done;
    span.request_ns -= before->request_ns;
    span.background = background;
    span.settled = background && over;
    span.quiet = over;
    span.busy_ns = p.n * SERVICE;
    q->counted_ns += idletime_cost_look(&q->cost, &span, SERVICE);
    *before = sums;
}

/* Looks half a service time apart, as there are while it goes on. */
static void busy_period(Queue *q, Period p, double delay_ns)
{
    double now = p.arrival[0] + delay_ns, over = p.end[p.n - 1];
    IdletimeSpan before = { 0 };

    if (delay_ns > 0) {
        look(q, p, &before, now, true);
        idletime_cost_collision(&q->cost, delay_ns);
        while (now + SERVICE / 2 < over) {
            look(q, p, &before, now += SERVICE / 2, true);
        }
    }
    look(q, p, &before, over, delay_ns > 0);
}

/* ---- arrivals on their own schedule */

/* Serve from request @i on until idle; the number of the next, and the ends. */
static int serve(const double *arrival, double *end, int i, double delay_ns,
                 double *free_ns)
{
    double free = MAX(*free_ns, arrival[i] + delay_ns);

    do {
        end[i] = free = MAX(free, arrival[i]) + SERVICE;
        i++;
    } while (i < REQUESTS && arrival[i] < free);
    *free_ns = free;
    return i;
}

static double time_in_service(const double *arrival, const double *end, int i,
                              int n)
{
    double sum = 0;

    for (; i < n; i++) {
        sum += end[i] - arrival[i];
    }
    return sum;
}

/* Times of requests @i to @n if nobody had delayed them. */
static double undelayed(const double *arrival, int i, int n)
{
    double free = 0, sum = 0;

    for (; i < n; i++) {
        free = MAX(free, arrival[i]) + SERVICE;
        sum += free - arrival[i];
    }
    return sum;
}

/* Every third busy period collides. */
static void collide(Queue *q, const double *arrival, uint64_t *random)
{
    static double end[REQUESTS];
    double free_ns = 0;

    for (int i = 0, n; i < REQUESTS; i = n) {
        double delay_ns = test_random(random) % 3 ? 0 :
                          test_uniform(random) * SERVICE;

        n = serve(arrival, end, i, delay_ns, &free_ns);
        busy_period(q, (Period) { arrival + i, end + i, n - i }, delay_ns);
        q->lost_ns += time_in_service(arrival, end, i, n) -
                      undelayed(arrival, i, n);
    }
}

/* Counted, by what was lost; arrivals are independent of each other. */
static double memoryless(double load)
{
    static double arrival[REQUESTS];
    uint64_t random = test_seed();
    Queue q = { 0 };
    double at = 0;

    for (int i = 0; i < REQUESTS; i++) {
        arrival[i] = at -= log(1 - test_uniform(&random)) * SERVICE / load;
    }
    collide(&q, arrival, &random);
    return q.counted_ns / q.lost_ns;
}

/*
 * Sessions of one to twelve requests, 5 to 20 ms apart: what is idle between
 * them takes up a part of the delay.
 */
static double sessions(double apart_ns)
{
    static double arrival[REQUESTS];
    uint64_t random = test_seed();
    Queue q = { 0 };
    double at = 0;

    for (int i = 0; i < REQUESTS;) {
        at -= log(1 - test_uniform(&random)) * apart_ns;
        for (int n = test_range(&random, 1, 12); n && i < REQUESTS; n--) {
            arrival[i++] = at;
            at += SERVICE + test_uniform(&random) * 3 * SERVICE;
        }
    }
    collide(&q, arrival, &random);
    return q.counted_ns / q.lost_ns;
}

static void within(double value, double low, double high)
{
    g_assert_cmpfloat(value, >, low);
    g_assert_cmpfloat(value, <, high);
}

static void test_open(void)
{
    within(memoryless(0.1), 0.98, 1.02);
    within(memoryless(0.3), 0.98, 1.04);
    within(memoryless(0.6), 0.95, 1.08);
    within(sessions(100 * MS), 0.98, 1.1);
    within(sessions(10 * MS), 0.98, 1.1);
}

/* ---- the next one is sent when one is done */

#define BURST 320

/* Sent @outstanding at a time, the next one 0.1 ms after one is done. */
static double send(double *arrival, double *end, int n, int outstanding,
                   double delay_ns)
{
    double free = delay_ns;

    for (int i = 0; i < n; i++) {
        arrival[i] = i < outstanding ? 0 : end[i - outstanding] + 0.1 * MS;
        end[i] = free = MAX(free, arrival[i]) + SERVICE;
    }
    return time_in_service(arrival, end, 0, n);
}

/* Bursts of @n requests; half of them collide. */
static double closed_loop(int n, int outstanding)
{
    static double arrival[BURST], end[BURST];
    uint64_t random = test_seed();
    Queue q = { 0 };

    for (int i = 0; i < 2000; i++) {
        double delay_ns = i % 2 ? test_uniform(&random) * SERVICE : 0;

        q.lost_ns -= send(arrival, end, n, outstanding, 0);
        q.lost_ns += send(arrival, end, n, outstanding, delay_ns);
        busy_period(&q, (Period) { arrival, end, n }, delay_ns);
    }
    return q.counted_ns / q.lost_ns;
}

static void test_closed(void)
{
    /* One at a time; and all at once. */
    within(closed_loop(1, 1), 0.999, 1.001);
    within(closed_loop(6, 8), 0.99, 1.01);
    /* 200, eight at a time: eight of them, where 25 times that is possible. */
    within(closed_loop(200, 8), 0.95, 1.2);
    within(closed_loop(100, 3), 0.95, 1.2);
    /* 320, 32 at a time: queues that are longer than ten services. */
    within(closed_loop(320, 32), 0.95, 1.2);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cost/open", test_open);
    g_test_add_func("/cost/closed", test_closed);
    return g_test_run();
}
