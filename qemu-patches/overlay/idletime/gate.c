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
#include "qapi/error.h"
#include "qemu/atomic.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "block/aio-wait.h"
#include "idletime/gate.h"
#include "trace.h"

/* The waker looks for its stop flag this often when its board was lost. */
#define WAKER_TIMEOUT_MS 500
/* Participants skipped in one go; more of them wait for the next timer. */
#define ASK_TRIES 4

static const char *const verdict_name[IDLETIME_VERDICT__MAX] = {
    [IDLETIME_START] = "start",
    [IDLETIME_PROMOTE] = "promote",
    [IDLETIME_WAIT_FOREGROUND] = "wait-foreground",
    [IDLETIME_WAIT_INTERVAL] = "wait-interval",
    [IDLETIME_WAIT_INFLIGHT] = "wait-inflight",
    [IDLETIME_WAIT_TURN] = "wait-turn",
    [IDLETIME_WAIT_ARENA] = "wait-arena",
};

/* Counters have one writer; monitors read them at any time. */
static void stat_add(uint64_t *counter, int64_t n)
{
    qatomic_set(counter, *counter + n);
}

/* ---- waking */

static void gate_pump(void *opaque)
{
    IdletimeGate *gate = opaque;

    gate->pump(gate->opaque);
}

static void gate_woken(EventNotifier *notifier)
{
    IdletimeGate *gate = container_of(notifier, IdletimeGate, wake);

    if (event_notifier_test_and_clear(notifier)) {
        gate_pump(gate);
    }
}

/* A futex cannot be polled, so a thread sleeps on it for the event loop. */
static void *waker_run(void *opaque)
{
    IdletimeGate *gate = opaque;
    uint32_t seen = idletime_bg_wait(&gate->scan, UINT32_MAX, 0);

    idletime_guard_thread();
    while (!qatomic_read(&gate->waker_stop)) {
        uint32_t now = idletime_bg_wait(&gate->scan, seen, WAKER_TIMEOUT_MS);

        if (now != seen) {
            seen = now;
            event_notifier_set(&gate->wake);
        }
    }
    return NULL;
}

void idletime_gate_kick(IdletimeGate *gate)
{
    qemu_bh_schedule(gate->bh);
}

/* ---- joining and leaving */

IdletimeGate *idletime_gate_new(IdletimeResource *res, AioContext *ctx,
                                const char *label,
                                void (*pump)(void *opaque), void *opaque)
{
    IdletimeGate *gate = g_new0(IdletimeGate, 1);

    gate->res = res;
    gate->ctx = ctx;
    gate->label = g_strdup(label);
    gate->fg_slot.fd = gate->bg_slot.fd = -1;
    gate->yielded_to = -1;
    gate->pump = pump;
    gate->opaque = opaque;
    gate->bh = aio_bh_new(ctx, gate_pump, gate);
    return gate;
}

static bool claim(IdletimeGate *gate, IdletimeBoardKind kind,
                  IdletimeSlot *slot, Error **errp)
{
    IdletimeBoard *board = idletime_resource_board(gate->res, kind, true, errp);
    IdletimeError err;

    if (!board) {
        return false;
    }
    idletime_guard_thread();
    if (!idletime_slot_claim(board, slot, gate->label, &err)) {
        error_setg(errp, "idletime-resource '%s': %s",
                   idletime_resource_id(gate->res), err.text);
        return false;
    }
    trace_idletime_gate_claim(gate->label, board->path, slot->index);
    return true;
}

static bool join_foreground(IdletimeGate *gate, Error **errp)
{
    if (!claim(gate, IDLETIME_BOARD_FOREGROUND, &gate->fg_slot, errp)) {
        return false;
    }
    idletime_fg_attach(&gate->fg, &gate->res->fg_write, &gate->fg_slot);
    /* Published to the device's thread by the class change that follows. */
    qatomic_store_release(&gate->fg_ready, true);
    return true;
}

static void core_start(IdletimeGate *gate)
{
    IdletimeResource *res = gate->res;
    IdletimeRule rule = idletime_resource_rule(res);

    QEMU_LOCK_GUARD(&res->lock);
    if (!res->core_ready) {
        IdletimeView view = idletime_scan(&gate->scan, &rule,
                                          idletime_now_ns());

        idletime_core_init(&res->core, &view);
        res->core_ready = true;
    }
}

static bool join_background(IdletimeGate *gate, Error **errp)
{
    IdletimeBoard *fg = idletime_resource_board(gate->res,
                                                IDLETIME_BOARD_FOREGROUND,
                                                false, errp);

    if (!fg || !claim(gate, IDLETIME_BOARD_BACKGROUND, &gate->bg_slot, errp)) {
        return false;
    }
    if (event_notifier_init(&gate->wake, false) < 0) {
        error_setg(errp, "idletime: out of file descriptors");
        idletime_slot_release(&gate->res->bg, &gate->bg_slot);
        return false;
    }
    gate->scan = (IdletimeScan) {
        .fg = fg,
        .bg = &gate->res->bg,
        .self = gate->bg_slot.index,
    };
    gate->timer = aio_timer_new(gate->ctx, idletime_clock(), SCALE_NS,
                                gate_pump, gate);
    core_start(gate);
    aio_set_event_notifier(gate->ctx, &gate->wake, gate_woken, NULL, NULL);
    qemu_thread_create(&gate->waker, "idletime-wake", waker_run, gate,
                       QEMU_THREAD_JOINABLE);
    qatomic_store_release(&gate->bg_ready, true);
    return true;
}

bool idletime_gate_join(IdletimeGate *gate, bool foreground, bool background,
                        Error **errp)
{
    return (!foreground || gate->fg_ready || join_foreground(gate, errp)) &&
           (!background || gate->bg_ready || join_background(gate, errp));
}

/* Context: gate->ctx; nothing of ours runs there afterwards. */
static void quiesce(void *opaque)
{
    IdletimeGate *gate = opaque;

    qemu_bh_delete(gate->bh);
    if (gate->bg_ready) {
        timer_del(gate->timer);
        aio_set_event_notifier(gate->ctx, &gate->wake, NULL, NULL, NULL);
    }
}

static void leave_background(IdletimeGate *gate)
{
    qatomic_set(&gate->waker_stop, true);
    idletime_bg_wake(&gate->scan, gate->scan.self);
    qemu_thread_join(&gate->waker);
    event_notifier_cleanup(&gate->wake);
    timer_free(gate->timer);
    idletime_slot_release(&gate->res->bg, &gate->bg_slot);
}

void idletime_gate_run(IdletimeGate *gate, void (*fn)(void *opaque),
                       void *opaque)
{
    if (gate->ctx == qemu_get_aio_context()) {
        fn(opaque);
    } else {
        aio_wait_bh_oneshot(gate->ctx, fn, opaque);
    }
}

void idletime_gate_free(IdletimeGate *gate)
{
    idletime_guard_thread();
    idletime_gate_run(gate, quiesce, gate);
    if (gate->bg_ready) {
        leave_background(gate);
    }
    if (gate->fg_ready) {
        idletime_slot_release(&gate->res->fg_write, &gate->fg_slot);
    }
    g_free(gate->label);
    g_free(gate);
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
        idletime_scan_skip(&gate->scan, next);
        gate->yielded_to = -1;
        return true;
    }
    if (gate->yielded_to != next || gate->yielded_started != started) {
        gate->yielded_to = next;
        gate->yielded_started = started;
        gate->yielded_since_ns = now_ns;
        idletime_bg_wake(&gate->scan, next);
    }
    return false;
}

/* One look and one decision; a token in @lease if it may start. */
static IdletimeVerdict ask_once(IdletimeGate *gate, const IdletimeRule *rule,
                                int64_t held_since_ns, int64_t now_ns,
                                IdletimeLease *lease)
{
    IdletimeResource *res = gate->res;
    IdletimeView view = idletime_scan(&gate->scan, rule, now_ns);
    IdletimeVerdict verdict;

    QEMU_LOCK_GUARD(&res->lock);
    verdict = idletime_core_ask(&res->core, rule, &view, now_ns, held_since_ns);
    if (verdict.kind == IDLETIME_WAIT_TURN &&
        yield_turn(gate, &view, now_ns)) {
        verdict.again_ns = now_ns;
    }
    if (verdict.kind > IDLETIME_PROMOTE) {
        return verdict;
    }
    if (view.blind) {
        lease->grant.value = 0;
    } else if (!idletime_token_take(&gate->scan, rule, now_ns,
                                    &lease->grant)) {
        /* Another process was faster. */
        verdict.kind = IDLETIME_WAIT_INFLIGHT;
        verdict.again_ns = now_ns + IDLETIME_LOOK_INFLIGHT_NS;
        return verdict;
    }
    idletime_core_started(&res->core);
    return verdict;
}

static void note_started(IdletimeGate *gate, int64_t held_ns, uint64_t bytes,
                         IdletimeVerdictKind kind)
{
    gate->yielded_to = -1;
    stat_add(&gate->stats.bg_requests, 1);
    stat_add(&gate->stats.bg_bytes, bytes);
    stat_add(&gate->stats.in_service, 1);
    if (kind == IDLETIME_PROMOTE) {
        idletime_gate_note_promotion(gate, IDLETIME_PROMOTION_DEADLINE);
    }
    idletime_bg_started(&gate->scan, bytes);
    trace_idletime_gate_started(gate->label, bytes, held_ns,
                                kind == IDLETIME_PROMOTE);
}

/* Each time: weight and interval may have been changed since. */
static void announce(IdletimeGate *gate, const IdletimeRule *rule)
{
    uint32_t weight = idletime_resource_get(gate->res, IDLETIME_WEIGHT);

    idletime_bg_enter(&gate->scan, rule, weight);
    gate->waiting = true;
}

bool idletime_gate_ask(IdletimeGate *gate, int64_t held_since_ns,
                       uint64_t bytes, IdletimeLease *lease)
{
    IdletimeRule rule = idletime_resource_rule(gate->res);
    int64_t now_ns = idletime_now_ns();
    IdletimeVerdict verdict;
    int tries = 0;

    idletime_guard_thread();
    announce(gate, &rule);
    do {
        verdict = ask_once(gate, &rule, held_since_ns, now_ns, lease);
        stat_add(&gate->stats.waits[verdict.kind], 1);
    } while (verdict.kind == IDLETIME_WAIT_TURN &&
             verdict.again_ns == now_ns && ++tries < ASK_TRIES);

    trace_idletime_gate_ask(gate->label, verdict_name[verdict.kind],
                            verdict.again_ns);
    if (verdict.kind > IDLETIME_PROMOTE) {
        timer_mod_ns(gate->timer, verdict.again_ns);
        return false;
    }
    lease->since_ns = now_ns;
    note_started(gate, now_ns - held_since_ns, bytes, verdict.kind);
    return true;
}

/* ---- completion */

/* A foreground request that came while ours was in service waited for it. */
static void note_collision(IdletimeGate *gate, uint64_t collisions_before,
                           const IdletimeLease *lease,
                           const IdletimeView *view, int64_t now_ns)
{
    IdletimeResource *res = gate->res;
    uint64_t n = res->core.count[IDLETIME_STATE_BACKGROUND]
                                [IDLETIME_EVENT_FOREGROUND];

    if (n != collisions_before) {
        res->collision_ns += now_ns - MAX(MIN(view->fg_last_ns, now_ns),
                                          lease->since_ns);
    }
    trace_idletime_gate_done(gate->label, now_ns - lease->since_ns,
                             n != collisions_before);
}

static void wake_next(IdletimeGate *gate, const IdletimeView *view,
                      int64_t now_ns)
{
    int next = idletime_scan_next(&gate->scan, view->fg_last_ns, now_ns);

    if (next >= 0 && next != gate->scan.self) {
        idletime_bg_wake(&gate->scan, next);
    }
}

void idletime_gate_done(IdletimeGate *gate, const IdletimeLease *lease,
                        bool more)
{
    IdletimeResource *res = gate->res;
    IdletimeRule rule = idletime_resource_rule(res);
    int64_t now_ns = idletime_now_ns();
    IdletimeView view;
    uint64_t before;

    idletime_guard_thread();
    stat_add(&gate->stats.in_service, -1);
    idletime_bg_done(&gate->scan, now_ns - lease->since_ns);
    if (lease->grant.value) {
        idletime_token_give(&gate->scan, lease->grant);
    }
    view = idletime_scan(&gate->scan, &rule, now_ns);
    WITH_QEMU_LOCK_GUARD(&res->lock) {
        before = res->core.count[IDLETIME_STATE_BACKGROUND]
                                [IDLETIME_EVENT_FOREGROUND];
        idletime_core_done(&res->core, &rule, &view, now_ns, more);
        note_collision(gate, before, lease, &view, now_ns);
    }
    if (!view.blind) {
        wake_next(gate, &view, now_ns);
    }
}

void idletime_gate_rest(IdletimeGate *gate)
{
    if (gate->bg_ready) {
        timer_del(gate->timer);
        if (gate->waiting) {
            idletime_guard_thread();
            idletime_bg_leave(&gate->scan);
            gate->waiting = false;
        }
    }
}

/* ---- books */

void idletime_gate_note_promotion(IdletimeGate *gate, IdletimePromotion cause)
{
    stat_add(&gate->stats.promotions[cause], 1);
}

void idletime_gate_note_hold(IdletimeGate *gate, int64_t held_ns)
{
    uint64_t ns = MAX(held_ns, 0);
    uint64_t scaled = ns / IDLETIME_HOLD_FIRST_NS;
    unsigned bin = scaled ? 64 - clz64(scaled) : 0;

    stat_add(&gate->stats.hold_bins[MIN(bin, IDLETIME_HOLD_BINS - 1)], 1);
    if (ns > gate->stats.hold_max_ns) {
        qatomic_set(&gate->stats.hold_max_ns, ns);
    }
}
