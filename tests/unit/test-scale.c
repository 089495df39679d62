/*
 * What collisions really cost: periods with and without one, on a disk that is
 * behind a path, against what was put into them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/scale.h"

#define SERVICE (5.0 * MS)
#define PATH    (0.7 * MS)

static void near(double got, double want, double by)
{
    g_assert_cmpfloat(ABS(got - want), <=, by);
}

static void look(IdletimeScale *s, IdletimeSpan span, IdletimeReckoned reckoned)
{
    idletime_scale_look(s, &span, &reckoned, SERVICE);
}

/* Background runs in the gap; the foreground is back at the next look. */
static void gap(IdletimeScale *s)
{
    look(s, (IdletimeSpan) { .background = true },
         (IdletimeReckoned) { .started = 1, .in_service = true });
    look(s, (IdletimeSpan) { .background = true }, (IdletimeReckoned) { 0 });
}

/* A period: its first look finds one request in service, its last none. */
static void period(IdletimeScale *s, double done, double pieces, double busy_ns,
                   IdletimeReckoned reckoned)
{
    look(s, (IdletimeSpan) { .came = 1, .in_service = 1 },
         (IdletimeReckoned) { .pieces = 1 });
    reckoned.pieces = pieces - 1;
    look(s, (IdletimeSpan) { .came = done - 1, .done = done,
                             .busy_ns = busy_ns }, reckoned);
    look(s, (IdletimeSpan) { 0 }, (IdletimeReckoned) { .away = true });
}

static double busy_ns(double done, double pieces)
{
    return done * SERVICE + pieces * PATH;
}

/* Bursts of six; each third one meets background, and waits. */
static void bursts(IdletimeScale *s, int n, double reckoned_ns, double lost_ns)
{
    for (int i = 0; i < n; i++) {
        bool met = i % 3 == 2;

        gap(s);
        period(s, 6, 6, busy_ns(6, 6) + met * lost_ns,
               (IdletimeReckoned) { .delay_ns = met * reckoned_ns });
    }
}

/* Chance is nothing here, and so nothing is taken off for it. */
static void test_bursts(void)
{
    IdletimeScale s = { 0 };

    near(idletime_scale(&s), 1, 0);
    bursts(&s, 3 * 16, 3 * MS, 3 * MS - PATH);
    near(idletime_scale(&s), 1, 0);         /* too few with none before them */
    bursts(&s, 3 * 64, 3 * MS, 3 * MS - PATH);
    near(idletime_scale(&s), 1 - PATH / (3 * MS), 0.01);
}

static void test_nothing_to_take_off(void)
{
    IdletimeScale s = { 0 };

    bursts(&s, 300, 3 * MS, 3 * MS);
    near(idletime_scale(&s), 1, 1e-6);
    /* More than was reckoned is no path. */
    bursts(&s, 300, 3 * MS, 4 * MS);
    near(idletime_scale(&s), 1, 0);
}

static void test_half_at_most(void)
{
    IdletimeScale s = { 0 };

    bursts(&s, 600, 3 * MS, 0);
    near(idletime_scale(&s), 0.5, 0);
}

/*
 * A delay joins pieces: those that follow spend nothing on their way.  By
 * requests alone that were a smaller loss.
 */
static void test_joined(void)
{
    IdletimeScale s = { 0 };
    GRand *random = g_rand_new_with_seed(1);

    for (int i = 0; i < 900; i++) {
        double done = g_rand_int_range(random, 1, 9);
        double pieces = g_rand_int_range(random, 1, done + 1);
        bool met = i % 3 == 2;
        double joined = met && pieces > 1;

        gap(&s);
        period(&s, done, pieces - joined,
               busy_ns(done, pieces - joined) + met * (3 * MS - PATH),
               (IdletimeReckoned) { .delay_ns = met * 3 * MS });
    }
    near(idletime_scale(&s), 1 - PATH / (3 * MS), 0.01);
    g_rand_free(random);
}

/*
 * Requests that take 3 to 7 ms, and few without a collision: what may be chance
 * is not believed.
 */
static void test_chance(void)
{
    int wrong = 0;

    for (int seed = 0; seed < 50; seed++) {
        GRand *random = g_rand_new_with_seed(seed);
        IdletimeScale s = { 0 };

        for (int i = 0; i < 300; i++) {
            double busy = g_rand_double_range(random, 3 * MS, 7 * MS);
            bool met = i % 8;

            gap(&s);
            period(&s, 1, 1, busy + met * 3 * MS,
                   (IdletimeReckoned) { .delay_ns = met * 3 * MS });
            g_assert_cmpfloat(idletime_scale(&s), >, 0.75);
            wrong += idletime_scale(&s) < 0.95;
        }
        g_rand_free(random);
    }
    g_assert_cmpint(wrong, <, 50 * 300 / 150);
}

/* With that much of a path it is told all the same, and soon. */
static void test_told_among_chance(void)
{
    GRand *random = g_rand_new_with_seed(1);
    IdletimeScale s = { 0 };

    for (int i = 0; i < 400; i++) {
        double busy = g_rand_double_range(random, 4 * MS, 6 * MS);
        bool met = i % 2;

        gap(&s);
        period(&s, 1, 1, busy + PATH + met * (3 * MS - PATH),
               (IdletimeReckoned) { .delay_ns = met * 3 * MS });
    }
    near(idletime_scale(&s), 1 - PATH / (3 * MS), 0.08);
    g_rand_free(random);
}

/* ---- what says nothing */

static void clear(IdletimeScale *s)
{
    bursts(s, 3 * 64, 3 * MS, 3 * MS);
    near(idletime_scale(s), 1, 1e-6);
}

static void test_others(void)
{
    IdletimeScale s = { 0 };

    clear(&s);
    for (int i = 0; i < 100; i++) {
        gap(&s);
        period(&s, 6, 6, busy_ns(6, 6),
               (IdletimeReckoned) { .delay_ns = 3 * MS, .others_ns = 1 });
        /* They say it late: at the look that finds the next request. */
        gap(&s);
        period(&s, 6, 6, busy_ns(6, 6) + 40 * MS, (IdletimeReckoned) { 0 });
        gap(&s);
        look(&s, (IdletimeSpan) { .came = 1, .in_service = 1 },
             (IdletimeReckoned) { .pieces = 1, .others_ns = 40 * MS });
        look(&s, (IdletimeSpan) { .done = 1, .busy_ns = 90 * MS },
             (IdletimeReckoned) { .away = true });
    }
    near(idletime_scale(&s), 1, 1e-6);
    near(s.busy_busy / s.clear, busy_ns(6, 6) * busy_ns(6, 6), 1e6);
}

/* A probe beside the foreground; it is served last, and meets the next one. */
static void test_beside(void)
{
    IdletimeScale s = { 0 };

    clear(&s);
    for (int i = 0; i < 100; i++) {
        gap(&s);
        look(&s, (IdletimeSpan) { .came = 1, .in_service = 1 },
             (IdletimeReckoned) { .pieces = 1 });
        look(&s, (IdletimeSpan) { .in_service = 1, .background = true },
             (IdletimeReckoned) { .started = 1, .in_service = true });
        look(&s, (IdletimeSpan) { .done = 1, .background = true,
                                  .busy_ns = SERVICE },
             (IdletimeReckoned) { .in_service = true });
        look(&s, (IdletimeSpan) { .came = 1, .in_service = 1,
                                  .background = true },
             (IdletimeReckoned) { .pieces = 1, .in_service = true });
        look(&s, (IdletimeSpan) { .done = 1, .busy_ns = 2 * SERVICE },
             (IdletimeReckoned) { 0 });
        look(&s, (IdletimeSpan) { 0 }, (IdletimeReckoned) { .away = true });
    }
    near(s.busy_busy / s.clear, busy_ns(6, 6) * busy_ns(6, 6), 1e6);
}

/* A gap in which no background ran: such a period is not among them. */
static void test_unused(void)
{
    IdletimeScale s = { 0 };

    clear(&s);
    for (int i = 0; i < 100; i++) {
        period(&s, 6, 6, 2 * busy_ns(6, 6), (IdletimeReckoned) { 0 });
    }
    near(s.busy_busy / s.clear, busy_ns(6, 6) * busy_ns(6, 6),
         0.05 * busy_ns(6, 6) * busy_ns(6, 6));
}

/* ---- bounds */

/* Rings that lose their transitions tell of no pieces, or of no time. */
static void test_nonsense(void)
{
    static const double values[] = { 0, 1, 1e18 };
    IdletimeScale s = { 0 };

    for (int i = 0; i < 5000; i++) {
        gap(&s);
        period(&s, 1 + values[i % 3], values[i / 3 % 3], values[i / 9 % 3],
               (IdletimeReckoned) { .delay_ns = values[i / 27 % 3] });
        g_assert_cmpfloat(idletime_scale(&s), >=, 0.5);
        g_assert_cmpfloat(idletime_scale(&s), <=, 1);
    }
}

/* Then requests alone say what a period takes. */
static void test_no_pieces(void)
{
    IdletimeScale s = { 0 };

    for (int i = 0; i < 200; i++) {
        bool met = i % 2;

        gap(&s);
        period(&s, 1, 0, SERVICE + met * 2 * MS,
               (IdletimeReckoned) { .delay_ns = met * 3 * MS });
    }
    near(idletime_scale(&s), 2 / 3.0, 0.05);
}

static void test_doubt(void)
{
    IdletimeScale s = { 0 };

    bursts(&s, 3 * 2000, 3 * MS, 3 * MS - PATH);
    near(s.clear, 1024, 1e-6);
    near(s.met, 512, 1e-6);
    idletime_scale_doubt(&s);
    near(s.clear, 16, 1e-6);
    near(s.met, 8, 1e-6);
    /* What was learned stays until something else is. */
    near(idletime_scale(&s), 1 - PATH / (3 * MS), 0.01);
    bursts(&s, 3 * 64, 3 * MS, 3 * MS);
    g_assert_cmpfloat(idletime_scale(&s), >, 0.95);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/scale/bursts", test_bursts);
    g_test_add_func("/scale/nothing-to-take-off", test_nothing_to_take_off);
    g_test_add_func("/scale/half-at-most", test_half_at_most);
    g_test_add_func("/scale/joined", test_joined);
    g_test_add_func("/scale/chance", test_chance);
    g_test_add_func("/scale/told-among-chance", test_told_among_chance);
    g_test_add_func("/scale/others", test_others);
    g_test_add_func("/scale/beside", test_beside);
    g_test_add_func("/scale/unused", test_unused);
    g_test_add_func("/scale/nonsense", test_nonsense);
    g_test_add_func("/scale/no-pieces", test_no_pieces);
    g_test_add_func("/scale/doubt", test_doubt);
    return g_test_run();
}
