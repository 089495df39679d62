/*
 * The events of the simulator.  The core decides, unchanged; everything
 * around it (device, boards, turns) is modelled here in virtual time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim.h"
#include <math.h>

#define FOREGROUND (-1)

typedef struct Part {
    IdletimeCore core;
    int held;                           /* requests, all alike */
    int64_t since_ns[SIM_OUTSTANDING_MAX];
    int64_t back_ns[SIM_OUTSTANDING_MAX];   /* when the next one is held */
    int64_t timer_ns, vtime_ns;
} Part;

typedef struct Sim {
    SimParams p;
    uint64_t random;
    int64_t now_ns, done_ns;
    int queue[SIM_QUEUE];               /* owners, in order of issue */
    int head, length;
    int64_t fg_next_ns, fg_issued_ns, burst_ns, fg_last_ns;
    uint64_t fg_started, fg_done, bg_done, promoted;
    uint32_t fg_in_service, bg_in_service;
    int64_t *latency_ns;
    size_t latencies;
    Part part[SIM_PARTICIPANTS_MAX];
} Sim;

/* splitmix64, public domain algorithm by S. Vigna; 0 <= x < 1 */
static double uniform(Sim *s)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15ULL;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* ---- device */

static void device_issue(Sim *s, int owner)
{
    s->queue[(s->head + s->length) % SIM_QUEUE] = owner;
    if (s->length++ == 0) {
        s->done_ns = s->now_ns + s->p.service_ns;
    }
}

static int device_done(Sim *s)
{
    int owner = s->queue[s->head];

    s->head = (s->head + 1) % SIM_QUEUE;
    s->done_ns = --s->length ? s->now_ns + s->p.service_ns : INT64_MAX;
    return owner;
}

/* ---- foreground */

static void next_burst(Sim *s)
{
    double busy = s->p.intensity * s->p.quantum_ns;
    double gap = s->p.quantum_ns - busy;

    if (s->p.exponential) {
        gap *= -log(1.0 - uniform(s));
    } else {
        gap *= 1.0 + s->p.jitter * (2.0 * uniform(s) - 1.0);
    }
    s->burst_ns = MAX(s->burst_ns + (int64_t)(busy + gap), s->now_ns);
    s->fg_next_ns = s->burst_ns;
}

static void foreground_issue(Sim *s)
{
    s->fg_next_ns = INT64_MAX;
    s->fg_issued_ns = s->fg_last_ns = s->now_ns;
    s->fg_started++;
    s->fg_in_service = 1;
    device_issue(s, FOREGROUND);
}

static void foreground_done(Sim *s)
{
    int64_t busy_ns = s->p.intensity * s->p.quantum_ns;

    s->fg_in_service = 0;
    s->fg_last_ns = s->now_ns;
    s->latency_ns[s->latencies++] = s->now_ns - s->fg_issued_ns;
    s->fg_done++;
    s->fg_next_ns = s->now_ns + s->p.fg_think_ns;
    if (s->fg_next_ns >= s->burst_ns + busy_ns) {
        next_burst(s);
    }
}

/* ---- background */

static IdletimeView look(const Sim *s, const Part *self)
{
    const Part *first = self;

    for (int i = 0; i < s->p.participants; i++) {
        const Part *other = &s->part[i];

        if (other->held && other->vtime_ns < first->vtime_ns) {
            first = other;
        }
    }
    return (IdletimeView) {
        .fg_started = s->fg_started, .fg_in_service = s->fg_in_service,
        .fg_last_ns = s->fg_last_ns, .bg_in_service = s->bg_in_service,
        .others_first = first != self,
    };
}

static void release(Sim *s, Part *part)
{
    memmove(part->since_ns, part->since_ns + 1,
            --part->held * sizeof(part->since_ns[0]));
    s->bg_in_service++;
    device_issue(s, part - s->part);
}

static void ask(Sim *s, Part *part)
{
    part->timer_ns = INT64_MAX;
    while (part->held) {
        IdletimeView view = look(s, part);
        IdletimeVerdict verdict;

        if (s->p.rule.interval_ns == SIM_UNCONTROLLED) {
            release(s, part);
            continue;
        }
        verdict = idletime_core_ask(&part->core, &s->p.rule, &view, s->now_ns,
                                    part->since_ns[0]);
        if (verdict.kind > IDLETIME_PROMOTE) {
            part->timer_ns = verdict.again_ns;
            return;
        }
        s->promoted += verdict.kind == IDLETIME_PROMOTE;
        idletime_core_started(&part->core);
        release(s, part);
    }
}

static void background_done(Sim *s, Part *part)
{
    int stream = 0;

    while (part->back_ns[stream] != INT64_MAX) {
        stream++;
    }
    part->back_ns[stream] = s->now_ns + s->p.bg_think_ns;
    part->vtime_ns += s->p.service_ns;
    s->bg_in_service--;
    s->bg_done++;
    if (s->p.rule.interval_ns != SIM_UNCONTROLLED) {
        IdletimeView view = look(s, part);

        idletime_core_done(&part->core, &s->p.rule, &view, s->now_ns,
                           part->held > 0);
    }
    for (int i = 0; i < s->p.participants; i++) {
        ask(s, &s->part[i]);
    }
}

static void background_step(Sim *s, Part *part)
{
    bool news = part->timer_ns <= s->now_ns;

    for (int i = 0; i < s->p.outstanding; i++) {
        if (part->back_ns[i] <= s->now_ns) {
            part->back_ns[i] = INT64_MAX;
            part->since_ns[part->held++] = s->now_ns;
            news = true;
        }
    }
    if (news) {
        ask(s, part);
    }
}

/* ---- time */

static int64_t next_ns(const Sim *s)
{
    int64_t next = MIN(s->done_ns, s->fg_next_ns);

    for (int i = 0; i < s->p.participants; i++) {
        next = MIN(next, s->part[i].timer_ns);
        for (int k = 0; k < s->p.outstanding; k++) {
            next = MIN(next, s->part[i].back_ns[k]);
        }
    }
    return next;
}

static void step(Sim *s)
{
    if (s->done_ns <= s->now_ns) {
        int owner = device_done(s);

        if (owner == FOREGROUND) {
            foreground_done(s);
        } else {
            background_done(s, &s->part[owner]);
        }
    }
    if (s->fg_next_ns <= s->now_ns) {
        foreground_issue(s);
    }
    for (int i = 0; i < s->p.participants; i++) {
        background_step(s, &s->part[i]);
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static SimResult summarise(Sim *s)
{
    double seconds = s->p.duration_ns / 1e9, sum = 0;
    SimResult r = { .fg_rate = s->fg_done / seconds,
                    .bg_rate = s->bg_done / seconds,
                    .promoted = s->promoted };

    qsort(s->latency_ns, s->latencies, sizeof(int64_t), by_value);
    for (size_t i = 0; i < s->latencies; i++) {
        sum += s->latency_ns[i];
    }
    if (s->latencies) {
        r.fg_mean_ns = sum / s->latencies;
        r.fg_p99_ns = s->latency_ns[s->latencies * 99 / 100];
    }
    for (int i = 0; i < s->p.participants; i++) {
        for (int n = 0; n < IDLETIME_STATE__MAX * IDLETIME_EVENT__MAX; n++) {
            r.count[n / 4][n % 4] += s->part[i].core.count[n / 4][n % 4];
        }
    }
    return r;
}

static void begin(Sim *s)
{
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };

    s->done_ns = INT64_MAX;
    s->fg_last_ns = INT64_MIN;
    s->fg_next_ns = s->p.intensity > 0 ? 0 : INT64_MAX;
    for (int i = 0; i < s->p.participants; i++) {
        s->part[i].timer_ns = INT64_MAX;
        idletime_core_init(&s->part[i].core, &nothing);
        for (int k = 0; k < s->p.outstanding; k++) {
            s->part[i].back_ns[k] = uniform(s) * s->p.service_ns;
        }
    }
}

SimResult sim_run(const SimParams *params)
{
    Sim *s = calloc(1, sizeof(*s));
    SimResult result;

    s->p = *params;
    s->random = params->seed;
    s->latency_ns = calloc(params->duration_ns / params->service_ns + 2,
                           sizeof(int64_t));
    begin(s);
    while (next_ns(s) < s->p.duration_ns) {
        s->now_ns = next_ns(s);
        step(s);
    }
    result = summarise(s);
    free(s->latency_ns);
    free(s);
    return result;
}
