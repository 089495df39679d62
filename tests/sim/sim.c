/*
 * The events of the simulator.  Core and learner decide, unchanged; all that
 * is around them is modelled here in virtual time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include <assert.h>
#include "sim-impl.h"

/* A host's processor that has something else to do, mean. */
#define STALL_NS    20e6

int64_t sim_service_ns(Sim *s)
{
    int64_t ns = s->p.service_ns;

    if (s->p.spread > 0) {
        ns *= 1 + s->p.spread * (2 * sim_uniform(&s->random) - 1);
    }
    if (s->p.noise_ns) {
        ns += sim_exponential(&s->random, s->p.noise_ns);
    }
    return ns;
}

/* On its way: half of the mean always, the rest by chance. */
static int64_t path_end_ns(Sim *s)
{
    bool stalled = sim_uniform(&s->path_random) < s->p.stalls;

    return s->now_ns + s->p.path_ns / 2 +
           sim_exponential(&s->path_random, s->p.path_ns / 2.0) +
           stalled * sim_exponential(&s->path_random, STALL_NS);
}

void sim_issue(Sim *s, SimRequest request)
{
    if (s->p.path_ns) {
        sim_path_send(&s->to, request, path_end_ns(s));
    } else {
        sim_device_issue(&s->device, request, s->now_ns);
    }
}

/* ---- foreground */

static void foreground_issue(Sim *s, int index)
{
    SimForeground *f = &s->fg[index];

    sim_load_issued(f, &s->p);
    s->fg_last_ns = s->now_ns;
    s->fg_started++;
    s->fg_in_service++;
    idletime_fg_begin(&f->writer, s->now_ns, 4096);
    sim_issue(s, (SimRequest) {
        .owner = ~index, .issued_ns = s->now_ns,
        .service_ns = sim_service_ns(s),
    });
}

static void note_latency(Sim *s, int64_t ns)
{
    if (s->now_ns < s->p.warm_up_ns) {
        return;
    }
    if (s->latencies == s->latencies_max) {
        s->latencies_max = s->latencies_max * 2 + 4096;
        s->latency_ns = realloc(s->latency_ns,
                                s->latencies_max * sizeof(int64_t));
    }
    s->latency_ns[s->latencies++] = ns;
    s->fg_done++;
}

static void foreground_done(Sim *s, const SimRequest *request)
{
    SimForeground *f = &s->fg[~request->owner];

    s->fg_in_service--;
    s->fg_last_ns = s->now_ns;
    note_latency(s, s->now_ns - request->issued_ns);
    idletime_fg_end(&f->writer, s->now_ns);
    sim_load_done(f, &s->p, s->now_ns);
}

/* ---- time */

static int64_t next_ns(const Sim *s)
{
    int64_t next = MIN(sim_device_next_ns(&s->device), s->change_ns);

    next = MIN(next, MIN(sim_path_next_ns(&s->to), sim_path_next_ns(&s->from)));

    for (int i = 0; i < s->p.foregrounds; i++) {
        next = MIN(next, s->fg[i].next_ns);
    }
    for (int i = 0; i < s->p.participants; i++) {
        next = MIN(next, s->part[i].timer_ns);
        for (int k = 0; k < s->p.outstanding; k++) {
            next = MIN(next, s->part[i].back_ns[k]);
        }
    }
    return next;
}

static void done(Sim *s, const SimRequest *request)
{
    if (request->owner < 0) {
        foreground_done(s, request);
    } else {
        sim_background_done(s, request);
    }
}

static void move_requests(Sim *s)
{
    SimRequest request;

    while (sim_path_arrived(&s->to, s->now_ns, &request)) {
        sim_device_issue(&s->device, request, s->now_ns);
    }
    while (sim_device_done(&s->device, s->now_ns, &request)) {
        if (s->p.path_ns) {
            sim_path_send(&s->from, request, path_end_ns(s));
        } else {
            done(s, &request);
        }
    }
    while (sim_path_arrived(&s->from, s->now_ns, &request)) {
        done(s, &request);
    }
}

static void step(Sim *s)
{
    s->steps++;
    if (s->change_ns <= s->now_ns) {
        s->change_ns = INT64_MAX;
        for (int i = 0; i < s->p.foregrounds; i++) {
            sim_load_begin(&s->fg[i], &s->p, s->now_ns, i);
        }
    }
    move_requests(s);
    for (int i = 0; i < s->p.foregrounds; i++) {
        if (s->fg[i].next_ns <= s->now_ns) {
            foreground_issue(s, i);
        }
    }
    for (int i = 0; i < s->p.participants; i++) {
        sim_background_step(s, &s->part[i]);
    }
}

static void begin(Sim *s)
{
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };

    s->device.channels = s->p.channels;
    s->device.switch_ns = s->p.switch_ns;
    s->fg_last_ns = s->bg_last_ns = INT64_MIN;
    s->interval_ns = s->p.policy.interval_ns;
    s->change_ns = s->p.change_ns ? s->p.change_ns : INT64_MAX;
    s->bg_service_ns = sim_service_ns(s);
    for (int i = 0; i < s->p.foregrounds; i++) {
        SimForeground *f = &s->fg[i];

        /* A schedule of its own: the same whatever the background does. */
        f->random = s->p.seed * 1000 + i;
        f->noise = ~f->random;
        f->writer.line = &s->board->line[i];
        f->writer.page = &s->board->page[i];
        sim_load_begin(f, &s->p, 0, i);
    }
    for (int i = 0; i < s->p.participants; i++) {
        s->part[i].timer_ns = INT64_MAX;
        idletime_core_init(&s->part[i].core, &nothing);
        idletime_learner_init(&s->part[i].learner, 0);
        for (int k = 0; k < s->p.outstanding; k++) {
            s->part[i].back_ns[k] = sim_uniform(&s->random) * s->p.service_ns;
        }
    }
}

/* What happens from now on is of another result. */
static void next_result(Sim *s)
{
    s->from_ns += s->p.each_ns;
    s->fg_done = s->bg_done = s->bg_bytes = s->promoted = 0;
    s->latencies = 0;
}

SimResult sim_run(const SimParams *params)
{
    Sim *s = calloc(1, sizeof(*s));
    SimResult result;

    s->p = *params;
    s->p.participants *= params->policy.kind != SIM_ALONE;
    s->random = params->seed;
    s->path_random = ~params->seed;
    s->board = aligned_alloc(IDLETIME_PAGE_BYTES, sizeof(*s->board));
    memset(s->board, 0, sizeof(*s->board));
    begin(s);
    while (next_ns(s) < s->p.duration_ns) {
        while (s->p.each_ns && next_ns(s) >= s->from_ns + s->p.each_ns) {
            result = sim_summarise(s, s->from_ns + s->p.each_ns);
            s->p.each(&result, s->from_ns, s->p.opaque);
            next_result(s);
        }
        assert(next_ns(s) >= s->now_ns);
        s->now_ns = next_ns(s);
        step(s);
    }
    result = sim_summarise(s, s->p.duration_ns);
    free(s->board);
    free(s->latency_ns);
    free(s);
    return result;
}
