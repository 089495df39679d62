/*
 * Idletime admission: may a background request start now?
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
#include "idletime/core/time.h"
#include "idletime/learner/learner.h"

/* No open window in sight: look again after so many service times. */
#define LOOK_SERVICES       0.5
/*
 * A start takes no more of the credit than this part, as far as is expected.
 * So what is dear has to wait until there is much of it, and does not take it
 * away from what is cheap, which comes later in a gap.  With all of it any
 * start can be paid.
 */
#define STAKE               IDLETIME_CREDIT_COLLISIONS
/* Of the credit: soon there is enough to spend some beside the foreground. */
#define NEARLY_FULL         0.75
/* All channels taken: one in four service times is over. */
#define LOOK_CHANNELS       0.25
/*
 * Neither more often nor more rarely than this, however fast or slow the
 * device is.  A look and its timer take some 5 us: 5,000 a second are 2.5 % of
 * a core.  Of a budget of 5 %, 200 us of foreground earn 10 us: no device is
 * so fast that much could have been started before.
 */
#define LOOK_MIN_NS         (200 * 1000LL)
#define LOOK_MAX_NS         (20 * 1000 * 1000LL)

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

/* Background ran in this gap already. */
static bool used(const IdletimeLearner *l)
{
    return idletime_seek_price(&l->seek) == 0;
}

/* In a window; and there is credit enough, unless it costs next to nothing. */
static bool is_open(const IdletimeLearner *l, Clock clock,
                    IdletimeService service, int64_t now_ns)
{
    const IdletimeWindows *w = clock.windows;
    int64_t age_ns = now_ns - clock.zero_ns;
    double ratio = idletime_windows_ratio(w, service, age_ns);

    return (ratio <= w->harmless && (used(l) || w->seek_ns <= 0)) ||
           (idletime_windows_next(w, MAX(age_ns - w->late_ns, 0), used(l)) <=
            age_ns &&
            MIN(STAKE * ratio * service.mean_ns * idletime_learner_factor(l),
                l->budget.cap_ns) <=
            l->budget.credit_ns);
}

/* The first start in a gap turns the resource away from the foreground. */
static bool may_seek(IdletimeLearner *l, const IdletimeQuestion *q)
{
    double price_ns = MIN(idletime_seek_price(&l->seek) *
                          idletime_cost_factor(&l->cost), l->budget.cap_ns);

    return q->now_ns - q->fg_last_ns >= IDLETIME_AWAY_NS ||
           ((price_ns == 0 || price_ns <= l->budget.credit_ns) &&
            !idletime_seek_away(&l->seek, l->services.any.mean_ns,
                                  q->fg_last_ns));
}

static int64_t look_again(IdletimeService service, double services,
                          int64_t now_ns)
{
    return now_ns + MIN(MAX((int64_t)(services * service.mean_ns),
                            LOOK_MIN_NS), LOOK_MAX_NS);
}

/* The age is wrong for it: when is it right? */
static int64_t opens_at(const IdletimeLearner *l, Clock clock,
                        IdletimeService service, int64_t now_ns)
{
    int64_t age_ns = now_ns - clock.zero_ns;
    int64_t next_ns = idletime_windows_next(clock.windows, age_ns, used(l));
    int64_t opens_ns = idletime_time_add(clock.zero_ns, next_ns);

    if (next_ns == INT64_MAX || next_ns <= age_ns || opens_ns == INT64_MAX) {
        return look_again(service, LOOK_SERVICES, now_ns);
    }
    return MIN(opens_ns, now_ns + LOOK_MAX_NS);
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
static void admit_by_age(IdletimeLearner *l, const IdletimeGoal *goal,
                          const IdletimeQuestion *q, IdletimeAdmission *answer)
{
    IdletimeService service = idletime_service_expected(&l->services, q->bytes);
    Clock clock = clock_of(l, q->fg_last_ns);

    if (!answer->learned) {
        if (l->budget.credit_ns < 0) {
            answer->closed_until_ns = look_again(service, LOOK_SERVICES,
                                                 q->now_ns);
        }
        return;
    }
    answer->interval_ns = idletime_learner_interval(l, goal->interval_ns);
    if (q->fg_last_ns == INT64_MIN || q->fg_requests) {
        return;
    }
    if (!is_open(l, clock, service, q->now_ns)) {
        answer->closed_until_ns = opens_at(l, clock, service, q->now_ns);
    } else if (!may_seek(l, q)) {
        answer->closed_until_ns = look_again(service, LOOK_SERVICES, q->now_ns);
    }
}

/*
 * Many servers: as long as one stays free.  Starts are spread over a service
 * time, else those that start together end together, and so for ever.
 */
static void admit_by_number(const IdletimeLearner *l, IdletimeService service,
                             uint32_t number, uint32_t limit, int64_t now_ns,
                             IdletimeAdmission *answer)
{
    int64_t pace_ns = service.mean_ns / limit;

    answer->learned = true;
    answer->interval_ns = 0;
    answer->beside = number <= limit;
    if (!answer->beside) {
        answer->closed_until_ns = look_again(service, LOOK_CHANNELS, now_ns);
    } else if (l->start_ns != INT64_MIN && now_ns < l->start_ns + pace_ns) {
        answer->closed_until_ns = l->start_ns + pace_ns;
    }
}

/*
 * What one more beside the foreground costs it, if there is one server: each of
 * its requests waits for it the next time, and @behind as many.  While no
 * service time is known, what such a start took stands for that: it waited for
 * them.  Nothing is known at all: 0.
 */
static double beside_ns(const IdletimeLearner *l, IdletimeService service,
                        uint32_t fg_requests, double behind)
{
    return idletime_service_known(&l->services) ?
           service.mean_ns * MAX(fg_requests, 1) * behind :
           l->channels.mean_ns;
}

/* Next to nothing is known: what a request takes is told in a gap, if any. */
static bool told_in_gaps(const IdletimeLearner *l)
{
    return !idletime_service_known(&l->services) &&
           l->gap_count >= IDLETIME_READY_GAPS;
}

/* A probe could be paid.  The first one is free, so it is the only one. */
static bool can_probe(const IdletimeLearner *l)
{
    return (l->channels.mean_ns > 0 || !l->probed) &&
           l->budget.credit_ns >= idletime_learner_collision(l);
}

/*
 * To see how long it takes.  In a gap a collision is measured as any is, once
 * the service time is known.
 */
static bool may_probe(const IdletimeLearner *l, const IdletimeGoal *goal,
                      const IdletimeQuestion *q, IdletimeService service,
                      IdletimeFee *fee)
{
    uint32_t number = q->fg_requests + q->bg_in_service + 1;
    bool one_server = idletime_channels_limit(&l->channels) == 1;
    double behind = q->fg_requests ? idletime_cost_factor(&l->cost) : 1;
    bool measured = !q->fg_requests && idletime_service_known(&l->services);
    double cost_ns = one_server ?
                     beside_ns(l, service, q->fg_requests, behind) :
                     service.mean_ns;

    if (!can_probe(l) || goal->share <= 0 ||
        (l->channels.mean_ns <= 0 && q->bg_in_service) ||
        (l->channels.purse_ns < 2 * cost_ns && q->fg_requests &&
         told_in_gaps(l))) {
        return false;
    }
    fee->probe = true;
    fee->owed_ns = one_server && !measured ? cost_ns : 0;
    return idletime_channels_probe(&l->channels, number, cost_ns,
                                   &fee->purse_ns);
}

/*
 * The foreground has left no gap for long, and sends the next request when one
 * is done: no start would be any cheaper.
 */
static bool leaves_no_gap(const IdletimeLearner *l, int64_t now_ns)
{
    return l->gaps.busy && now_ns - l->gap_ns >= IDLETIME_AWAY_NS &&
           idletime_cost_steady(&l->cost) &&
           !l->channels.away && l->channels.alone_ns > 0;
}

/*
 * The budget may be spent beside it then, if the idle time that there is
 * otherwise is not worth more, and while credit overflows.
 */
static bool may_spend(const IdletimeLearner *l, const IdletimeGoal *goal,
                      const IdletimeQuestion *q, IdletimeService service,
                      IdletimeFee *fee)
{
    double cost_ns = beside_ns(l, service, q->fg_requests, 1) *
                     l->channels.dear;
    double idle = idletime_spare_minute(&l->spare);

    *fee = (IdletimeFee) { .owed_ns = cost_ns };
    return leaves_no_gap(l, q->now_ns) && !q->bg_in_service &&
           cost_ns > 0 && cost_ns <= 2 * l->budget.cap_ns &&
           l->budget.credit_ns >= l->budget.cap_ns &&
           idle * idletime_plan_exchange(goal->share) <= 1 - idle;
}

/* Is anything to be had that the windows do not say, and for what? */
static bool may_beyond(const IdletimeLearner *l, const IdletimeGoal *goal,
                       const IdletimeQuestion *q, IdletimeService service,
                       IdletimeFee *fee)
{
    uint32_t limit = idletime_channels_limit(&l->channels);
    bool several = limit > 1;

    if (q->fg_requests + q->bg_in_service + 1 <= limit) {
        return !several && told_in_gaps(l) && q->fg_last_ns != INT64_MIN &&
               q->now_ns - q->fg_last_ns < goal->interval_ns &&
               may_probe(l, goal, q, service, fee);
    }
    return (several || q->fg_requests || q->bg_in_service) &&
           (may_probe(l, goal, q, service, fee) ||
            (!several && may_spend(l, goal, q, service, fee)));
}

/* The first who asks after a completion, whether it may start or not. */
static void note_turnaround(IdletimeLearner *l, int64_t now_ns)
{
    if (l->done_ns != INT64_MIN) {
        idletime_service_turnaround(&l->services, now_ns - l->done_ns);
        l->done_ns = INT64_MIN;
    }
}

int64_t idletime_learner_again(const IdletimeLearner *l, int64_t again_ns,
                               int64_t now_ns)
{
    if (l->planning != IDLETIME_PLANNING_NOTHING ||
        (told_in_gaps(l) && can_probe(l) &&
         l->channels.purse_ns >= l->channels.mean_ns)) {
        return MIN(again_ns, now_ns + LOOK_MIN_NS);
    }
    if (leaves_no_gap(l, now_ns) &&
        l->budget.credit_ns >= NEARLY_FULL * l->budget.cap_ns) {
        IdletimeService each = { .mean_ns = idletime_learner_collision(l) };

        again_ns = MIN(again_ns, look_again(each, LOOK_SERVICES, now_ns));
    }
    return l->collision.open ?
           MIN(again_ns, look_again(idletime_service_any(&l->services),
                                    LOOK_SERVICES, now_ns)) : again_ns;
}

IdletimeAdmission idletime_learner_admit(IdletimeLearner *l,
                                       const IdletimeGoal *goal,
                                       const IdletimeQuestion *q)
{
    IdletimeService service = idletime_service_expected(&l->services, q->bytes);
    uint32_t limit = idletime_channels_limit(&l->channels);
    uint32_t number = q->fg_requests + q->bg_in_service + 1;
    IdletimeFee fee = { .probe = false };
    IdletimeAdmission answer = {
        .learned = idletime_learner_ready(l) && l->built_gaps,
        .interval_ns = goal->interval_ns,
        .closed_until_ns = INT64_MIN,
        .max_inflight = MAX(limit, 1),
    };

    note_turnaround(l, q->now_ns);
    if (limit > 1) {
        admit_by_number(l, service, number, limit, q->now_ns, &answer);
    } else {
        admit_by_age(l, goal, q, &answer);
    }
    if (may_beyond(l, goal, q, service, &fee)) {
        answer.fee = fee;
        answer.beside = true;
        answer.max_inflight = number;
        answer.interval_ns = 0;
        answer.closed_until_ns = INT64_MIN;
    }
    return answer;
}
