/*
 * Idletime gate: one participant, that is one device in one thread.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   facts     idletime_scan() of the boards, the clock
 *   decision  idletime_core_ask(), pure
 *   act       take a token, or arm the timer, or wake who is first
 */
#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/lockable.h"
#include "idletime/gate/gate.h"
#include "trace.h"

/* Participants skipped in one go; more of them wait for the next timer. */
#define ASK_TRIES 4

static const char *const verdict_name[IDLETIME_VERDICT__MAX] = {
    [IDLETIME_START] = "start",
    [IDLETIME_PROMOTE] = "promote",
    [IDLETIME_WAIT_FOREGROUND] = "wait-foreground",
    [IDLETIME_WAIT_INTERVAL] = "wait-interval",
    [IDLETIME_WAIT_BUDGET] = "wait-budget",
    [IDLETIME_WAIT_INFLIGHT] = "wait-inflight",
    [IDLETIME_WAIT_TURN] = "wait-turn",
    [IDLETIME_WAIT_ARENA] = "wait-arena",
};

/* ---- pumping */

void idletime_gate_pump(void *opaque)
{
    IdletimeGate *gate = opaque;

    if (qatomic_load_acquire(&gate->lent)) {
        return;
    }
    idletime_gate_code(gate);
    if (qatomic_load_acquire(&gate->move)) {
        idletime_gate_follow_move(gate);
    }
    gate->pump(gate->opaque);
}

void idletime_gate_kick(IdletimeGate *gate)
{
    QEMUBH *bh = qatomic_read(&gate->bh);

    /* NULL: it changes its thread, and kicks itself when it has. */
    if (bh) {
        qemu_bh_schedule(bh);
    }
}

/* The resource's, with the deadline of the gate's kind of device. */
static IdletimeRule rule_of(const IdletimeGate *gate)
{
    IdletimeRule rule = idletime_resource_rule(gate->res);

    if (gate->hold_max_ns) {
        rule.max_hold_ns = MIN(rule.max_hold_ns, gate->hold_max_ns);
    }
    return rule;
}

/*
 * One look; a lost arena is not worth one.  Under the resource's lock, with a
 * clock that was read under it: the views of all gates come in order, so that
 * no request of the foreground counts twice.
 */
static IdletimeView look(IdletimeGate *gate, const IdletimeRule *rule,
                         int64_t now_ns)
{
    if (qatomic_read(&gate->res->blind)) {
        return (IdletimeView) { .blind = true };
    }
    return idletime_scan(&gate->scan, rule, now_ns);
}

static void wake_next(IdletimeGate *gate, const IdletimeView *view,
                      int64_t now_ns)
{
    int next = idletime_scan_next(&gate->scan, view->fg_last_ns, now_ns);

    if (next >= 0 && next != gate->scan.self) {
        idletime_bg_wake(gate->scan.bg, next);
    }
}

/* Who is first now may start. */
static void look_and_wake(IdletimeGate *gate)
{
    IdletimeRule rule = rule_of(gate);
    IdletimeView view;
    int64_t now_ns;

    WITH_QEMU_LOCK_GUARD(&gate->res->lock) {
        now_ns = idletime_now_ns();
        view = look(gate, &rule, now_ns);
    }
    if (!view.blind) {
        wake_next(gate, &view, now_ns);
    }
}

/* ---- asking */

/*
 * Another participant is first.  Wake it; if it has had its grace and did not
 * start anything, skip it.  Returns true if it was skipped: ask again.
 */
static bool yield_turn(IdletimeGate *gate, const IdletimeView *view,
                       int64_t now_ns)
{
    int next = idletime_scan_next(&gate->scan, view->fg_last_ns, now_ns);
    uint64_t started;

    if (next < 0 || next == gate->scan.self) {
        return true;
    }
    started = qatomic_read(&idletime_bg_board(gate->scan.bg)->
                           line[next].started);
    if (gate->yielded_to == next && gate->yielded_started == started &&
        now_ns - gate->yielded_since_ns >= IDLETIME_GRACE_NS) {
        idletime_scan_skip(&gate->scan, next, now_ns);
        gate->yielded_to = -1;
        return true;
    }
    if (gate->yielded_to != next || gate->yielded_started != started) {
        gate->yielded_to = next;
        gate->yielded_started = started;
        gate->yielded_since_ns = now_ns;
        idletime_bg_wake(gate->scan.bg, next);
    }
    return false;
}

/* Decided and counted; then it goes, without a token. */
static IdletimeVerdict shadow(IdletimeGate *gate, IdletimeVerdict verdict,
                              IdletimeLease *lease)
{
    if (verdict.kind > IDLETIME_PROMOTE) {
        idletime_stat_add(&gate->stats.waits[verdict.kind], 1);
    }
    lease->grant.value = 0;
    return (IdletimeVerdict) { .kind = IDLETIME_START };
}

/* res->lock held */
static void note_issued(IdletimeResource *res, const IdletimeLease *lease)
{
    idletime_core_started(&res->core);
    if (res->learner) {
        idletime_learner_started(res->learner, lease->fee, idletime_now_ns());
    }
}

/* One look and one decision; a token in @lease if it may start. */
static IdletimeVerdict ask_once(IdletimeGate *gate, IdletimeRule *rule,
                                int64_t held_since_ns, IdletimeLease *lease,
                                bool issue)
{
    IdletimeResource *res = gate->res;
    IdletimeVerdict verdict;
    IdletimeView view;
    int64_t now_ns;

    QEMU_LOCK_GUARD(&res->lock);
    now_ns = idletime_now_ns();
    lease->since_ns = now_ns;
    lease->fee = (IdletimeFee) { .probe = false };
    view = look(gate, rule, now_ns);
    if (res->learner) {
        lease->fee = idletime_gate_learn(gate, rule, &view, lease->bytes,
                                         now_ns);
    } else {
        rule->max_inflight =
            MIN(rule->max_inflight,
                idletime_resource_get(res, IDLETIME_MAX_INFLIGHT));
    }
    lease->beside = view.fg_requests + view.bg_in_service;
    lease->fg_idle = view.fg_requests == 0;
    verdict = idletime_core_ask(&res->core, rule, &view, now_ns, held_since_ns);
    if (verdict.kind != IDLETIME_START) {
        lease->fee = (IdletimeFee) { .probe = false };
    }
    if (verdict.kind != IDLETIME_WAIT_TURN) {
        /* Nobody could start: what was waited until now is no grace. */
        gate->yielded_to = -1;
    }
    if (idletime_resource_get(res, IDLETIME_SHADOW)) {
        if (issue) {
            note_issued(res, lease);
        }
        return shadow(gate, verdict, lease);
    }
    if (verdict.kind == IDLETIME_WAIT_TURN &&
        yield_turn(gate, &view, now_ns)) {
        verdict.again_ns = now_ns;
    }
    if (verdict.kind > IDLETIME_PROMOTE) {
        verdict.again_ns = idletime_gate_learn_again(gate, verdict.again_ns,
                                                     now_ns);
        return verdict;
    }
    if (view.blind || !idletime_token_take(&gate->scan, rule, now_ns,
                                           &lease->grant)) {
        lease->grant.value = 0;
    }
    if (!lease->grant.value && !verdict.alone) {
        /* Another process was faster. */
        verdict.kind = IDLETIME_WAIT_INFLIGHT;
        verdict.again_ns = now_ns + IDLETIME_LOOK_INFLIGHT_NS;
        return verdict;
    }
    if (issue) {
        note_issued(res, lease);
    }
    return verdict;
}

static void note_started(IdletimeGate *gate, const IdletimeLease *lease,
                         int64_t held_since_ns)
{
    idletime_stat_add(&gate->stats.bg_requests, 1);
    idletime_stat_add(&gate->stats.bg_bytes, lease->bytes);
    idletime_stat_add(&gate->stats.in_service, 1);
    if (lease->promoted) {
        idletime_gate_note_promotion(gate, IDLETIME_PROMOTION_DEADLINE);
    }
    idletime_bg_started(&gate->scan);
    trace_idletime_gate_started(gate->label, lease->bytes,
                                lease->since_ns - held_since_ns,
                                lease->promoted);
}

/* Each time: weight and interval may have been changed since. */
static void announce(IdletimeGate *gate, int64_t interval_ns, int64_t due_ns)
{
    uint32_t weight = idletime_resource_get(gate->res, IDLETIME_WEIGHT);

    gate->interval_ns = interval_ns;
    idletime_bg_enter(&gate->scan, interval_ns, due_ns, weight);
    gate->waiting = true;
}

/* Nobody else has had it meanwhile. */
static void charge_kept(IdletimeGate *gate)
{
    if (unlikely(gate->kept_since_ns)) {
        idletime_guard_thread();
        idletime_bg_done(&gate->scan, idletime_now_ns() - gate->kept_since_ns);
        gate->kept_since_ns = 0;
    }
}

static void leave_line(IdletimeGate *gate)
{
    timer_del(gate->timer);
    if (gate->waiting) {
        idletime_guard_thread();
        idletime_bg_leave(&gate->scan);
        gate->waiting = false;
    }
}

static bool ask(IdletimeGate *gate, int64_t held_since_ns, uint64_t bytes,
                IdletimeLease *lease, bool issue)
{
    IdletimeRule rule = rule_of(gate);
    int64_t due_ns = idletime_core_due_ns(&rule, held_since_ns);
    IdletimeVerdict verdict;
    bool gave_back;
    int tries = 0;

    idletime_gate_code(gate);
    idletime_guard_thread();
    gave_back = idletime_gate_give_back(gate);
    lease->bytes = MIN(bytes, UINT32_MAX);
    lease->mixed = false;
    announce(gate, idletime_resource_get(gate->res, IDLETIME_AUTO) ?
                   MIN(gate->interval_ns, rule.interval_ns) :
                   rule.interval_ns, due_ns);
    do {
        verdict = ask_once(gate, &rule, held_since_ns, lease, issue);
        idletime_stat_add(&gate->stats.waits[verdict.kind], 1);
    } while (verdict.kind == IDLETIME_WAIT_TURN &&
             verdict.again_ns == lease->since_ns && ++tries < ASK_TRIES);

    gate->verdict = verdict.kind;
    trace_idletime_gate_ask(gate->label, verdict_name[verdict.kind],
                            verdict.again_ns);
    if (verdict.kind > IDLETIME_PROMOTE) {
        if (verdict.kind == IDLETIME_WAIT_BUDGET) {
            /* Who may not start is in nobody's way. */
            idletime_bg_leave(&gate->scan);
        } else {
            announce(gate, rule.interval_ns, due_ns);
        }
        charge_kept(gate);
        if (gave_back && verdict.kind != IDLETIME_WAIT_INFLIGHT) {
            look_and_wake(gate);
        }
        timer_mod_ns(gate->timer, verdict.again_ns);
        return false;
    }
    lease->promoted = verdict.kind == IDLETIME_PROMOTE;
    if (issue) {
        note_started(gate, lease, held_since_ns);
    }
    return true;
}

bool idletime_gate_ask(IdletimeGate *gate, int64_t held_since_ns,
                       uint64_t bytes, IdletimeLease *lease)
{
    return ask(gate, held_since_ns, bytes, lease, true);
}

bool idletime_gate_reserve(IdletimeGate *gate, int64_t held_since_ns,
                           uint64_t bytes, IdletimeLease *lease)
{
    if (!ask(gate, held_since_ns, bytes, lease, false)) {
        return false;
    }
    leave_line(gate);
    return true;
}

void idletime_gate_issue(IdletimeGate *gate, const IdletimeLease *lease,
                         int64_t held_since_ns)
{
    idletime_gate_code(gate);
    idletime_guard_thread();
    charge_kept(gate);
    WITH_QEMU_LOCK_GUARD(&gate->res->lock) {
        note_issued(gate->res, lease);
    }
    note_started(gate, lease, held_since_ns);
}

/* ---- completion */

/* A foreground request that came while ours was in service waited for it. */
static void note_collision(IdletimeGate *gate, uint64_t collisions_before,
                           const IdletimeLease *lease,
                           const IdletimeView *view, int64_t done_ns)
{
    IdletimeResource *res = gate->res;
    uint64_t n = res->core.count[IDLETIME_STATE_BACKGROUND]
                                [IDLETIME_EVENT_FOREGROUND];

    if (n != collisions_before) {
        res->collision_ns += done_ns - MAX(MIN(view->fg_last_ns, done_ns),
                                           lease->since_ns);
    }
    trace_idletime_gate_done(gate->label, done_ns - lease->since_ns,
                             n != collisions_before);
}

/* Neither promoted beside foreground nor met by it: it had the link alone. */
static bool was_alone(const IdletimeLease *lease, const IdletimeView *view,
                      int64_t interval_ns)
{
    return !view->blind && !view->unseen && lease->fg_idle &&
           view->fg_last_ns <= lease->since_ns - interval_ns;
}

void idletime_gate_done(IdletimeGate *gate, const IdletimeLease *lease,
                        bool more)
{
    IdletimeResource *res = gate->res;
    IdletimeRule rule = rule_of(gate);
    int64_t done_ns = idletime_now_ns(), now_ns = done_ns;
    IdletimeView view;
    uint64_t before;

    idletime_gate_code(gate);
    idletime_guard_thread();
    idletime_stat_add(&gate->stats.in_service, -1);
    idletime_bg_done(&gate->scan, done_ns - lease->since_ns);
    if (lease->grant.value) {
        idletime_token_give(&gate->scan, lease->grant);
    }
    WITH_QEMU_LOCK_GUARD(&res->lock) {
        now_ns = idletime_now_ns();
        view = look(gate, &rule, now_ns);
        before = res->core.count[IDLETIME_STATE_BACKGROUND]
                                [IDLETIME_EVENT_FOREGROUND];
        idletime_core_done(&res->core, &rule, &view, now_ns, more);
        note_collision(gate, before, lease, &view, done_ns);
        if (res->learner) {
            idletime_gate_learn_done(gate, lease, &view, done_ns, now_ns);
        } else if (idletime_resource_is_uplink(res) && !lease->mixed &&
                   was_alone(lease, &view, rule.interval_ns)) {
            idletime_resource_served(res, lease->bytes, lease->beside + 1,
                                     done_ns - lease->since_ns);
        }
    }
    if (!view.blind) {
        wake_next(gate, &view, now_ns);
    }
}

void idletime_gate_withdraw(IdletimeGate *gate, const IdletimeLease *lease)
{
    idletime_gate_code(gate);
    idletime_guard_thread();
    if (lease->grant.value) {
        idletime_token_give(&gate->scan, lease->grant);
    }
    look_and_wake(gate);
}

/* Later than the other gate's timer: that one asks this one, too. */
void idletime_gate_keep(IdletimeGate *gate, const IdletimeLease *lease)
{
    int64_t now_ns = idletime_now_ns();

    idletime_gate_code(gate);
    gate->kept = lease->grant;
    gate->kept_since_ns = gate->kept_since_ns ?: now_ns;
    timer_mod_ns(gate->timer, now_ns + 2 * IDLETIME_LOOK_INFLIGHT_NS);
}

bool idletime_gate_give_back(IdletimeGate *gate)
{
    if (!gate->kept.value) {
        return false;
    }
    idletime_guard_thread();
    idletime_token_give(&gate->scan, gate->kept);
    gate->kept.value = 0;
    return true;
}

void idletime_gate_pass(IdletimeGate *gate)
{
    bool waited = gate->waiting;

    idletime_gate_rest(gate);
    if (waited) {
        idletime_guard_thread();
        look_and_wake(gate);
    }
}

void idletime_gate_rest(IdletimeGate *gate)
{
    idletime_gate_code(gate);
    if (!gate->bg_ready) {
        return;
    }
    leave_line(gate);
    charge_kept(gate);
    if (idletime_gate_give_back(gate)) {
        look_and_wake(gate);
    }
}

/* ---- books */

void idletime_gate_note_promotion(IdletimeGate *gate, IdletimePromotion cause)
{
    idletime_stat_add(&gate->stats.promotions[cause], 1);
}

void idletime_gate_note_hold(IdletimeGate *gate, int64_t held_ns)
{
    uint64_t ns = MAX(held_ns, 0);
    uint64_t scaled = ns / IDLETIME_HOLD_FIRST_NS;
    unsigned bits = scaled ? 64 - clz64(scaled) : 0;
    unsigned bin = MIN(bits, IDLETIME_HOLD_BINS - 1);

    idletime_stat_add(&gate->stats.hold_bins[bin], 1);
    if (ns > gate->stats.hold_max_ns) {
        qatomic_set(&gate->stats.hold_max_ns, ns);
    }
}
