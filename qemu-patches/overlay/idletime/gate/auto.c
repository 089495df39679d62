/*
 * Idletime gate: what it tells the learner, and what the learner tells it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The learner is pure and belongs to the resource: one for all background
 * participants of this process, under its lock.  Those of other processes
 * have one each, see the same boards and so learn the same; what all of them
 * cost the foreground is on the background board.
 */
#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "idletime/core/time.h"
#include "idletime/gate/gate.h"

static IdletimeTotals totals_of(IdletimeGate *gate, const IdletimeView *view,
                                int64_t now_ns)
{
    uint64_t observed_ns =
        idletime_observed_time(&gate->res->learner->observed, &view->observed,
                               now_ns);
    IdletimeBgTotals bg = idletime_scan_background(&gate->scan);

    return (IdletimeTotals) {
        .fg_done = view->fg_started - MIN(view->fg_requests, view->fg_started),
        .fg_request_ns = view->fg_request_ns + observed_ns,
        .fg_in_service = view->fg_requests,
        .bg_started = bg.started,
        .bg_cost_ns = bg.cost_ns,
        .quiet = !view->fg_in_service && !view->bg_in_service,
        .bg_in_service = view->bg_in_service > 0,
        .fg_last_ns = view->fg_last_ns,
    };
}

/*
 * Its owner is dead; or all that it wrote was read, and its end was refused.
 * A begin writes its ring before in_service, so a recent one may be going on.
 */
static bool will_not_end(const IdletimeGate *gate, const IdletimeTrack *track,
                         uint32_t slot, int64_t now_ns)
{
    const IdletimeFgLine *line = &idletime_fg_board(gate->scan.fg)->line[slot];

    if (__atomic_load_n(&line->in_service, __ATOMIC_ACQUIRE)) {
        return !idletime_slot_alive(gate->scan.fg, slot);
    }
    return __atomic_load_n(&line->ring_head, __ATOMIC_RELAXED) == track->read &&
           idletime_time_sub(now_ns, track->last_ns) > IDLETIME_GAPS_AHEAD_NS;
}

/* The merged rings say busy, the look says idle. */
static void forget_dead(IdletimeGate *gate, IdletimeGaps *gaps, int64_t now_ns)
{
    for (uint32_t i = 0; i < gate->scan.fg_high; i++) {
        if (gaps->track[i].busy &&
            will_not_end(gate, &gaps->track[i], i, now_ns)) {
            idletime_gaps_dead(gaps, i);
        }
    }
}

/* Its last entry was lost, or the observer is. */
static void forget_observed(const IdletimeObserver *observer,
                            IdletimeGaps *gaps)
{
    if (gaps->track[IDLETIME_GAPS_OBSERVER].busy &&
        (!idletime_observed_in_service(observer->page) ||
         !idletime_observer_alive(observer))) {
        idletime_gaps_dead(gaps, IDLETIME_GAPS_OBSERVER);
    }
}

static void note_time(IdletimeGate *gate, int64_t begin_ns)
{
    gate->res->learner_ns += idletime_now_ns() - begin_ns;
}

static void look(IdletimeGate *gate, const IdletimeView *view, int64_t now_ns)
{
    IdletimeLearner *learner = gate->res->learner;
    IdletimeGoal goal = idletime_resource_goal(gate->res);
    IdletimeTotals totals;
    uint64_t cost_ns;

    learner->gaps.observed = gate->scan.observer->page;
    totals = totals_of(gate, view, now_ns);
    cost_ns = idletime_learner_look(learner, &goal,
                                    idletime_fg_board(gate->scan.fg),
                                    gate->scan.fg_high, &totals, now_ns);
    if (cost_ns) {
        idletime_bg_cost(&gate->scan, cost_ns);
    }
    if (!view->fg_in_service && learner->gaps.busy) {
        forget_dead(gate, &learner->gaps, now_ns);
        forget_observed(gate->scan.observer, &learner->gaps);
    }
}

IdletimeFee idletime_gate_learn(IdletimeGate *gate, IdletimeRule *rule,
                                IdletimeView *view, uint64_t bytes,
                                int64_t now_ns)
{
    const IdletimeFee none = { .probe = false };
    IdletimeGoal goal = idletime_resource_goal(gate->res);
    IdletimeQuestion question = {
        .bytes = MIN(bytes, UINT32_MAX),
        .fg_requests = view->fg_requests,
        .bg_in_service = view->bg_in_service,
        .fg_last_ns = MIN(view->fg_last_ns, now_ns),
        .now_ns = now_ns,
    };
    int64_t begin_ns = idletime_now_ns();
    IdletimeAdmission admission;

    if (view->blind || view->unseen) {
        /* Nothing to learn from; the operator's settings are in force. */
        rule->max_inflight =
            MIN(rule->max_inflight,
                idletime_resource_get(gate->res, IDLETIME_MAX_INFLIGHT));
        return none;
    }
    look(gate, view, now_ns);
    admission = idletime_learner_admit(gate->res->learner, &goal, &question);
    note_time(gate, begin_ns);
    if (!idletime_resource_get(gate->res, IDLETIME_AUTO)) {
        return none;    /* shadow without auto: what the interval would do */
    }
    rule->interval_ns = admission.interval_ns;
    rule->max_inflight = MIN(rule->max_inflight, admission.max_inflight);
    view->closed_until_ns = admission.closed_until_ns;
    view->beside = admission.beside;
    return admission.fee;
}

int64_t idletime_gate_learn_again(const IdletimeGate *gate, int64_t again_ns,
                                  int64_t now_ns)
{
    return gate->res->learner ?
           idletime_learner_again(gate->res->learner, again_ns, now_ns) :
           again_ns;
}

void idletime_gate_learn_done(IdletimeGate *gate, const IdletimeLease *lease,
                              const IdletimeView *view, int64_t done_ns,
                              int64_t now_ns)
{
    IdletimeServed served = {
        .bytes = lease->bytes,
        .beside = lease->beside,
        .fg_idle = lease->fg_idle,
        .mixed = lease->mixed,
        .since_ns = lease->since_ns,
    };
    int64_t begin_ns = idletime_now_ns();

    if (!view->blind && !view->unseen) {
        look(gate, view, now_ns);
        idletime_learner_done(gate->res->learner, &served, done_ns);
        note_time(gate, begin_ns);
    }
}
