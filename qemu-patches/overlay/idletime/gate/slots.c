/*
 * Idletime gate: claiming and leaving slots on the boards.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/atomic.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "block/aio-wait.h"
#include "idletime/gate/gate.h"
#include "trace.h"

static const IdletimeGateSlots no_slots;

/* ---- claims */

static bool claim(IdletimeGate *gate, IdletimeGateSlots *slots,
                  IdletimeBoardKind kind, Error **errp)
{
    IdletimeBoard *board = idletime_boards_map(slots->boards, kind, true, errp);
    IdletimeSlot *slot = kind == IDLETIME_BOARD_FOREGROUND ? &slots->fg :
                                                             &slots->bg;
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

/* A background slots reads the foreground board as well. */
static bool claim_background(IdletimeGate *gate, IdletimeGateSlots *slots,
                             Error **errp)
{
    return idletime_boards_map(slots->boards, IDLETIME_BOARD_FOREGROUND, false,
                               errp) &&
           claim(gate, slots, IDLETIME_BOARD_BACKGROUND, errp);
}

static void slots_leave(IdletimeGateSlots *slots)
{
    if (slots->boards) {
        idletime_guard_thread();
        idletime_slot_release(&slots->boards->fg_write, &slots->fg);
        idletime_slot_release(&slots->boards->bg, &slots->bg);
    }
    *slots = no_slots;
}

static IdletimeScan scan_of(const IdletimeGate *gate,
                            const IdletimeGateSlots *slots)
{
    return (IdletimeScan) {
        .fg = &slots->boards->fg_read,
        .bg = &slots->boards->bg,
        .observer = &gate->res->observer,
        .self = slots->bg.index,
    };
}

/* ---- joining */

static void settings_changed(Notifier *notifier, void *data)
{
    idletime_gate_kick(container_of(notifier, IdletimeGate, changed));
}

IdletimeGate *idletime_gate_new(IdletimeResource *res, AioContext *ctx,
                                const char *label)
{
    IdletimeGate *gate = g_new0(IdletimeGate, 1);

    GLOBAL_STATE_CODE();
    gate->res = res;
    gate->ctx = ctx;
    gate->label = g_strdup(label);
    gate->slots = gate->next_slots = no_slots;
    gate->yielded_to = -1;
    gate->bh = aio_bh_new(ctx, idletime_gate_pump, gate);
    gate->changed.notify = settings_changed;
    notifier_list_add(&res->changed, &gate->changed);
    QTAILQ_INSERT_TAIL(&res->gates, gate, next);
    idletime_gate_watch(res);
    return gate;
}

static bool join_foreground(IdletimeGate *gate, Error **errp)
{
    if (!claim(gate, &gate->slots, IDLETIME_BOARD_FOREGROUND, errp)) {
        return false;
    }
    idletime_fg_attach(&gate->fg, &gate->slots.boards->fg_write,
                       &gate->slots.fg);
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

static IdletimeGate *gate_of(EventNotifier *notifier)
{
    return container_of(notifier, IdletimeGate, waker.notifier);
}

/*
 * An event loop polls only if all of its handlers can.  Without this, one
 * background queue would end the adaptive polling of a thread that serves
 * foreground queues as well.
 */
static bool gate_poll(void *opaque)
{
    return qatomic_read(&gate_of(opaque)->waker.woken);
}

static void gate_woken(EventNotifier *notifier)
{
    IdletimeGate *gate = gate_of(notifier);

    if (qatomic_xchg(&gate->waker.woken, false)) {
        idletime_gate_pump(gate);
    }
}

static void gate_notified(EventNotifier *notifier)
{
    event_notifier_test_and_clear(notifier);
    gate_woken(notifier);
}

/* Context: BQL; nothing of the gate runs yet, or since quiesce(). */
static void attach_background(IdletimeGate *gate)
{
    gate->timer = aio_timer_new(gate->ctx, idletime_clock(), SCALE_NS,
                                idletime_gate_pump, gate);
    aio_set_event_notifier(gate->ctx, &gate->waker.notifier, gate_notified,
                           gate_poll, gate_woken);
}

static bool join_background(IdletimeGate *gate, Error **errp)
{
    if (!claim_background(gate, &gate->slots, errp)) {
        return false;
    }
    gate->scan = scan_of(gate, &gate->slots);
    if (!idletime_waker_start(&gate->waker, &gate->scan, errp)) {
        idletime_slot_release(&gate->slots.boards->bg, &gate->slots.bg);
        return false;
    }
    core_start(gate);
    attach_background(gate);
    qatomic_store_release(&gate->bg_ready, true);
    return true;
}

bool idletime_gate_join(IdletimeGate *gate, bool foreground, bool background,
                        Error **errp)
{
    bool fg = foreground && !gate->fg_ready;
    bool bg = background && !gate->bg_ready;

    GLOBAL_STATE_CODE();
    if ((fg || bg) && qatomic_read(&gate->res->blind)) {
        error_setg(errp, "idletime-resource '%s': its arena '%s' is lost, so "
                   "no device can join; restore the directory first",
                   idletime_resource_id(gate->res), gate->res->path);
        return false;
    }
    gate->slots.boards = gate->slots.boards ?: gate->res->boards;
    return (!fg || join_foreground(gate, errp)) &&
           (!bg || join_background(gate, errp));
}

/* ---- moving to another arena */

bool idletime_gate_move(IdletimeGate *gate, IdletimeBoards *boards,
                        Error **errp)
{
    IdletimeScan scan;

    GLOBAL_STATE_CODE();
    gate->next_slots.boards = boards;
    if ((gate->fg_ready &&
         !claim(gate, &gate->next_slots, IDLETIME_BOARD_FOREGROUND, errp)) ||
        (gate->bg_ready && !claim_background(gate, &gate->next_slots, errp))) {
        slots_leave(&gate->next_slots);
        return false;
    }
    if (gate->bg_ready) {
        scan = scan_of(gate, &gate->next_slots);
        idletime_waker_move(&gate->waker, &scan);
    }
    qatomic_store_release(&gate->move, true);
    idletime_gate_kick(gate);
    return true;
}

void idletime_gate_follow_move(IdletimeGate *gate)
{
    IdletimeGateSlots old = gate->slots;

    idletime_gate_code(gate);
    idletime_gate_give_back(gate);
    gate->slots = gate->next_slots;
    gate->next_slots = old;
    if (gate->fg_ready) {
        idletime_fg_move(&gate->fg, &gate->slots.boards->fg_write,
                         &gate->slots.fg, idletime_now_ns());
    }
    if (gate->bg_ready) {
        gate->scan = scan_of(gate, &gate->slots);
    }
    qatomic_store_release(&gate->move, false);
}

bool idletime_gate_moved(IdletimeGate *gate)
{
    GLOBAL_STATE_CODE();
    if (qatomic_load_acquire(&gate->move) ||
        (gate->bg_ready && !idletime_waker_moved(&gate->waker))) {
        return false;
    }
    /* The old one by now. */
    slots_leave(&gate->next_slots);
    return true;
}

/* ---- leaving */

void idletime_gate_run(IdletimeGate *gate, void (*fn)(void *opaque),
                       void *opaque)
{
    GLOBAL_STATE_CODE();
    if (gate->ctx == qemu_get_aio_context()) {
        fn(opaque);
    } else {
        aio_wait_bh_oneshot(gate->ctx, fn, opaque);
    }
}

/* Context: gate->ctx; nothing of the gate runs there afterwards. */
typedef struct Quiesce {
    IdletimeGate *gate;
    QEMUBH *bh;
} Quiesce;

static void quiesce(void *opaque)
{
    Quiesce *q = opaque;
    IdletimeGate *gate = q->gate;

    qemu_bh_delete(q->bh);
    if (gate->bg_ready) {
        if (gate->kept.value) {
            idletime_gate_rest(gate);
        }
        timer_del(gate->timer);
        aio_set_event_notifier(gate->ctx, &gate->waker.notifier, NULL, NULL,
                               NULL);
    }
}

/* Who kicks it in a nested event loop meanwhile kicks nothing. */
static void gate_quiesce(IdletimeGate *gate)
{
    Quiesce q = { .gate = gate, .bh = gate->bh };

    qatomic_set(&gate->bh, NULL);
    idletime_gate_run(gate, quiesce, &q);
}

/* An expired timer and a wake-up that was missed are made up for. */
void idletime_gate_set_context(IdletimeGate *gate, AioContext *ctx)
{
    GLOBAL_STATE_CODE();
    if (gate->ctx == ctx) {
        return;
    }
    gate_quiesce(gate);
    gate->ctx = ctx;
    if (gate->bg_ready) {
        timer_free(gate->timer);
        attach_background(gate);
    }
    qatomic_set(&gate->bh, aio_bh_new(ctx, idletime_gate_pump, gate));
    idletime_gate_kick(gate);
}

void idletime_gate_free(IdletimeGate *gate)
{
    GLOBAL_STATE_CODE();
    idletime_guard_thread();
    QTAILQ_REMOVE(&gate->res->gates, gate, next);
    notifier_remove(&gate->changed);
    gate_quiesce(gate);
    if (gate->bg_ready) {
        idletime_waker_stop(&gate->waker);
        timer_free(gate->timer);
    }
    slots_leave(&gate->slots);
    slots_leave(&gate->next_slots);
    g_free(gate->label);
    g_free(gate);
}
