/*
 * The core's state machine: its table, and which events it makes of views.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "core-ask.h"
#include "reference.h"
#include "idletime/core/time.h"

#define I IDLETIME_STATE_IDLE
#define F IDLETIME_STATE_FOREGROUND
#define P IDLETIME_STATE_PREEMPTION
#define B IDLETIME_STATE_BACKGROUND
#define f IDLETIME_EVENT_FOREGROUND
#define b IDLETIME_EVENT_BACKGROUND
#define t IDLETIME_EVENT_TIMER
#define i IDLETIME_EVENT_EMPTY

static uint64_t count_all(const IdletimeCore *core)
{
    uint64_t sum = 0;

    for (int s = 0; s < 4; s++) {
        for (int e = 0; e < 4; e++) {
            sum += core->count[s][e];
        }
    }
    return sum;
}

static void test_table(void)
{
    static const struct { int state, event, next; } pair[] = {
        { I, f, F }, { I, b, B }, { I, t, I }, { I, i, I },
        { F, f, F }, { F, b, P }, { F, t, F }, { F, i, P },
        { P, f, F }, { P, b, P }, { P, t, I }, { P, i, P },
        { B, f, F }, { B, b, B }, { B, t, B }, { B, i, I },
    };

    for (unsigned n = 0; n < G_N_ELEMENTS(pair); n++) {
        IdletimeCore core = core_new();

        core.state = pair[n].state;
        g_assert_cmpint(idletime_core_event(&core, pair[n].event), ==,
                        pair[n].next);
        g_assert_cmpint(core.state, ==, pair[n].next);
        g_assert_cmpint(core.count[pair[n].state][pair[n].event], ==, 1);
        g_assert_cmpint(count_all(&core), ==, 1);
    }
}

static void test_names(void)
{
    g_assert_cmpstr(idletime_state_name(P), ==, "preemption");
    g_assert_cmpstr(idletime_event_name(i), ==, "empty");
    g_assert_cmpstr(idletime_state_name(IDLETIME_STATE__MAX), ==, "unknown");
    g_assert_cmpstr(idletime_event_name(IDLETIME_EVENT__MAX), ==, "unknown");
    g_assert_cmpstr(idletime_state_name(99), ==, "unknown");
    g_assert_cmpstr(idletime_event_name(99), ==, "unknown");
}

/* Sight comes back: totals that grew meanwhile are no events. */
static void test_sees_again(void)
{
    IdletimeView view = { .fg_last_ns = INT64_MIN, .blind = true };
    IdletimeCore core = core_new();

    idletime_core_observe(&core, &rule20, &view, SEC);
    view = (IdletimeView) { .fg_started = 500, .fg_last_ns = SEC };
    idletime_core_observe(&core, &rule20, &view, 2 * SEC);
    g_assert_cmpint(count_all(&core), ==, 0);
    view.fg_started = 502;
    idletime_core_observe(&core, &rule20, &view, 2 * SEC);
    g_assert_cmpint(core.count[I][f], ==, 1);
    g_assert_cmpint(core.count[F][f], ==, 1);
}

/*
 * In service without a start that we saw (it began before the first look):
 * one event f, and no second one while it lasts.
 */
static void test_in_service_at_first(void)
{
    IdletimeView view = { .fg_started = 7, .fg_last_ns = SEC,
                          .fg_in_service = 1 };
    IdletimeCore core;

    idletime_core_init(&core, &view);
    idletime_core_observe(&core, &rule20, &view, SEC);
    idletime_core_observe(&core, &rule20, &view, SEC + 1);
    g_assert_cmpint(count_all(&core), ==, 1);
    g_assert_cmpint(core.count[I][f], ==, 1);
    g_assert_cmpint(core.state, ==, F);
    /* It ends; whether one of ours waits tells b from i. */
    view.fg_in_service = 0;
    g_assert_cmpint(idletime_core_ask(&core, &rule20, &view, SEC + 2,
                                      SEC).kind, ==, IDLETIME_WAIT_INTERVAL);
    g_assert_cmpint(core.count[F][b], ==, 1);
    g_assert_cmpint(core.state, ==, P);
    /* The timer, to the nanosecond: 1 s + 20 ms. */
    idletime_core_observe(&core, &rule20, &view, 1020 * MS - 1);
    g_assert_cmpint(core.state, ==, P);
    idletime_core_observe(&core, &rule20, &view, 1020 * MS);
    g_assert_cmpint(core.state, ==, I);
    g_assert_cmpint(core.count[P][t], ==, 1);
    g_assert_cmpint(count_all(&core), ==, 3);
}

/*
 * State background ends when ours is done and the next one has to wait; not
 * while another of ours is in service.
 */
static void test_waits_after_own(void)
{
    IdletimeView view = { .fg_last_ns = INT64_MIN, .bg_in_service = 1 };
    IdletimeCore core = core_new();

    idletime_core_started(&core);
    idletime_core_started(&core);
    idletime_core_done(&core, &rule20, &view, MS, true);
    g_assert_cmpint(idletime_core_ask(&core, &rule20, &view, MS, MS).kind, ==,
                    IDLETIME_WAIT_INFLIGHT);
    g_assert_cmpint(core.state, ==, B);
    idletime_core_done(&core, &rule20, &view, MS, true);
    g_assert_cmpint(core.state, ==, B);
    g_assert_cmpint(idletime_core_ask(&core, &rule20, &view, MS, MS).kind, ==,
                    IDLETIME_WAIT_INFLIGHT);
    g_assert_cmpint(core.state, ==, I);
    g_assert_cmpint(core.count[B][i], ==, 1);
    /* I[b], B[b], B[i] */
    g_assert_cmpint(count_all(&core), ==, 3);
}

/* A promoted start beside the foreground is no event. */
static void test_promoted_is_no_event(void)
{
    IdletimeView view = { .fg_started = 1, .fg_in_service = 1,
                          .fg_last_ns = SEC };
    IdletimeCore core = core_new();

    idletime_core_observe(&core, &rule20, &view, SEC);
    idletime_core_started(&core);
    g_assert_cmpint(core.state, ==, F);
    g_assert_cmpint(core.own_in_service, ==, 1);
    g_assert_cmpint(count_all(&core), ==, 1);
}

/* Sums and differences of times end at the ends of time. */
static void test_time(void)
{
    g_assert_cmpint(idletime_time_add(3, -5), ==, -2);
    g_assert_cmpint(idletime_time_add(INT64_MAX, 0), ==, INT64_MAX);
    g_assert_cmpint(idletime_time_add(INT64_MAX, 1), ==, INT64_MAX);
    g_assert_cmpint(idletime_time_add(INT64_MAX - 1, 1), ==, INT64_MAX);
    g_assert_cmpint(idletime_time_add(INT64_MIN, -1), ==, INT64_MIN);
    g_assert_cmpint(idletime_time_sub(3, 5), ==, -2);
    g_assert_cmpint(idletime_time_sub(INT64_MAX, -1), ==, INT64_MAX);
    g_assert_cmpint(idletime_time_sub(0, INT64_MIN), ==, INT64_MAX);
    g_assert_cmpint(idletime_time_sub(INT64_MIN, 1), ==, INT64_MIN);
    g_assert_cmpint(idletime_time_sub(-1, INT64_MAX), ==, INT64_MIN);
}

static void test_arrivals(void)
{
    IdletimeView view = { .fg_started = 100, .fg_last_ns = INT64_MIN };
    IdletimeCore core;

    idletime_core_init(&core, &view);
    /* 100 -> 104: four f: one I[f], then three F[f]; none is in service any
     * more, so F[i] to preemption. */
    view.fg_started = 104;
    view.fg_last_ns = SEC;
    idletime_core_observe(&core, &rule20, &view, SEC + 1);
    g_assert_cmpint(core.count[I][f], ==, 1);
    g_assert_cmpint(core.count[F][f], ==, 3);
    g_assert_cmpint(core.count[F][i], ==, 1);
    g_assert_cmpint(core.state, ==, P);

    /* 104 -> 60: a participant left.  No events f; the interval still runs. */
    view.fg_started = 60;
    idletime_core_observe(&core, &rule20, &view, SEC + 2);
    g_assert_cmpint(count_all(&core), ==, 5);
    /* 60 -> 61 is one again; 20 ms later the timer. */
    view.fg_started = 61;
    idletime_core_observe(&core, &rule20, &view, SEC + 20 * MS);
    g_assert_cmpint(core.count[P][f], ==, 1);
    g_assert_cmpint(core.count[F][i], ==, 2);
    g_assert_cmpint(core.count[P][t], ==, 1);
    g_assert_cmpint(core.state, ==, I);
    g_assert_true(reference_degrees(&core, I));
}

static void test_collision(void)
{
    IdletimeView view = quiet;
    IdletimeCore core = core_new();

    g_assert_cmpint(idletime_core_ask(&core, &rule20, &view, 0, 0).kind, ==,
                    IDLETIME_START);
    idletime_core_started(&core);
    g_assert_cmpint(core.state, ==, B);
    view = (IdletimeView) { .fg_started = 1, .fg_in_service = 1,
                            .fg_last_ns = 2 * MS, .bg_in_service = 1 };
    idletime_core_done(&core, &rule20, &view, 5 * MS, true);
    g_assert_cmpint(core.count[B][f], ==, 1);
    g_assert_cmpint(core.state, ==, F);
    g_assert_cmpint(core.own_in_service, ==, 0);
}

static void test_done_without_more(void)
{
    IdletimeCore core = core_new();

    idletime_core_started(&core);
    idletime_core_started(&core);
    idletime_core_done(&core, &rule20, &quiet, MS, false);
    g_assert_cmpint(core.state, ==, B);
    idletime_core_done(&core, &rule20, &quiet, MS, false);
    g_assert_cmpint(core.state, ==, I);
    g_assert_cmpint(core.count[B][i], ==, 1);
    /* One done too many is no underflow. */
    idletime_core_done(&core, &rule20, &quiet, MS, false);
    g_assert_cmpint(core.own_in_service, ==, 0);
}

static void test_blind(void)
{
    IdletimeView blind = { .blind = true, .fg_started = 77,
                           .fg_in_service = 5, .fg_last_ns = 3 };
    IdletimeCore core = core_new();

    idletime_core_observe(&core, &rule20, &blind, SEC);
    g_assert_cmpint(count_all(&core), ==, 0);
    g_assert_cmpint(core.fg_started, ==, 0);
}

/*
 * The observer is gone: what its arena's sums do meanwhile are no events, nor
 * what they have grown by when it is back.
 */
static void test_unseen(void)
{
    IdletimeView view = { .fg_last_ns = INT64_MIN, .unseen = true,
                          .fg_started = 77, .fg_in_service = 5 };
    IdletimeCore core = core_new();

    idletime_core_observe(&core, &rule20, &view, SEC);
    g_assert_cmpint(count_all(&core), ==, 0);
    g_assert_cmpint(core.fg_started, ==, 0);
    view = (IdletimeView) { .fg_started = 500, .fg_last_ns = SEC };
    idletime_core_observe(&core, &rule20, &view, 2 * SEC);
    g_assert_cmpint(count_all(&core), ==, 0);
    g_assert_cmpint(core.fg_started, ==, 500);
    view.fg_started = 501;
    idletime_core_observe(&core, &rule20, &view, 2 * SEC);
    g_assert_cmpint(core.count[I][f], ==, 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/core/table", test_table);
    g_test_add_func("/core/names", test_names);
    g_test_add_func("/core/sees-again", test_sees_again);
    g_test_add_func("/core/in-service-at-first", test_in_service_at_first);
    g_test_add_func("/core/waits-after-own", test_waits_after_own);
    g_test_add_func("/core/promoted-is-no-event", test_promoted_is_no_event);
    g_test_add_func("/core/time", test_time);
    g_test_add_func("/core/arrivals", test_arrivals);
    g_test_add_func("/core/collision", test_collision);
    g_test_add_func("/core/done-without-more", test_done_without_more);
    g_test_add_func("/core/blind", test_blind);
    g_test_add_func("/core/unseen/counters", test_unseen);
    return g_test_run();
}
