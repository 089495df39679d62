/*
 * Idletime gate: taking and leaving seats, that is slots on the boards.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/atomic.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "block/aio-wait.h"
#include "idletime/gate.h"
#include "trace.h"

static const IdletimeSeat no_seat = { .fg.fd = -1, .bg.fd = -1 };

/* ---- claims */

static bool claim(IdletimeGate *gate, IdletimeSeat *seat,
                  IdletimeBoardKind kind, Error **errp)
{
    IdletimeBoard *board = idletime_boards_map(gate->res, seat->boards, kind,
                                               true, errp);
    IdletimeSlot *slot = kind == IDLETIME_BOARD_FOREGROUND ? &seat->fg :
                                                             &seat->bg;
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

/* A background seat reads the foreground board as well. */
static bool claim_background(IdletimeGate *gate, IdletimeSeat *seat,
                             Error **errp)
{
    return idletime_boards_map(gate->res, seat->boards,
                               IDLETIME_BOARD_FOREGROUND, false, errp) &&
           claim(gate, seat, IDLETIME_BOARD_BACKGROUND, errp);
}

static void seat_leave(IdletimeSeat *seat)
{
    if (seat->boards) {
        idletime_guard_thread();
        idletime_slot_release(&seat->boards->fg_write, &seat->fg);
        idletime_slot_release(&seat->boards->bg, &seat->bg);
    }
    *seat = no_seat;
}

static IdletimeScan scan_of(const IdletimeSeat *seat)
{
    return (IdletimeScan) {
        .fg = &seat->boards->fg_read,
        .bg = &seat->boards->bg,
        .self = seat->bg.index,
    };
}

/* ---- joining */

IdletimeGate *idletime_gate_new(IdletimeResource *res, AioContext *ctx,
                                const char *label)
{
    IdletimeGate *gate = g_new0(IdletimeGate, 1);

    gate->res = res;
    gate->ctx = ctx;
    gate->label = g_strdup(label);
    gate->seat = gate->next_seat = no_seat;
    gate->yielded_to = -1;
    gate->bh = aio_bh_new(ctx, idletime_gate_pump, gate);
    return gate;
}

static bool join_foreground(IdletimeGate *gate, Error **errp)
{
    if (!claim(gate, &gate->seat, IDLETIME_BOARD_FOREGROUND, errp)) {
        return false;
    }
    idletime_fg_attach(&gate->fg, &gate->seat.boards->fg_write,
                       &gate->seat.fg);
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

static void gate_woken(EventNotifier *notifier)
{
    if (event_notifier_test_and_clear(notifier)) {
        idletime_gate_pump(container_of(notifier, IdletimeGate,
                                        waker.notifier));
    }
}

static bool join_background(IdletimeGate *gate, Error **errp)
{
    if (!claim_background(gate, &gate->seat, errp)) {
        return false;
    }
    gate->scan = scan_of(&gate->seat);
    if (!idletime_waker_start(&gate->waker, &gate->scan, errp)) {
        idletime_slot_release(&gate->seat.boards->bg, &gate->seat.bg);
        return false;
    }
    core_start(gate);
    gate->timer = aio_timer_new(gate->ctx, idletime_clock(), SCALE_NS,
                                idletime_gate_pump, gate);
    aio_set_event_notifier(gate->ctx, &gate->waker.notifier, gate_woken,
                           NULL, NULL);
    qatomic_store_release(&gate->bg_ready, true);
    return true;
}

bool idletime_gate_join(IdletimeGate *gate, bool foreground, bool background,
                        Error **errp)
{
    bool fg = foreground && !gate->fg_ready;
    bool bg = background && !gate->bg_ready;

    if ((fg || bg) && qatomic_read(&gate->res->blind)) {
        error_setg(errp, "idletime-resource '%s': its arena '%s' is lost, so "
                   "no device can join; restore the directory first",
                   idletime_resource_id(gate->res), gate->res->path);
        return false;
    }
    gate->seat.boards = gate->seat.boards ?: gate->res->boards;
    return (!fg || join_foreground(gate, errp)) &&
           (!bg || join_background(gate, errp));
}

/* ---- moving to another arena */

bool idletime_gate_move(IdletimeGate *gate, IdletimeBoards *boards,
                        Error **errp)
{
    IdletimeScan scan;

    gate->next_seat.boards = boards;
    if ((gate->fg_ready &&
         !claim(gate, &gate->next_seat, IDLETIME_BOARD_FOREGROUND, errp)) ||
        (gate->bg_ready && !claim_background(gate, &gate->next_seat, errp))) {
        seat_leave(&gate->next_seat);
        return false;
    }
    if (gate->bg_ready) {
        scan = scan_of(&gate->next_seat);
        idletime_waker_move(&gate->waker, &scan);
    }
    qatomic_store_release(&gate->move, true);
    idletime_gate_kick(gate);
    return true;
}

void idletime_gate_follow_move(IdletimeGate *gate)
{
    IdletimeSeat old = gate->seat;

    gate->seat = gate->next_seat;
    gate->next_seat = old;
    if (gate->fg_ready) {
        idletime_fg_move(&gate->fg, &gate->seat.boards->fg_write,
                         &gate->seat.fg, idletime_now_ns());
    }
    if (gate->bg_ready) {
        gate->scan = scan_of(&gate->seat);
    }
    qatomic_store_release(&gate->move, false);
}

bool idletime_gate_moved(IdletimeGate *gate)
{
    if (qatomic_load_acquire(&gate->move) ||
        (gate->bg_ready && !idletime_waker_moved(&gate->waker))) {
        return false;
    }
    /* The old one by now. */
    seat_leave(&gate->next_seat);
    return true;
}

/* ---- leaving */

void idletime_gate_run(IdletimeGate *gate, void (*fn)(void *opaque),
                       void *opaque)
{
    if (gate->ctx == qemu_get_aio_context()) {
        fn(opaque);
    } else {
        aio_wait_bh_oneshot(gate->ctx, fn, opaque);
    }
}

/* Context: gate->ctx; nothing of ours runs there afterwards. */
static void quiesce(void *opaque)
{
    IdletimeGate *gate = opaque;

    qemu_bh_delete(gate->bh);
    if (gate->bg_ready) {
        timer_del(gate->timer);
        aio_set_event_notifier(gate->ctx, &gate->waker.notifier, NULL, NULL,
                               NULL);
    }
}

void idletime_gate_free(IdletimeGate *gate)
{
    idletime_gate_run(gate, quiesce, gate);
    if (gate->bg_ready) {
        idletime_waker_stop(&gate->waker);
        timer_free(gate->timer);
    }
    seat_leave(&gate->seat);
    seat_leave(&gate->next_seat);
    g_free(gate->label);
    g_free(gate);
}
