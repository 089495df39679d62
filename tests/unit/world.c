/*
 * The events of the world of the property tests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "world.h"

/* More asks at one instant than this: the core asks to be asked at once. */
#define SPIN_MAX 10000

static int64_t service_time(uint64_t *random)
{
    return test_range(random, WORLD_SERVICE_NS / 5, WORLD_SERVICE_NS);
}

/* ---- the device */

static void device_begin(World *w)
{
    WorldJob *job = &w->queue[w->head];

    w->done_ns = w->now_ns + job->service_ns;
    if (job->owner < 0) {
        world_check_foreground(w, job);
        w->fg_hash = (w->fg_hash ^ (uint64_t)w->now_ns) * 0x100000001b3ULL;
    }
}

static void device_issue(World *w, WorldJob job)
{
    int64_t free_ns = w->length ? w->done_ns : w->now_ns;

    for (int i = 1; i < w->length; i++) {
        free_ns += w->queue[(w->head + i) % WORLD_QUEUE].service_ns;
    }
    job.issued_ns = w->now_ns;
    job.expected_ns = free_ns;
    g_assert_cmpint(w->length, <, WORLD_QUEUE);
    w->queue[(w->head + w->length++) % WORLD_QUEUE] = job;
    if (w->length == 1) {
        device_begin(w);
    }
}

/* ---- background */

static void release(World *w, WorldPart *part, IdletimeVerdictKind kind)
{
    int which = w->p.mutation == WORLD_REORDERS ? part->held_count - 1 : 0;
    WorldHeld held = part->held[which];

    world_check_release(w, part, &held, kind);
    part->promoted += kind == IDLETIME_PROMOTE;
    part->began_idle += part->core.state == IDLETIME_STATE_IDLE ||
                        part->core.state == IDLETIME_STATE_BACKGROUND;
    idletime_core_started(&part->core);
    part->held_count--;
    memmove(&part->held[which], &part->held[which + 1],
            (part->held_count - which) * sizeof(held));
    part->next_release++;
    part->started++;
    w->clock_ns = MAX(w->clock_ns, part->vtime_ns);
    w->bg_in_service++;
    device_issue(w, (WorldJob) {
        .owner = part - w->part, .stream = held.stream,
        .service_ns = service_time(&w->bg_random),
    });
}

/* Another one's turn: wait a grace, then pass over it. */
static bool turn_passed(World *w, WorldPart *part, int next)
{
    if (part->turn_of != next ||
        part->turn_started != w->part[next].started) {
        part->turn_of = next;
        part->turn_started = w->part[next].started;
        part->turn_since_ns = w->now_ns;
    }
    if (w->now_ns < part->turn_since_ns + IDLETIME_GRACE_NS) {
        return false;
    }
    part->skipped[next] = w->part[next].started + 1;
    part->turn_of = -1;
    return true;
}

static void ask(World *w, WorldPart *part)
{
    IdletimeVerdict verdict = { .kind = IDLETIME_START };
    bool going = true;

    while (part->held_count && going && w->now_ns >= part->deaf_until_ns) {
        int next;
        IdletimeView view = world_view(w, part, &next);

        verdict = idletime_core_ask(&part->core, &w->p.rule, &view, w->now_ns,
                                    part->held[0].since_ns);
        verdict = world_mutate(w, verdict,
                               w->now_ns >= idletime_core_due_ns(&w->p.rule,
                                                part->held[0].since_ns));
        part->timer_ns = verdict.again_ns;
        if (verdict.kind != IDLETIME_WAIT_TURN) {
            part->turn_of = -1;
        }
        if (verdict.kind == IDLETIME_START ||
            verdict.kind == IDLETIME_PROMOTE) {
            release(w, part, verdict.kind);
        } else {
            going = verdict.kind == IDLETIME_WAIT_TURN &&
                    turn_passed(w, part, next);
        }
    }
    if (!part->held_count) {
        part->timer_ns = INT64_MAX;
    } else if (w->now_ns < part->deaf_until_ns) {
        part->timer_ns = part->deaf_until_ns;
    } else if (part->timer_ns <= w->now_ns) {
        world_break(w, "the next look lies in the future");
    }
}

static void ask_all(World *w)
{
    bool asked[WORLD_PARTICIPANTS] = { false };

    for (int n = 0; n < w->p.participants; n++) {
        int first = -1;

        for (int i = 0; i < w->p.participants; i++) {
            if (!asked[i] && (first < 0 || w->part[i].vtime_ns <
                                           w->part[first].vtime_ns)) {
                first = i;
            }
        }
        asked[first] = true;
        ask(w, &w->part[first]);
    }
}

static void background_arrives(World *w, WorldPart *part, int stream)
{
    part->arrival_ns[stream] = INT64_MAX;
    if (!part->held_count) {
        part->vtime_ns = MAX(part->vtime_ns, w->clock_ns);
    }
    part->held[part->held_count++] = (WorldHeld) {
        .sequence = part->next_sequence++, .since_ns = w->now_ns,
        .stream = stream,
    };
    if (w->p.deaf && test_range(&w->bg_random, 0, 20) == 0) {
        part->deaf_until_ns = w->now_ns + test_range(&w->bg_random, 1, 80) * MS;
        part->deaf_until_ns = MIN(part->deaf_until_ns, w->p.horizon_ns);
    }
    ask(w, part);
}

static void background_done(World *w, WorldJob job)
{
    WorldPart *part = &w->part[job.owner];
    int next;
    IdletimeView view;

    w->bg_in_service--;
    part->vtime_ns += job.service_ns;
    part->arrival_ns[job.stream] = w->now_ns +
        (test_random(&w->bg_random) % 4 ? 0 :
         test_range(&w->bg_random, 1, 10 * MS));
    view = world_view(w, part, &next);
    idletime_core_done(&part->core, &w->p.rule, &view, w->now_ns,
                       part->held_count > 0);
    /* As in QEMU: whoever had the token asks before it wakes others. */
    ask(w, part);
    ask_all(w);
}

/* ---- foreground: bursts with short gaps, then a long one */

static int64_t gap(World *w)
{
    return test_random(&w->fg_random) % 4 ?
           (int64_t)test_range(&w->fg_random, 1, 2 * MS) :
           (int64_t)test_range(&w->fg_random, 1, 60 * MS);
}

static void foreground_arrives(World *w, int stream)
{
    w->stream_ns[stream] = INT64_MAX;
    w->fg_started++;
    w->fg_in_service++;
    w->fg_last_ns = w->now_ns;
    device_issue(w, (WorldJob) {
        .owner = -1, .stream = stream,
        .service_ns = service_time(&w->fg_random),
    });
}

static void job_done(World *w)
{
    WorldJob job = w->queue[w->head];

    w->head = (w->head + 1) % WORLD_QUEUE;
    if (--w->length) {
        device_begin(w);
    }
    if (job.owner < 0) {
        w->fg_in_service--;
        w->fg_last_ns = w->now_ns;
        w->stream_ns[job.stream] = w->now_ns + gap(w);
    } else {
        background_done(w, job);
    }
}

/* ---- time */

static int64_t next_event_ns(const World *w)
{
    int64_t next_ns = w->length ? w->done_ns : INT64_MAX;

    for (int i = 0; i < w->p.streams; i++) {
        if (w->stream_ns[i] < w->p.horizon_ns) {
            next_ns = MIN(next_ns, w->stream_ns[i]);
        }
    }
    for (int i = 0; i < w->p.participants; i++) {
        next_ns = MIN(next_ns, w->part[i].timer_ns);
        for (int k = 0; k < w->p.outstanding; k++) {
            if (w->part[i].arrival_ns[k] < w->p.horizon_ns) {
                next_ns = MIN(next_ns, w->part[i].arrival_ns[k]);
            }
        }
    }
    return next_ns;
}

static void background_step(World *w, WorldPart *part)
{
    for (int k = 0; k < w->p.outstanding; k++) {
        if (part->arrival_ns[k] <= w->now_ns &&
            part->arrival_ns[k] < w->p.horizon_ns) {
            background_arrives(w, part, k);
        }
    }
    if (part->timer_ns <= w->now_ns) {
        part->timer_ns = INT64_MAX;
        ask(w, part);
    }
}

static void step(World *w)
{
    if (w->length && w->done_ns <= w->now_ns) {
        job_done(w);
    }
    for (int i = 0; i < w->p.streams; i++) {
        if (w->stream_ns[i] <= w->now_ns &&
            w->stream_ns[i] < w->p.horizon_ns) {
            foreground_arrives(w, i);
        }
    }
    for (int i = 0; i < w->p.participants; i++) {
        background_step(w, &w->part[i]);
    }
}

static void begin(World *w)
{
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };

    for (int i = 0; i < w->p.streams; i++) {
        w->stream_ns[i] = gap(w);
    }
    for (int i = 0; i < w->p.participants; i++) {
        WorldPart *part = &w->part[i];

        idletime_core_init(&part->core, &nothing);
        part->timer_ns = INT64_MAX;
        part->turn_of = -1;
        for (int k = 0; k < w->p.outstanding; k++) {
            part->arrival_ns[k] = test_range(&w->bg_random, 0, 5 * MS);
        }
    }
}

const char *world_run(World *w, const WorldParams *params)
{
    int spins = 0;

    *w = (World) {
        .p = *params, .fg_random = params->seed,
        .bg_random = ~params->seed, .fg_last_ns = INT64_MIN,
        .fg_hash = 0xcbf29ce484222325ULL,
    };
    begin(w);
    while (!w->broken && spins < SPIN_MAX) {
        int64_t next_ns = next_event_ns(w);

        if (next_ns == INT64_MAX ||
            (next_ns > world_end_bound_ns(w) && !w->fg_in_service &&
             next_ns > w->p.horizon_ns)) {
            break;
        }
        spins = next_ns == w->now_ns ? spins + 1 : 0;
        w->now_ns = MAX(next_ns, w->now_ns);
        step(w);
    }
    if (spins == SPIN_MAX) {
        world_break(w, "time goes on");
    }
    world_check_end(w);
    return w->broken;
}
