/*
 * Idletime permit: may a background request start now?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What the learner knows, asked for one request.
 *
 *   nothing yet    the operator's interval
 *   one server     within the windows, and while there is credit
 *   many servers   as long as one stays free for the foreground
 */
#include "qemu/osdep.h"
#include "idletime/learner/learner.h"

/* No open window in sight: look again after so many service times. */
#define LOOK_SERVICES       0.5
/* All channels taken: one in four service times is over. */
#define LOOK_CHANNELS       0.25
#define LOOK_MAX_NS         (20 * 1000 * 1000LL)
/* A foreground that has been away for so long is not waited for. */
#define AWAY_NS             (1000 * 1000 * 1000LL)

/* The windows in force, and when their clock was at 0. */
typedef struct Clock {
    const IdletimeWindows *windows;
    int64_t zero_ns;
} Clock;

static Clock clock_of(const IdletimeLearner *l, int64_t fg_last_ns)
{
    if (idletime_cycle_better(&l->cycle)) {
        return (Clock) { &l->cycle.windows, l->cycle.onset_ns };
    }
    return (Clock) { &l->windows, fg_last_ns };
}

/* Ours ran in this gap already. */
static bool used(const IdletimeLearner *l)
{
    return idletime_seek_price(&l->switching) == 0;
}

/* In a window; and there is credit, unless it costs next to nothing. */
static bool is_open(const IdletimeLearner *l, Clock clock,
                    IdletimeService service, int64_t now_ns)
{
    const IdletimeWindows *w = clock.windows;
    int64_t age_ns = now_ns - clock.zero_ns;
    /* What takes longer has to start earlier. */
    int64_t as_if_ns = age_ns + MAX(service.mean_ns - w->service.mean_ns, 0);
    double ratio = idletime_windows_ratio(w, service, age_ns);

    return (ratio <= w->harmless && (used(l) || w->switch_ns <= 0)) ||
           (idletime_windows_next(w, as_if_ns, used(l)) == as_if_ns &&
            ratio * service.mean_ns * idletime_cost_factor(&l->cost) <=
            l->budget.credit_ns);
}

/* The first start in a gap turns the resource away from the foreground. */
static bool may_switch(IdletimeLearner *l, const IdletimeQuestion *q)
{
    double price_ns = idletime_seek_price(&l->switching);

    return q->now_ns - q->fg_last_ns >= AWAY_NS ||
           ((price_ns == 0 || price_ns <= l->budget.credit_ns) &&
            !idletime_seek_away(&l->switching, l->sizes.any.mean_ns,
                                  q->fg_last_ns));
}

static int64_t look_again(IdletimeService service, int64_t now_ns)
{
    return now_ns + (int64_t)MIN(LOOK_SERVICES * service.mean_ns,
                                 LOOK_MAX_NS);
}

/* The age is wrong for it: when is it right? */
static int64_t opens_at(const IdletimeLearner *l, Clock clock,
                        IdletimeService service, int64_t now_ns)
{
    int64_t age_ns = now_ns - clock.zero_ns;
    int64_t next_ns = idletime_windows_next(clock.windows, age_ns, used(l));

    if (next_ns == INT64_MAX || next_ns <= age_ns ||
        __builtin_add_overflow(clock.zero_ns, next_ns, &next_ns)) {
        return look_again(service, now_ns);
    }
    return MIN(next_ns, now_ns + LOOK_MAX_NS);
}

static int64_t brake_until(const IdletimeLearner *l, IdletimeService service)
{
    if (!l->budget.brake || l->start_ns == INT64_MIN) {
        return INT64_MIN;
    }
    return l->start_ns + (int64_t)(service.mean_ns *
                                   (1 << l->budget.brake));
}

int64_t idletime_learner_interval(const IdletimeLearner *l, int64_t safe_ns)
{
    if (idletime_channels_limit(&l->channels) > 1) {
        return 0;
    }
    if (!l->built_gaps) {
        return safe_ns;
    }
    return MIN(idletime_cycle_better(&l->cycle) ? l->cycle.windows.begin_ns :
               idletime_windows_next(&l->windows, 0, true), safe_ns);
}

/* One server: nothing while foreground is in service, then by age. */
static void permit_by_age(IdletimeLearner *l, const IdletimeGoal *goal,
                          const IdletimeQuestion *q, IdletimeAdmission *permit)
{
    IdletimeService service = idletime_service_service(&l->sizes, q->bytes);
    Clock clock = clock_of(l, q->fg_last_ns);

    if (!permit->learned) {
        if (l->budget.credit_ns < 0) {
            permit->closed_until_ns = look_again(service, q->now_ns);
        }
        return;
    }
    permit->interval_ns = idletime_learner_interval(l, goal->interval_ns);
    if (q->fg_last_ns == INT64_MIN || q->fg_requests) {
        return;
    }
    if (!is_open(l, clock, service, q->now_ns)) {
        permit->closed_until_ns = opens_at(l, clock, service, q->now_ns);
    } else if (!may_switch(l, q)) {
        permit->closed_until_ns = look_again(service, q->now_ns);
    }
}

/*
 * Many servers: as long as one stays free.  Starts are spread over a service
 * time, else those that start together end together, and so for ever.
 */
static void permit_by_number(const IdletimeLearner *l, IdletimeService service,
                             uint32_t number, uint32_t limit, int64_t now_ns,
                             IdletimeAdmission *permit)
{
    int64_t pace_ns = service.mean_ns / limit;

    permit->learned = true;
    permit->interval_ns = 0;
    permit->beside = number <= limit;
    if (!permit->beside) {
        permit->closed_until_ns = now_ns + (int64_t)(service.mean_ns *
                                                     LOOK_CHANNELS);
    } else if (l->start_ns != INT64_MIN && now_ns < l->start_ns + pace_ns) {
        permit->closed_until_ns = l->start_ns + pace_ns;
    }
}

/*
 * If there is one server, a probe costs each foreground request that is in
 * service a service time, and those that come before all is idle as well.
 */
static bool may_probe(IdletimeLearner *l, IdletimeService service, uint32_t n)
{
    bool one_server = idletime_channels_limit(&l->channels) == 1;
    double each_ns = service.mean_ns * idletime_cost_factor(&l->cost);
    double cost_ns = one_server ? each_ns * MAX(n - 1, 1) : service.mean_ns;

    if (idletime_service_known(&l->sizes) && l->budget.credit_ns < each_ns) {
        return false;
    }
    if (!idletime_channels_probe(&l->channels, n, cost_ns)) {
        return false;
    }
    l->owed_ns += one_server ? cost_ns : 0;
    return true;
}

/* The first who asks after a completion, whether it may start or not. */
static void note_turnaround(IdletimeLearner *l, int64_t now_ns)
{
    if (l->done_ns != INT64_MIN) {
        idletime_service_turnaround(&l->sizes, now_ns - l->done_ns);
        l->done_ns = INT64_MIN;
    }
}

IdletimeAdmission idletime_learner_admit(IdletimeLearner *l,
                                       const IdletimeGoal *goal,
                                       const IdletimeQuestion *q)
{
    IdletimeService service = idletime_service_service(&l->sizes, q->bytes);
    uint32_t limit = idletime_channels_limit(&l->channels);
    uint32_t number = q->fg_requests + q->bg_in_service + 1;
    IdletimeAdmission permit = {
        .learned = idletime_learner_ready(l) && l->built_gaps,
        .interval_ns = goal->interval_ns,
        .closed_until_ns = INT64_MIN,
        .max_inflight = MAX(limit, 1),
    };

    note_turnaround(l, q->now_ns);
    if (limit > 1) {
        permit_by_number(l, service, number, limit, q->now_ns, &permit);
    } else {
        permit_by_age(l, goal, q, &permit);
    }
    if (brake_until(l, service) > q->now_ns) {
        permit.closed_until_ns = brake_until(l, service);
    } else if (number > limit && (q->fg_requests || limit > 1) &&
               may_probe(l, service, number)) {
        permit.beside = true;
        permit.max_inflight = number;
        permit.interval_ns = 0;
        permit.closed_until_ns = INT64_MIN;
    }
    return permit;
}
