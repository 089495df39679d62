/*
 * The axioms of the property tests, and the ways to break them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "world.h"
#include "reference.h"

void world_break(World *w, const char *axiom)
{
    if (!w->broken) {
        w->broken = axiom;
    }
}

static bool is_waiting(const World *w, const WorldPart *self, int i)
{
    const WorldPart *other = &w->part[i];

    return other->held_count && self->skipped[i] != other->started + 1;
}

/* The earliest deadline that has passed, of those that wait; -1: none */
static int overdue_longest(const World *w, const WorldPart *self)
{
    int best = -1;

    for (int i = 0; i < w->p.participants && w->p.rule.max_hold_ns; i++) {
        int64_t since_ns = w->part[i].held[0].since_ns;

        if (is_waiting(w, self, i) &&
            w->now_ns >= since_ns + w->p.rule.max_hold_ns &&
            (best < 0 || since_ns < w->part[best].held[0].since_ns)) {
            best = i;
        }
    }
    return best;
}

/* Whose turn: least virtual time of those that wait and are not skipped. */
static int turn_next(const World *w, const WorldPart *self)
{
    int best = -1;

    for (int i = 0; i < w->p.participants; i++) {
        if (is_waiting(w, self, i) &&
            (best < 0 || w->part[i].vtime_ns < w->part[best].vtime_ns)) {
            best = i;
        }
    }
    return best;
}

IdletimeView world_view(const World *w, const WorldPart *self, int *next)
{
    int overdue = overdue_longest(w, self);

    *next = overdue >= 0 ? overdue : turn_next(w, self);
    return (IdletimeView) {
        .fg_started = w->fg_started, .fg_in_service = w->fg_in_service,
        .fg_last_ns = w->fg_last_ns, .bg_in_service = w->bg_in_service,
        .others_first = *next >= 0 && self != &w->part[*next],
        .overdue_first = overdue >= 0 && self != &w->part[overdue],
        .blind = w->p.blind,
    };
}

static bool ignored(WorldMutation mutation, IdletimeVerdictKind kind)
{
    return (mutation == WORLD_IGNORES_INTERVAL &&
            kind == IDLETIME_WAIT_INTERVAL) ||
           (mutation == WORLD_IGNORES_FOREGROUND &&
            kind == IDLETIME_WAIT_FOREGROUND) ||
           (mutation == WORLD_IGNORES_CAP && kind == IDLETIME_WAIT_INFLIGHT);
}

/* @overdue: our own first is */
IdletimeVerdict world_mutate(const World *w, IdletimeVerdict verdict,
                             bool overdue)
{
    if (ignored(w->p.mutation, verdict.kind)) {
        verdict.kind = IDLETIME_START;
    } else if (w->p.mutation == WORLD_IGNORES_OVERDUE &&
               verdict.kind == IDLETIME_WAIT_TURN && overdue) {
        verdict.kind = IDLETIME_PROMOTE;
    } else if (w->p.mutation == WORLD_IGNORES_DEADLINE &&
               verdict.kind == IDLETIME_PROMOTE) {
        verdict.kind = IDLETIME_WAIT_FOREGROUND;
        verdict.again_ns = w->now_ns + 10 * MS;
    } else if (w->p.mutation == WORLD_FORGETS_TIMER) {
        verdict.again_ns = INT64_MAX;
    }
    return verdict;
}

/*
 * Longest time between a deadline and the release: the bound that the docs
 * promise.  Everything else that can be held is overdue for longer, and the
 * cap is full of what is not; these are served before us, each once.  One at
 * the device waits there for the foreground requests before it and for the
 * cap's.  With room for a second one nobody wakes us but our own grace.
 */
static int64_t hold_slack_ns(const World *w)
{
    int64_t each_ns = (w->p.streams + w->p.rule.max_inflight) *
                      WORLD_SERVICE_NS;
    int64_t before = w->p.participants * w->p.outstanding - 1 +
                     w->p.rule.max_inflight;

    return before * each_ns / w->p.rule.max_inflight + IDLETIME_GRACE_NS;
}

/* When the last held request is gone at the latest, after all arrivals ended:
 * one look, one interval, then all that is held one by one, each after the
 * turn of everybody else was waited for. */
int64_t world_end_bound_ns(const World *w)
{
    int64_t look_ns = w->p.rule.interval_ns > IDLETIME_LOOK_MIN_NS ?
                      w->p.rule.interval_ns : IDLETIME_LOOK_MIN_NS;
    int64_t requests = w->p.participants * w->p.outstanding;
    int64_t fg_end_ns = MAX(w->fg_last_ns, w->p.horizon_ns);

    return fg_end_ns + look_ns + w->p.rule.interval_ns +
           (requests + w->p.rule.max_inflight) *
           (WORLD_SERVICE_NS + w->p.participants * 2 * IDLETIME_GRACE_NS);
}

static void check_start(World *w)
{
    if (w->fg_in_service) {
        world_break(w, "no background start while foreground is in service");
    }
    if (w->fg_started &&
        w->now_ns < w->fg_last_ns + w->p.rule.interval_ns) {
        world_break(w, "no background start within the interval");
    }
    if (w->p.blind) {
        world_break(w, "no background start but by deadline when blind");
    }
}

void world_check_release(World *w, const WorldPart *part,
                         const WorldHeld *held, IdletimeVerdictKind kind)
{
    int64_t deadline_ns = held->since_ns + w->p.rule.max_hold_ns;

    if (kind == IDLETIME_START) {
        check_start(w);
    } else if (!w->p.rule.max_hold_ns || w->now_ns < deadline_ns) {
        world_break(w, "no promotion before the deadline");
    }
    if (!w->p.blind && w->bg_in_service >= w->p.rule.max_inflight) {
        world_break(w, "the in-flight cap");
    }
    if (held->sequence != part->next_release) {
        world_break(w, "order within a participant");
    }
    if (w->p.rule.max_hold_ns && !w->p.deaf && !w->p.blind &&
        w->now_ns > deadline_ns + hold_slack_ns(w)) {
        world_break(w, "every held request is released by its deadline");
    }
}

/* Nothing overtakes it and nothing idles while it waits. */
void world_check_foreground(World *w, const WorldJob *job)
{
    if (w->now_ns != job->expected_ns) {
        world_break(w, "foreground never waits for the scheduler");
    }
}

static uint64_t column(const IdletimeCore *core, IdletimeEvent event)
{
    uint64_t sum = 0;

    for (int s = 0; s < IDLETIME_STATE__MAX; s++) {
        sum += core->count[s][event];
    }
    return sum;
}

static void check_counters(World *w, WorldPart *part)
{
    IdletimeCore *core = &part->core;
    int next;
    IdletimeView view = world_view(w, part, &next);

    idletime_core_observe(core, &w->p.rule, &view, w->now_ns);
    if (column(core, IDLETIME_EVENT_FOREGROUND) != w->fg_started) {
        world_break(w, "events f are the foreground requests");
    }
    if (!reference_degrees(core, IDLETIME_STATE_IDLE)) {
        world_break(w, "states are entered as often as left");
    }
    if (core->count[IDLETIME_STATE_IDLE][IDLETIME_EVENT_BACKGROUND] +
        core->count[IDLETIME_STATE_BACKGROUND][IDLETIME_EVENT_BACKGROUND] !=
        part->began_idle) {
        world_break(w, "events b are the background starts");
    }
}

void world_check_end(World *w)
{
    for (int i = 0; i < w->p.participants; i++) {
        if (w->part[i].held_count && !w->p.blind) {
            world_break(w, "every held request is released in the end");
        }
        if (!w->p.blind) {
            check_counters(w, &w->part[i]);
        }
    }
}
