/*
 * Cost of a return: exact values at the bounds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/seek.h"
#include <math.h>

#define SERVICE         (4.0 * MS)

static void near(double got, double want)
{
    g_assert_cmpfloat(ABS(got - want), <=, 1e-6 * MAX(ABS(want), 1));
}

/* Returns of one request, which takes so much more than @each_ns. */
static IdletimeReturns of(double count, double each_ns, double excess_ns,
                          double square)
{
    return (IdletimeReturns) {
        .count = count, .done = 1, .ns = each_ns + excess_ns, .ns_ns = square,
    };
}

static double excess(const IdletimeReturns *r, double each_ns)
{
    return r->ns - each_ns * r->done;
}

static IdletimeSpan span(double done, double worked_ns, bool background)
{
    return (IdletimeSpan) {
        .done = done, .worked_ns = worked_ns, .background = background,
    };
}

static void seek_look(IdletimeSeek *s, IdletimeSpan span, IdletimeTurn turn)
{
    idletime_seek_look(s, &span, &turn, SERVICE);
}

/* After foreground @done requests of @each. */
static void seek_near(IdletimeSeek *s, double done, double each_ns)
{
    seek_look(s, span(done, done * each_ns, false), (IdletimeTurn) { 0 });
}

/* Ours ran, @own of @started; then one request, which met one for @delay_ns. */
static void seek_met(IdletimeSeek *s, double worked_ns, double own,
                     double started, double delay_ns)
{
    seek_look(s, span(0, 0, true),
              (IdletimeTurn) { .started = started, .own = own });
    g_assert_cmpint(s->before, ==, IDLETIME_BEFORE_BG);
    seek_look(s, span(1, worked_ns, false),
              (IdletimeTurn) { .delay_ns = delay_ns, .met = true,
                               .settled = true });
}

/* The same, and it met none. */
static void seek_return(IdletimeSeek *s, double worked_ns)
{
    seek_look(s, span(0, 0, true), (IdletimeTurn) { .started = 2, .own = 1 });
    seek_look(s, span(1, worked_ns, false), (IdletimeTurn) { .settled = true });
}

static void test_near(void)
{
    IdletimeSeek s = { 0 };

    seek_near(&s, 100, 1000);
    near(s.near_done, 100);
    near(s.near_ns, 1e5);
    seek_near(&s, 412, 1000);
    near(s.near_done, 256);
    near(s.near_ns, 256e3);
    near(s.done, 0);
}

/* What returns take beyond requests that came after foreground. */
static void test_excess(void)
{
    IdletimeSeek s = { 0 };

    /* With less than 16 of these: beyond a service time of ours. */
    seek_near(&s, 15, 1.0 * MS);
    seek_return(&s, 7 * MS);
    near(excess(&s.bg, SERVICE), 3 * MS);
    near(s.bg.count, 1);
    near(s.bg.ns_ns, 0);
    seek_near(&s, 1, 1.0 * MS);
    seek_met(&s, 8 * MS, 2, 2, 2 * MS);
    /* 7 and 8 - 2, of one request each: the first one's is 6 now. */
    near(s.bg.ns, 6.5 * MS);
    near(s.bg.ns_ns, 0.25 * MS * MS);
    near(excess(&s.bg, 1.0 * MS), 5.5 * MS);
    g_assert_cmpint(s.before, ==, IDLETIME_BEFORE_FG);
    /* Not more than ten services a request, in either direction. */
    s.bg = (IdletimeReturns) { 0 };
    seek_return(&s, 500 * MS);
    near(excess(&s.bg, 1.0 * MS), 40 * MS);
    s.bg = (IdletimeReturns) { 0 };
    seek_met(&s, 0, 2, 2, 500 * MS);
    near(excess(&s.bg, 1.0 * MS), -40 * MS);
    /* 256 of them are remembered, eight after a change. */
    s.bg = of(256, 1.0 * MS, 1.0 * MS, 0);
    seek_return(&s, 258 * MS - 220 * MS);
    near(s.bg.count, 256);
    near(excess(&s.bg, 1.0 * MS), (1 + 36 / 256.0) * MS);
    s.pause.count = 7;
    idletime_seek_doubt(&s);
    near(s.bg.count, 8);
    near(s.pause.count, 7);
    near(excess(&s.bg, 1.0 * MS), (1 + 36 / 256.0) * MS);
}

/* What is known of them by 128 requests is theirs, whatever others take. */
static void test_kept(void)
{
    IdletimeSeek s = { .pause = of(8, 2 * MS, 1 * MS, 3.0 * MS * MS) };

    s.pause.done_done = 2;
    s.pause.done_ns = 1 * MS;
    seek_near(&s, 127, 1.0 * MS);
    seek_return(&s, 7 * MS);
    near(s.pause.done, 1);
    near(s.pause.ns, 3 * MS);
    seek_near(&s, 1, 1.0 * MS);
    seek_return(&s, 7 * MS);
    near(s.pause.done, 0);
    near(s.pause.ns, 2 * MS);
    /* 3 - 2 * 1 + 2 */
    near(s.pause.ns_ns, 3.0 * MS * MS);
    near(s.pause.done_done, 0);
    near(s.pause.done_ns, 0);
    near(s.pause.count, 8);
    /* Half of the last one's request is still as it came. */
    near(s.bg.count, 2);
    near(s.bg.done, 0.5);
    near(s.bg.ns, (6 + 7) / 2.0 * MS);
    near(excess(&s.bg, 1.0 * MS), 6 * MS);
    near(s.bg.ns_ns, 0.25 * MS * MS);
    near(s.bg.done_ns, 0.25 * MS);
    near(s.bg.done_done, 0.25);
}

/*
 * Returns of one and of three requests of 2 ms, and 3 ms more each: that there
 * are as many is no chance.
 */
static void test_lengths(void)
{
    IdletimeSeek s = { .near_done = 100, .near_ns = 200 * MS };

    for (int i = 0; i < 8; i++) {
        double done = i % 2 ? 1 : 3;

        seek_look(&s, span(0, 0, true), (IdletimeTurn) { 0 });
        seek_look(&s, span(done, done * 2 * MS + 3 * MS, false),
                  (IdletimeTurn) { .settled = true });
    }
    near(s.bg.done, 2);
    near(s.bg.ns, 7 * MS);
    near(s.bg.done_done, 1);
    near(s.bg.done_ns, 2 * MS);
    near(s.bg.ns_ns, 4.0 * MS * MS);
    /* Its error is 0: proven at once, though after pauses came others. */
    s.pause = (IdletimeReturns) { .count = 8, .done = 5, .ns = 10 * MS };
    seek_return(&s, 5 * MS);
    near(s.cost_ns, 3 * MS);
}

/* Several requests are in service: the return is not over yet. */
static void test_settled(void)
{
    IdletimeSeek s = { .near_done = 100, .near_ns = 100 * MS };

    seek_look(&s, span(0, 0, true),
              (IdletimeTurn) { .started = 1, .own = 1, .delay_ns = 1 * MS,
                               .met = true });
    seek_look(&s, span(3, 9 * MS, false), (IdletimeTurn) { 0 });
    g_assert_cmpint(s.before, ==, IDLETIME_BEFORE_BG);
    seek_look(&s, span(0, 0, false), (IdletimeTurn) { .settled = true });
    /* 9 + 3 - 4 * 1 - 1 */
    g_assert_cmpint(s.before, ==, IDLETIME_BEFORE_FG);
    near(excess(&s.bg, 1.0 * MS), 5 * MS);
    /* Nothing came: no return. */
    s.bg = (IdletimeReturns) { 0 };
    seek_look(&s, span(0, 0, true), (IdletimeTurn) { 0 });
    seek_look(&s, span(0, 0, false), (IdletimeTurn) { .settled = true });
    g_assert_cmpint(s.before, ==, IDLETIME_BEFORE_BG);
    near(s.bg.count, 0);
}

/* By how much something else delayed a return is not known: it says nothing. */
static void test_clear(void)
{
    IdletimeSeek s = { .near_done = 100, .near_ns = 100 * MS };

    /* Another's request, or one of ours of which that is not known. */
    seek_met(&s, 9 * MS, 1, 2, 2 * MS);
    seek_met(&s, 9 * MS, 2, 2, 0);
    near(s.bg.count, 0);
    /* One of ours that began beside the foreground. */
    s.busy = true;
    seek_met(&s, 9 * MS, 2, 2, 2 * MS);
    near(s.bg.count, 0);
    seek_met(&s, 9 * MS, 2, 2, 2 * MS);
    near(s.bg.count, 1);
    /* What a request takes is not known at all. */
    s = (IdletimeSeek) { .before = IDLETIME_BEFORE_BG };
    idletime_seek_look(&s, &(IdletimeSpan) { .done = 1, .worked_ns = MS },
                       &(IdletimeTurn) { .settled = true }, 0);
    g_assert_cmpint(s.before, ==, IDLETIME_BEFORE_FG);
    near(s.bg.count, 0);
}

/* Proven: eight of each, by more than chance and an eighth of a service. */
static void test_judge(void)
{
    static const struct {
        struct {
            double count, excess_ns, square;
        } pause, bg;
        bool costs;
    } pair[] = {
        { { 8, 0, 0 }, { 7, 2 * MS, 0 }, true },
        { { 7, 0, 0 }, { 100, 2 * MS, 0 }, false },
        { { 100, 0, 0 }, { 6, 2 * MS, 0 }, false },
        { { 100, 0, 0 }, { 100, 0.49 * MS, 0 }, false },
        { { 100, 0, 0 }, { 100, 0.51 * MS, 0 }, true },
        { { 100, 2 * MS, 0 }, { 100, 2.51 * MS, 0 }, true },
        { { 100, 2 * MS, 0 }, { 100, 2.49 * MS, 0 }, false },
        /* One standard error of 1 ms: 16 of 17. */
        { { 17, 0, 16.0 * MS * MS }, { 100, 2.01 * MS, 0 }, true },
        { { 17, 0, 16.0 * MS * MS }, { 100, 1.99 * MS, 0 }, false },
        /* Two standard errors of 1 ms each: 2.83 ms. */
        { { 101, 0, 100.0 * MS * MS }, { 101, 2.9 * MS, 100.0 * MS * MS },
          true },
        { { 101, 0, 100.0 * MS * MS }, { 101, 2.7 * MS, 100.0 * MS * MS },
          false },
        { { 101, 0, 0 }, { 101, 2.1 * MS, 100.0 * MS * MS }, true },
        { { 101, 0, 0 }, { 101, 1.9 * MS, 100.0 * MS * MS }, false },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(pair); i++) {
        IdletimeSeek s = { .near_done = 100, .near_ns = 100 * MS };

        s.pause = of(pair[i].pause.count, MS, pair[i].pause.excess_ns,
                     pair[i].pause.square);
        s.bg = of(pair[i].bg.count, MS, pair[i].bg.excess_ns,
                  pair[i].bg.square);
        seek_return(&s, MS + pair[i].bg.excess_ns);
        if (pair[i].costs) {
            g_assert_cmpfloat(ABS(s.cost_ns - pair[i].bg.excess_ns +
                                  pair[i].pause.excess_ns), <, 1);
        } else {
            g_assert_cmpfloat(s.cost_ns, ==, 0);
        }
    }
}

/* Each is to blame for its part of the starts in the gap. */
static void test_share(void)
{
    IdletimeSeek s = { .cost_ns = 9 * MS };

    near(idletime_seek_share(&s, 0, 0), 0);
    near(idletime_seek_share(&s, 1, 4), 0.25);
    seek_look(&s, span(0, 0, true), (IdletimeTurn) { 0 });
    near(idletime_seek_share(&s, 0, 0), 0);
    seek_look(&s, span(0, 0, true), (IdletimeTurn) { .started = 2, .own = 1 });
    near(idletime_seek_share(&s, 0, 0), 0.5);
    near(idletime_seek_share(&s, 0, 2), 0.25);
    near(idletime_seek_share(&s, 2, 2), 0.75);
    seek_look(&s, span(0, 0, true), (IdletimeTurn) { .started = 1 });
    near(idletime_seek_share(&s, 0, 0), 1 / 3.0);
    /* A sum that shrank is that of one who left. */
    seek_look(&s, span(0, 0, true), (IdletimeTurn) { .own = 8 });
    near(idletime_seek_share(&s, 0, 0), 1);
    s.cost_ns = 0;
    near(idletime_seek_share(&s, 0, 0), 0);
    s.cost_ns = 9 * MS;
    seek_look(&s, span(1, MS, false), (IdletimeTurn) { .settled = true });
    near(idletime_seek_share(&s, 0, 0), 0);
}

/* How often a gap is left alone; the lot is the same for all. */
static int away_of(IdletimeSeek s, int gaps)
{
    int away = 0;

    for (int i = 0; i < gaps; i++) {
        IdletimeSeek one = s, other = s;
        bool first = idletime_seek_away(&one, SERVICE, i * 1000003ULL);

        g_assert_true(idletime_seek_away(&other, SERVICE, i * 1000003ULL) ==
                      first);
        /* Once drawn it stays, whatever is asked. */
        g_assert_true(idletime_seek_away(&one, SERVICE, i + 1) == first);
        away += first;
    }
    return away;
}

static void assert_one_in(const IdletimeSeek *s, int n)
{
    int away = away_of(*s, 6400);

    if (n == 0) {
        g_assert_cmpint(away, ==, 0);
    } else {
        g_assert_cmpfloat(ABS(away - 6400.0 / n), <, 4 * sqrt(6400.0 / n));
    }
}

static void test_lot(void)
{
    /* A standard error of 1 ms. */
    IdletimeSeek s = { .near_done = 16,
                       .bg = of(17, 0, 2.01 * MS, 16.0 * MS * MS) };

    /* Suspicious: at first every second, until it can be told every fourth. */
    assert_one_in(&s, 2);
    s.pause.count = 7;
    assert_one_in(&s, 2);
    s.pause.count = 8;
    assert_one_in(&s, 4);
    s.pause.count = 31;
    assert_one_in(&s, 4);
    /* Sooner where it is told that it is not worth it, by two errors. */
    s.pause.ns = 3.50 * MS;
    assert_one_in(&s, 4);
    s.pause.ns = 3.52 * MS;
    assert_one_in(&s, 64);
    s.pause.count = 8;
    assert_one_in(&s, 64);
    s.pause.count = 7;
    assert_one_in(&s, 2);
    /* The error is that of both; what is worth it is never told so. */
    s.pause = of(17, 0, 3.52 * MS, 16.0 * MS * MS);
    assert_one_in(&s, 4);
    s.pause = of(17, 0, 0, 0);
    assert_one_in(&s, 4);
    s.pause.count = 32;
    assert_one_in(&s, 64);
    s.cost_ns = 1;
    assert_one_in(&s, 16);
    s.pause.count = 8;
    assert_one_in(&s, 16);
    /* Not by more than two errors, or an eighth of a service: no suspicion. */
    s.bg.ns = 2.0 * MS;
    assert_one_in(&s, 0);
    s.bg = of(101, 0, 0.5 * MS, 0);
    assert_one_in(&s, 0);
    s.bg = of(101, 0, 0.51 * MS, 0);
    assert_one_in(&s, 16);
    s.bg.count = 7;
    assert_one_in(&s, 0);
    s.bg.count = 8;
    assert_one_in(&s, 16);
    /* Nothing to compare with: a sixteenth, whatever it is. */
    s.near_done = 15;
    s.bg.ns = 0;
    s.pause.count = 0;
    s.cost_ns = 0;
    assert_one_in(&s, 16);
    s.bg.count = 7;
    assert_one_in(&s, 0);
    /* Not in a gap in which ours ran. */
    s.bg.count = 8;
    s.before = IDLETIME_BEFORE_BG;
    assert_one_in(&s, 0);
}

/* A gap left alone is measured, and costs nobody anything. */
static void test_pause(void)
{
    IdletimeSeek s = { .near_done = 100, .near_ns = 100 * MS,
                       .bg = of(100, MS, 9 * MS, 0) };
    uint64_t gap = 0;

    while (!idletime_seek_away(&s, SERVICE, gap)) {
        s.drawn = false;
        gap++;
    }
    g_assert_cmpint(s.before, ==, IDLETIME_BEFORE_PAUSE);
    near(idletime_seek_price(&s), 0);
    s.pause = of(7, MS, 2 * MS, 0);
    near(idletime_seek_share(&s, 0, 0), 0);
    seek_look(&s, span(1, 3 * MS, false), (IdletimeTurn) { .settled = true });
    near(s.pause.count, 8);
    near(excess(&s.pause, 1.0 * MS), 2 * MS);
    near(s.cost_ns, 7 * MS);
    g_assert_cmpint(s.before, ==, IDLETIME_BEFORE_FG);
    g_assert_false(s.drawn);
    near(idletime_seek_price(&s), 7 * MS);
}

/*
 * No gap is left alone while returns after ours are no longer than others, so
 * that those after a pause are of a time when they were: of a busier one.
 */
static void test_not_suspected(void)
{
    IdletimeSeek s = {
        .near_done = 100, .near_ns = 100 * SERVICE,
        .pause = of(13, SERVICE, -9.0 * MS, 0),
        .bg = of(20, SERVICE, -2.0 * MS, 0),
    };

    seek_return(&s, SERVICE - 2 * MS);
    near(s.cost_ns, 0);
    s.bg = of(21, SERVICE, 2.0 * MS, 0);
    seek_return(&s, SERVICE + 2 * MS);
    near(s.cost_ns, 11 * MS);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/seek/near", test_near);
    g_test_add_func("/seek/excess", test_excess);
    g_test_add_func("/seek/kept", test_kept);
    g_test_add_func("/seek/lengths", test_lengths);
    g_test_add_func("/seek/settled", test_settled);
    g_test_add_func("/seek/judge", test_judge);
    g_test_add_func("/seek/clear", test_clear);
    g_test_add_func("/seek/share", test_share);
    g_test_add_func("/seek/lot", test_lot);
    g_test_add_func("/seek/pause", test_pause);
    g_test_add_func("/seek/not-suspected", test_not_suspected);
    return g_test_run();
}
