/*
 * The core's decisions, one by one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "core-ask.h"

static void test_verdicts(void)
{
    IdletimeView view = quiet;
    int64_t now = 1000 * MS;

    g_assert_cmpint(ask(&rule20, &view, now, now).kind, ==, IDLETIME_START);

    /* Last event at 990 ms, interval 20 ms: allowed at 1010 ms. */
    view.fg_last_ns = 990 * MS;
    assert_wait(ask(&rule20, &view, now, now), IDLETIME_WAIT_INTERVAL,
                1010 * MS);
    assert_wait(ask(&rule20, &view, 1010 * MS - 1, now),
                IDLETIME_WAIT_INTERVAL, 1010 * MS);
    g_assert_cmpint(ask(&rule20, &view, 1010 * MS, now).kind, ==,
                    IDLETIME_START);

    /* In service: look again after one interval, 1000 + 20 ms. */
    view.fg_in_service = 1;
    assert_wait(ask(&rule20, &view, now, now), IDLETIME_WAIT_FOREGROUND,
                1020 * MS);

    /* Blind: 1000 + 100 ms, whatever else the view says. */
    view.blind = true;
    assert_wait(ask(&rule20, &view, now, now), IDLETIME_WAIT_ARENA, 1100 * MS);
}

static void test_cap_and_turn(void)
{
    IdletimeView view = { .fg_last_ns = INT64_MIN, .bg_in_service = 1,
                          .others_first = true };
    IdletimeRule two = rule20;
    int64_t now = 1000 * MS;

    /* The cap comes before the turn: 1000 + 10 ms. */
    assert_wait(ask(&rule20, &view, now, now), IDLETIME_WAIT_INFLIGHT,
                1010 * MS);
    /* Room for a second one, but it is another's turn: 1000 + 5 ms. */
    two.max_inflight = 2;
    assert_wait(ask(&two, &view, now, now), IDLETIME_WAIT_TURN, 1005 * MS);
    view.others_first = false;
    g_assert_cmpint(ask(&two, &view, now, now).kind, ==, IDLETIME_START);
}

/* The budget: no start before a time, whatever else is free. */
static void test_budget(void)
{
    IdletimeView view = quiet;
    int64_t now = 1000 * MS;

    view.closed_until_ns = 1003 * MS;
    assert_wait(ask(&rule20, &view, now, now), IDLETIME_WAIT_BUDGET,
                1003 * MS);
    assert_wait(ask(&rule20, &view, 1003 * MS - 1, now),
                IDLETIME_WAIT_BUDGET, 1003 * MS);
    g_assert_cmpint(ask(&rule20, &view, 1003 * MS, now).kind, ==,
                    IDLETIME_START);
    /* It comes before the cap and the turn, after the interval. */
    view.bg_in_service = 1;
    view.others_first = true;
    assert_wait(ask(&rule20, &view, now, now), IDLETIME_WAIT_BUDGET,
                1003 * MS);
    view.fg_last_ns = now - 1;
    assert_wait(ask(&rule20, &view, now, now), IDLETIME_WAIT_INTERVAL,
                1020 * MS - 1);
    /* The deadline is before it: held at 1 s, 5 s at most. */
    view = quiet;
    view.closed_until_ns = 7 * SEC;
    assert_wait(ask(&rule20, &view, now, now), IDLETIME_WAIT_BUDGET, 6 * SEC);
    g_assert_cmpint(ask(&rule20, &view, 6 * SEC, now).kind, ==,
                    IDLETIME_PROMOTE);
    /* 0 is open, also in a time before zero. */
    view.closed_until_ns = 0;
    g_assert_cmpint(ask(&rule20, &view, -SEC, -SEC).kind, ==, IDLETIME_START);
}

/* The foreground leaves room: neither it nor the interval is in the way. */
static void test_beside(void)
{
    IdletimeView view = { .fg_last_ns = SEC, .fg_in_service = 2,
                          .beside = true };

    g_assert_cmpint(ask(&rule20, &view, SEC, SEC).kind, ==, IDLETIME_START);
    view.fg_in_service = 0;
    g_assert_cmpint(ask(&rule20, &view, SEC, SEC).kind, ==, IDLETIME_START);
    /* All else is. */
    view.bg_in_service = 1;
    assert_wait(ask(&rule20, &view, SEC, SEC), IDLETIME_WAIT_INFLIGHT,
                SEC + 10 * MS);
    view.blind = true;
    assert_wait(ask(&rule20, &view, SEC, SEC), IDLETIME_WAIT_ARENA,
                SEC + 100 * MS);
}

/* Blind, the cap counts what is known to be in service: our own. */
static void test_blind_cap(void)
{
    IdletimeView view = { .fg_last_ns = INT64_MIN, .blind = true };
    IdletimeRule two = rule20;
    IdletimeCore core = core_new();

    two.max_inflight = 2;
    for (int n = 0; n < 2; n++) {
        g_assert_cmpint(idletime_core_ask(&core, &two, &view, 6 * SEC, SEC).
                        kind, ==, IDLETIME_PROMOTE);
        idletime_core_started(&core);
    }
    assert_wait(idletime_core_ask(&core, &two, &view, 6 * SEC, SEC),
                IDLETIME_WAIT_INFLIGHT, 6010 * MS);
    idletime_core_done(&core, &two, &view, 6 * SEC, true);
    g_assert_cmpint(idletime_core_ask(&core, &two, &view, 6 * SEC, SEC).kind,
                    ==, IDLETIME_PROMOTE);
}

static void test_due(void)
{
    IdletimeRule never = rule20;

    g_assert_cmpint(idletime_core_due_ns(&rule20, SEC), ==, 6 * SEC);
    g_assert_cmpint(idletime_core_due_ns(&rule20, INT64_MAX - 1), ==,
                    INT64_MAX);
    never.max_hold_ns = 0;
    g_assert_cmpint(idletime_core_due_ns(&never, SEC), ==, INT64_MAX);
}

static void test_deadlines(void)
{
    IdletimeView view = { .fg_last_ns = INT64_MIN, .fg_in_service = 3 };
    IdletimeRule never = rule20;
    int64_t held = 1000 * MS;

    /* Held at 1 s for at most 5 s: deadline 6 s; 1 ns before it the next look
     * (6 s - 1 ns + 20 ms) is cut down to the deadline. */
    assert_wait(ask(&rule20, &view, 6 * SEC - 1, held),
                IDLETIME_WAIT_FOREGROUND, 6 * SEC);
    g_assert_cmpint(ask(&rule20, &view, 6 * SEC, held).kind, ==,
                    IDLETIME_PROMOTE);

    /* The cap holds for a promoted one too: 6000 + 10 ms. */
    view.bg_in_service = 1;
    assert_wait(ask(&rule20, &view, 6 * SEC, held), IDLETIME_WAIT_INFLIGHT,
                6010 * MS);

    /* Another one is overdue for longer, it goes first: 6000 + 5 ms. */
    view.bg_in_service = 0;
    view.overdue_first = true;
    assert_wait(ask(&rule20, &view, 6 * SEC, held), IDLETIME_WAIT_TURN,
                6005 * MS);
    view.overdue_first = false;

    /* Blind, nothing is known, the cap neither. */
    view.bg_in_service = 1;
    view.blind = true;
    g_assert_cmpint(ask(&rule20, &view, 6 * SEC, held).kind, ==,
                    IDLETIME_PROMOTE);
    never.max_hold_ns = 0;
    assert_wait(ask(&never, &view, 6 * SEC, 0), IDLETIME_WAIT_ARENA, 6100 * MS);
}

/*
 * Somebody writes tokens and turns that are not so, or has many that are
 * overdue for longer: what is overdue waits a lease longer, 5 s; from then on
 * one goes each half second, until the board permits a start of ours.
 */
static void test_kept(void)
{
    IdletimeView kept[] = {
        { .fg_last_ns = INT64_MIN, .fg_in_service = 1, .bg_in_service = 1 },
        { .fg_last_ns = INT64_MIN, .fg_in_service = 1, .overdue_first = true },
    };
    IdletimeView well = { .fg_last_ns = INT64_MIN, .fg_in_service = 1 };

    for (int i = 0; i < 2; i++) {
        IdletimeCore core = core_new();
        IdletimeVerdict verdict;
        int64_t now_ns = 6 * SEC;

        for (; now_ns < 11 * SEC; now_ns += 10 * MS) {
            verdict = idletime_core_ask(&core, &rule20, &kept[i], now_ns, SEC);
            g_assert_cmpint(verdict.kind, >, IDLETIME_PROMOTE);
        }
        for (int n = 0; n < 3; n++) {
            verdict = idletime_core_ask(&core, &rule20, &kept[i], now_ns, SEC);
            g_assert_cmpint(verdict.kind, ==, IDLETIME_PROMOTE);
            g_assert_true(verdict.alone);
            idletime_core_started(&core);
            idletime_core_done(&core, &rule20, &kept[i], now_ns, true);
            for (int looks = 0; looks < 50; looks++, now_ns += 10 * MS) {
                verdict = idletime_core_ask(&core, &rule20, &kept[i], now_ns,
                                            SEC);
                g_assert_cmpint(verdict.kind, >, IDLETIME_PROMOTE);
            }
        }
        /* Our own are a cap, too. */
        idletime_core_started(&core);
        assert_wait(idletime_core_ask(&core, &rule20, &kept[i], now_ns, SEC),
                    IDLETIME_WAIT_INFLIGHT, now_ns + 10 * MS);
        idletime_core_done(&core, &rule20, &kept[i], now_ns, true);
        /* The board permits one: it is believed again. */
        verdict = idletime_core_ask(&core, &rule20, &well, now_ns, SEC);
        g_assert_cmpint(verdict.kind, ==, IDLETIME_PROMOTE);
        g_assert_false(verdict.alone);
        verdict = idletime_core_ask(&core, &rule20, &kept[i], now_ns, SEC);
        g_assert_cmpint(verdict.kind, >, IDLETIME_PROMOTE);
        /* Nobody asked for more than a second, or the clock has jumped. */
        for (int n = 0; n < 9; n++) {
            now_ns += SEC + 1;
            verdict = idletime_core_ask(&core, &rule20, &kept[i], now_ns, SEC);
            g_assert_cmpint(verdict.kind, >, IDLETIME_PROMOTE);
        }
    }
}

static void test_interval_zero(void)
{
    IdletimeRule plain = rule20;
    IdletimeView view = { .fg_last_ns = 1000 * MS };

    plain.interval_ns = 0;
    g_assert_cmpint(ask(&plain, &view, 1000 * MS, 0).kind, ==, IDLETIME_START);
    /* Looking every 0 ns would burn the processor: the floor is 0.2 ms. */
    view.fg_in_service = 1;
    assert_wait(ask(&plain, &view, 1000 * MS, 1000 * MS),
                IDLETIME_WAIT_FOREGROUND, 1000 * MS + 200 * 1000);
}

static void test_saturation(void)
{
    IdletimeRule huge = { INT64_MAX, 0, 1 };
    IdletimeView view = { .fg_last_ns = 1 };

    /* 1 + INT64_MAX saturates: wait for the end of time, not for its begin. */
    assert_wait(ask(&huge, &view, 5, 0), IDLETIME_WAIT_INTERVAL, INT64_MAX);
    view.fg_in_service = 1;
    assert_wait(ask(&huge, &view, INT64_MAX - 1, 0), IDLETIME_WAIT_FOREGROUND,
                INT64_MAX);
    /* No deadline (hold 0) is not a deadline at the end of time. */
    assert_wait(ask(&huge, &view, INT64_MAX, 0), IDLETIME_WAIT_FOREGROUND,
                INT64_MAX);
    /* No foreground ever: INT64_MIN + INT64_MAX is -1, long past. */
    g_assert_cmpint(ask(&huge, &quiet, 0, 0).kind, ==, IDLETIME_START);
    /* INT64_MIN + 20 ms, asked at INT64_MIN: 20 ms after the begin of time. */
    g_assert_cmpint(ask(&rule20, &quiet, INT64_MIN + 20 * MS, INT64_MIN).kind,
                    ==, IDLETIME_START);
    assert_wait(ask(&rule20, &quiet, INT64_MIN + 1, INT64_MIN),
                IDLETIME_WAIT_INTERVAL, INT64_MIN + 20 * MS);
    /* A deadline beyond the end of time: held + hold saturates. */
    huge.max_hold_ns = INT64_MAX;
    assert_wait(ask(&huge, &view, INT64_MAX - 2, 7), IDLETIME_WAIT_FOREGROUND,
                INT64_MAX);
}

/* A host that was suspended: between two looks the clock jumps by an hour. */
static void test_jump(void)
{
    const int64_t hour = 3600 * SEC;
    IdletimeView view = { .fg_started = 1, .fg_last_ns = SEC };

    /* Idle since before the jump: the interval of 20 ms is over. */
    assert_wait(ask(&rule20, &view, SEC + 1 * MS, SEC),
                IDLETIME_WAIT_INTERVAL, SEC + 20 * MS);
    g_assert_cmpint(ask(&rule20, &view, SEC + hour, SEC).kind, ==,
                    IDLETIME_START);
    /* In service across it: past its deadline of 5 s, so it is promoted. */
    view.fg_in_service = 1;
    g_assert_cmpint(ask(&rule20, &view, SEC + hour, SEC).kind, ==,
                    IDLETIME_PROMOTE);
    /* But within the cap: all deadlines are over, and one leaves at a time. */
    view.bg_in_service = 1;
    g_assert_cmpint(ask(&rule20, &view, SEC + hour, SEC).kind, ==,
                    IDLETIME_WAIT_INFLIGHT);
    /* Back by an hour: an event in the future counts as now. */
    view = (IdletimeView) { .fg_started = 1, .fg_last_ns = SEC + hour };
    assert_wait(ask(&rule20, &view, SEC, SEC), IDLETIME_WAIT_INTERVAL,
                SEC + 20 * MS);
}

static void test_future(void)
{
    IdletimeView view = { .fg_last_ns = 10 * SEC };
    IdletimeCore core = core_new();

    /* "Last event at 10 s", said at 1 s, is taken as 1 s: allowed at 1.02 s. */
    assert_wait(idletime_core_ask(&core, &rule20, &view, SEC, SEC),
                IDLETIME_WAIT_INTERVAL, 1020 * MS);
    g_assert_cmpint(core.fg_last_ns, ==, SEC);
}

/*
 * An arena that is to be observed, and is not: there may be foreground that
 * nobody sees.  Held to the deadline as if blind; but the cap, and who is
 * overdue for longer, are on the board, and hold.
 */
static void test_unseen(void)
{
    IdletimeView view = { .fg_last_ns = INT64_MIN, .unseen = true };

    assert_wait(ask(&rule20, &view, SEC, SEC), IDLETIME_WAIT_ARENA,
                1100 * MS);
    assert_wait(ask(&rule20, &view, 6 * SEC - 1, SEC), IDLETIME_WAIT_ARENA,
                6 * SEC);
    g_assert_cmpint(ask(&rule20, &view, 6 * SEC, SEC).kind, ==,
                    IDLETIME_PROMOTE);
    /* Room beside the foreground is not known either. */
    view.beside = true;
    assert_wait(ask(&rule20, &view, SEC, SEC), IDLETIME_WAIT_ARENA,
                1100 * MS);
    view.overdue_first = true;
    assert_wait(ask(&rule20, &view, 6 * SEC, SEC), IDLETIME_WAIT_TURN,
                6005 * MS);
    view.bg_in_service = 1;
    assert_wait(ask(&rule20, &view, 6 * SEC, SEC), IDLETIME_WAIT_INFLIGHT,
                6010 * MS);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/core/verdicts", test_verdicts);
    g_test_add_func("/core/cap-and-turn", test_cap_and_turn);
    g_test_add_func("/core/budget", test_budget);
    g_test_add_func("/core/beside", test_beside);
    g_test_add_func("/core/blind-cap", test_blind_cap);
    g_test_add_func("/core/due", test_due);
    g_test_add_func("/core/deadlines", test_deadlines);
    g_test_add_func("/core/kept", test_kept);
    g_test_add_func("/core/interval-zero", test_interval_zero);
    g_test_add_func("/core/saturation", test_saturation);
    g_test_add_func("/core/jump", test_jump);
    g_test_add_func("/core/future", test_future);
    g_test_add_func("/core/unseen", test_unseen);
    return g_test_run();
}
