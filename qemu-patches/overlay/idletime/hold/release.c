/*
 * Idletime hold: from the list of held requests into service.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   expedited       leave as foreground, max-inflight at a time
 *   the others      leave as background, when the gate gives a lease
 *
 * A released request takes the stock path of its device.
 */
#include "qemu/osdep.h"
#include "hold-impl.h"

/* ---- one request */

static uint64_t size_of(const IdletimeHolder *hold, const IdletimeReq *req)
{
    return req->pieces ? idletime_pieces_left(req->pieces) :
                         hold->ops->size(hold, req);
}

/* As background one piece, as foreground all that is left. */
static void issue_piece(IdletimeHoldPart *part, IdletimeReq *req)
{
    IdletimeHolder *hold = part->owner;
    uint64_t left = idletime_pieces_left(req->pieces);

    idletime_stat_add(&part->gate->stats.pieces, 1);
    if (req->state == IDLETIME_REQ_BACKGROUND) {
        left = MIN(left, idletime_hold_piece_limit(hold));
    } else {
        idletime_hold_begin(hold, req, req->queue, left, idletime_now_ns());
    }
    req->pieces->piece_bytes = left;
    hold->ops->issue_piece(hold, req);
}

/* @req was taken from the list. */
static void release(IdletimeHoldPart *part, IdletimeReq *req,
                    IdletimeReqState state)
{
    req->state = state;
    if (req->pieces) {
        issue_piece(part, req);
        return;
    }
    idletime_gate_note_hold(part->gate, idletime_now_ns() - req->held_ns);
    part->owner->ops->issue(part->owner, req);
}

void idletime_hold_expel(IdletimeHoldPart *part, IdletimeReq *req,
                         IdletimePromotion cause)
{
    idletime_hold_assert_thread(part);
    idletime_gate_note_promotion(part->gate, cause);
    release(part, req, IDLETIME_REQ_EXPEDITED);
}

/* ---- all that may leave */

/* Returns false if the first one has to wait. */
static bool release_first(IdletimeHoldPart *part)
{
    IdletimeHolder *hold = part->owner;
    IdletimePromotion cause;
    IdletimeReq *req = idletime_hold_expedited(part, &cause);
    uint64_t bytes;

    if (req) {
        if (part->expedited >= idletime_resource_get(part->gate->res,
                                                     IDLETIME_MAX_INFLIGHT)) {
            return false;
        }
        idletime_hold_list_remove(part, req);
        idletime_hold_expel(part, req, cause);
        return true;
    }
    req = QTAILQ_FIRST(&part->held);
    bytes = MIN(size_of(hold, req), idletime_hold_piece_limit(hold));
    if (!idletime_gate_ask(part->gate, idletime_hold_due_since_ns(part, req),
                           bytes, &req->lease)) {
        return false;
    }
    idletime_hold_list_remove(part, req);
    release(part, req, IDLETIME_REQ_BACKGROUND);
    return true;
}

static bool is_idle(const IdletimeHoldPart *part)
{
    return QTAILQ_EMPTY(&part->held) && !part->expedited &&
           !part->gate->stats.in_service && !part->gate->fg.in_service;
}

/* Nothing begins in a device that leaves: what is idle there stays so. */
void idletime_hold_leave(IdletimeHoldPart *part)
{
    idletime_hold_assert_thread(part);
    if (unlikely(qatomic_load_acquire(&part->owner->leaving)) &&
        is_idle(part)) {
        qatomic_store_release(&part->left, true);
        qemu_bh_schedule(part->owner->left_bh);
    }
}

/*
 * Called when the gate says that asking is worth it, after each completion,
 * and when the first request is held.  A request that fails at once completes
 * in here: the loop, not a recursion, goes on.
 */
void idletime_hold_pump(void *opaque)
{
    IdletimeHoldPart *part = opaque;
    bool waiting = false;

    idletime_hold_assert_thread(part);
    if (part->pumping) {
        return;
    }
    part->pumping = true;
    while (!waiting && !idletime_hold_blocked(part->owner)) {
        idletime_hold_take_orders(part);
        if (QTAILQ_EMPTY(&part->held)) {
            break;
        }
        waiting = !release_first(part);
    }
    part->pumping = false;
    if (!waiting) {
        idletime_gate_rest(part->gate);
    }
    idletime_hold_leave(part);
}

/* ---- in service */

void idletime_hold_begin_expedited(IdletimeHolder *hold, IdletimeReq *req,
                                   uint64_t bytes, int64_t now_ns)
{
    IdletimeHoldPart *part = idletime_hold_part(hold, req->queue);

    idletime_hold_assert_thread(part);
    part->expedited++;
    if (qatomic_load_acquire(&part->gate->fg_ready)) {
        idletime_gate_begin(part->gate, now_ns, bytes);
        req->state = IDLETIME_REQ_EXPEDITED_FG;
    } else {
        req->state = IDLETIME_REQ_EXPEDITED_UNSEEN;
    }
}

/* ---- large requests */

/* The next piece waits before the requests that came after the first. */
static void hold_rest(IdletimeHoldPart *part, IdletimeReq *req)
{
    IdletimeLease lease = req->lease;
    IdletimeAside aside;

    req->waited_ns = idletime_now_ns() - req->held_ns;
    aside = idletime_hold_set_aside(part->owner, req);
    if (aside == IDLETIME_ASIDE_NO) {
        idletime_hold_list_prepend(part, req);
        /* Its class may have changed while the piece was in service. */
        if (idletime_hold_class(part->owner, req) ==
            IDLETIME_CLASS_FOREGROUND) {
            qatomic_set(&part->reclassify, true);
        }
    }
    idletime_gate_done(part->gate, &lease, !QTAILQ_EMPTY(&part->held));
    if (aside == IDLETIME_ASIDE_START) {
        idletime_hold_expel(part, req, IDLETIME_PROMOTION_STOP);
    }
}

void idletime_hold_piece_done(IdletimeHolder *hold, IdletimeReq *req, int ret)
{
    IdletimeHoldPart *part = idletime_hold_part(hold, req->queue);

    idletime_hold_assert_thread(part);
    if (idletime_pieces_done(hold, req->pieces, &ret)) {
        /* The lease, or the foreground's end, goes with the completion. */
        hold->ops->finish(hold, req, ret);
        return;
    }
    hold_rest(part, req);
    idletime_hold_pump(part);
}

void idletime_hold_split(IdletimeHolder *hold, IdletimeReq *req,
                         IdletimePieces *pieces)
{
    IdletimeHoldPart *part = idletime_hold_part(hold, req->queue);

    idletime_hold_assert_thread(part);
    req->pieces = pieces;
    issue_piece(part, req);
}
