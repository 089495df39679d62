/*
 * The events of the simulator.  Core and learner decide, unchanged; all that
 * is around them is modelled here in virtual time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim.h"

/* A host's processor that has something else to do, mean. */
#define STALL_NS    20e6

typedef struct Part {
    IdletimeCore core;
    IdletimeLearner learner;
    int held;                           /* requests, all alike */
    int64_t since_ns[SIM_OUTSTANDING_MAX];
    int64_t back_ns[SIM_OUTSTANDING_MAX];   /* when the next one is held */
    int64_t timer_ns, vtime_ns;
} Part;

typedef struct Sim {
    SimParams p;
    uint64_t random, path_random;
    int64_t now_ns;
    SimPath to, from;
    SimDevice device;
    SimForeground fg[SIM_FOREGROUNDS_MAX];
    IdletimeFgBoard *board;
    int64_t fg_last_ns, change_ns;
    uint64_t fg_started, fg_done, bg_started, bg_done, promoted;
    uint64_t bg_cost_ns, bg_bytes, steps;
    uint32_t fg_in_service, bg_in_service;
    int64_t bg_service_ns;              /* of the next one */
    int64_t *latency_ns;
    size_t latencies, latencies_max;
    Part part[SIM_PARTICIPANTS_MAX];
} Sim;

static int64_t service_ns(Sim *s)
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

/* What moving the data of a background request adds. */
static int64_t transfer_ns(const Sim *s, uint32_t bytes)
{
    return (double)s->p.transfer_ns * bytes / SIM_PIECE_BYTES;
}

/* The background is one long copy, issued in pieces. */
static uint32_t piece_bytes(const Sim *s, const Part *part)
{
    return s->p.policy.kind == SIM_AUTO ?
           idletime_sizes_piece(&part->learner.sizes, s->p.piece_bytes) :
           s->p.piece_bytes;
}

/* On its way: half of the mean always, the rest by chance. */
static int64_t path_end_ns(Sim *s)
{
    bool stalled = sim_uniform(&s->path_random) < s->p.stalls;

    return s->now_ns + s->p.path_ns / 2 +
           sim_exponential(&s->path_random, s->p.path_ns / 2.0) +
           stalled * sim_exponential(&s->path_random, STALL_NS);
}

static void issue(Sim *s, SimRequest request)
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
    issue(s, (SimRequest) {
        .owner = ~index, .issued_ns = s->now_ns, .service_ns = service_ns(s),
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

static IdletimeGoal goal_of(const Sim *s)
{
    return (IdletimeGoal) { .share = s->p.policy.budget,
                            .interval_ns = s->p.policy.interval_ns,
                            .max_bytes = s->p.piece_bytes };
}

static void learn(Sim *s, Part *part)
{
    IdletimeGoal goal = goal_of(s);
    IdletimeTotals totals = {
        .fg_done = s->fg_started - s->fg_in_service,
        .bg_started = s->bg_started, .bg_cost_ns = s->bg_cost_ns,
        .bg_in_service = s->bg_in_service > 0,
        .quiet = !s->fg_in_service && !s->bg_in_service,
    };

    for (int i = 0; i < s->p.foregrounds; i++) {
        totals.fg_request_ns += s->board->line[i].request_ns;
    }
    idletime_learner_look(&part->learner, &goal, s->board, s->p.foregrounds,
                          &totals, s->now_ns);
}

static void release(Sim *s, Part *part)
{
    uint32_t bytes = piece_bytes(s, part);

    memmove(part->since_ns, part->since_ns + 1,
            --part->held * sizeof(part->since_ns[0]));
    s->bg_started++;
    issue(s, (SimRequest) {
        .owner = part - s->part, .issued_ns = s->now_ns,
        .service_ns = s->bg_service_ns + transfer_ns(s, bytes),
        .bytes = bytes,
        .beside = s->fg_in_service + s->bg_in_service,
        .fg_idle = s->fg_in_service == 0,
    });
    s->bg_in_service++;
    s->bg_service_ns = service_ns(s);
}

/* Will a channel be free for each foreground request while this one runs? */
static bool foreseen_free(const Sim *s)
{
    int64_t end_ns = s->now_ns + s->bg_service_ns +
                     transfer_ns(s, s->p.piece_bytes);
    int index[SIM_FOREGROUNDS_MAX] = { 0 };
    int coming = 0;

    if (s->fg_in_service + s->bg_in_service >= (uint32_t)s->device.channels) {
        return false;
    }
    for (;;) {
        int64_t at_ns = INT64_MAX;
        int who = 0, busy = 0;

        for (int i = 0; i < s->p.foregrounds; i++) {
            int64_t next_ns = sim_load_ahead(&s->fg[i], index[i]);

            if (next_ns < at_ns) {
                at_ns = next_ns;
                who = i;
            }
        }
        if (at_ns >= end_ns) {
            return true;
        }
        for (int i = 0; i < s->device.busy; i++) {
            busy += s->device.serving[i].done_ns > at_ns;
        }
        if (busy + coming + 1 >= s->device.channels) {
            return false;
        }
        coming++;
        index[who]++;
    }
}

static IdletimeVerdict decide(Sim *s, Part *part)
{
    IdletimeView view = look(s, part);
    IdletimeRule rule = s->p.rule;

    if (s->p.policy.kind == SIM_UNCONTROLLED ||
        (s->p.policy.kind == SIM_CLAIRVOYANT && foreseen_free(s))) {
        return (IdletimeVerdict) { .kind = IDLETIME_START };
    }
    if (s->p.policy.kind == SIM_CLAIRVOYANT) {
        return (IdletimeVerdict) { .kind = IDLETIME_WAIT_FOREGROUND,
                                   .again_ns = s->now_ns +
                                               s->p.service_ns / 50 };
    }
    rule.interval_ns = s->p.policy.interval_ns;
    if (s->p.policy.kind == SIM_AUTO) {
        IdletimeGoal goal = goal_of(s);
        IdletimePermit permit;

        learn(s, part);
        permit = idletime_learner_permit(&part->learner, &goal,
                                         &(IdletimeQuestion) {
            .bytes = piece_bytes(s, part),
            .fg_requests = s->fg_in_service,
            .bg_in_service = s->bg_in_service, .fg_last_ns = s->fg_last_ns,
            .now_ns = s->now_ns,
        });
        rule.interval_ns = permit.interval_ns;
        view.beside = permit.beside;
        view.closed_until_ns = permit.closed_until_ns;
    }
    return idletime_core_ask(&part->core, &rule, &view, s->now_ns,
                             part->since_ns[0]);
}

static void ask(Sim *s, Part *part)
{
    part->timer_ns = INT64_MAX;
    while (part->held) {
        IdletimeVerdict verdict = decide(s, part);

        if (verdict.kind > IDLETIME_PROMOTE) {
            part->timer_ns = MAX(verdict.again_ns, s->now_ns + 1);
            return;
        }
        s->promoted += verdict.kind == IDLETIME_PROMOTE;
        idletime_core_started(&part->core);
        idletime_learner_started(&part->learner, s->now_ns);
        release(s, part);
    }
}

static void background_done(Sim *s, const SimRequest *request)
{
    Part *part = &s->part[request->owner];
    IdletimeView view;
    int stream = 0;

    while (part->back_ns[stream] != INT64_MAX) {
        stream++;
    }
    part->back_ns[stream] = s->now_ns + s->p.bg_think_ns;
    part->vtime_ns += s->now_ns - request->issued_ns;
    s->bg_in_service--;
    s->bg_done += s->now_ns >= s->p.warm_up_ns;
    s->bg_bytes += s->now_ns >= s->p.warm_up_ns ? request->bytes : 0;
    view = look(s, part);
    idletime_core_done(&part->core, &s->p.rule, &view, s->now_ns,
                       part->held > 0);
    if (s->p.policy.kind == SIM_AUTO) {
        learn(s, part);
        s->bg_cost_ns += idletime_learner_done(&part->learner, &(IdletimeServed) {
            .bytes = request->bytes, .beside = request->beside,
            .fg_idle = request->fg_idle, .since_ns = request->issued_ns,
        }, s->now_ns);
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
        background_done(s, request);
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
        background_step(s, &s->part[i]);
    }
}

/* ---- results */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void summarise_latency(Sim *s, SimResult *r)
{
    double sum = 0;

    qsort(s->latency_ns, s->latencies, sizeof(int64_t), by_value);
    for (size_t i = 0; i < s->latencies; i++) {
        sum += s->latency_ns[i];
    }
    if (s->latencies) {
        r->fg_mean_ns = sum / s->latencies;
        r->fg_p99_ns = s->latency_ns[s->latencies * 99 / 100];
        r->fg_p999_ns = s->latency_ns[s->latencies * 999 / 1000];
    }
}

static SimResult summarise(Sim *s)
{
    double seconds = (s->p.duration_ns - s->p.warm_up_ns) / 1e9;
    SimResult r = { .fg_rate = s->fg_done / seconds,
                    .bg_rate = s->bg_done / seconds,
                    .bg_bytes = s->bg_bytes / seconds,
                    .promoted = s->promoted, .steps = s->steps };

    summarise_latency(s, &r);
    for (int i = 0; i < s->p.participants; i++) {
        for (int n = 0; n < IDLETIME_STATE__MAX * IDLETIME_EVENT__MAX; n++) {
            r.count[n / 4][n % 4] += s->part[i].core.count[n / 4][n % 4];
        }
    }
    if (s->p.policy.kind == SIM_AUTO && s->p.participants) {
        const IdletimeLearner *l = &s->part[0].learner;

        r.predicted = idletime_budget_slowdown(&l->budget);
        r.factor = idletime_budget_factor(&l->budget);
        r.changes = l->changes;
    }
    return r;
}

static void begin(Sim *s)
{
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };

    s->device.channels = s->p.channels;
    s->fg_last_ns = INT64_MIN;
    s->change_ns = s->p.change_ns ? s->p.change_ns : INT64_MAX;
    s->bg_service_ns = service_ns(s);
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
        s->now_ns = next_ns(s);
        step(s);
    }
    result = summarise(s);
    free(s->board);
    free(s->latency_ns);
    free(s);
    return result;
}
