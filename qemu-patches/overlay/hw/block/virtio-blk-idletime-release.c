/*
 * virtio-blk: from the list of held requests into service.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   expedited       leave as foreground, max-inflight at a time
 *   the others      leave as background, when the gate gives a lease
 *   class change    leave at once: they are foreground now
 *
 * A released request takes the stock path from the beginning.
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "system/block-backend.h"
#include "virtio-blk-idletime-impl.h"

/* ---- one request */

/* For the books: the data behind the header, or before the status byte. */
static uint64_t size_of(const VirtIOBlockReq *req)
{
    uint64_t out = iov_size(req->elem.out_sg, req->elem.out_num);
    uint64_t in = iov_size(req->elem.in_sg, req->elem.in_num);

    if (req->idletime.pieces) {
        return idletime_blk_pieces_left(req);
    }
    return MAX(out - MIN(out, sizeof(struct virtio_blk_outhdr)),
               in - MIN(in, sizeof(struct virtio_blk_inhdr)));
}

/* As background one piece, as foreground all that is left. */
static void issue_piece(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    uint64_t left = idletime_blk_pieces_left(req);

    idletime_stat_add(&part->gate->stats.pieces, 1);
    if (req->idletime.state == IDLETIME_BLK_BACKGROUND) {
        left = MIN(left, idletime_blk_piece_limit(req->dev));
    } else {
        idletime_blk_begin_slow(req, left, idletime_now_ns());
    }
    idletime_blk_pieces_issue(req, left);
}

/* @req was taken from the list. */
static void release(IdletimeBlkPart *part, VirtIOBlockReq *req,
                    IdletimeBlkState state)
{
    req->idletime.state = state;
    if (req->idletime.pieces) {
        issue_piece(part, req);
        return;
    }
    idletime_gate_note_hold(part->gate,
                            idletime_now_ns() - req->idletime.held_ns);
    req->next = NULL;
    virtio_blk_submit_list(req);
}

static void promote(IdletimeBlkPart *part, VirtIOBlockReq *req,
                    IdletimeBlkState state, IdletimePromotion cause)
{
    idletime_gate_note_promotion(part->gate, cause);
    release(part, req, state);
}

/* ---- all that may leave */

/* Those whose queue is foreground now. */
static void release_reclassified(IdletimeBlkPart *part)
{
    IdletimeHeldList ready = QSIMPLEQ_HEAD_INITIALIZER(ready);
    VirtIOBlockReq *req, *next;

    QSIMPLEQ_FOREACH_SAFE(req, &part->held, held_next, next) {
        if (idletime_blk_class(req) == IDLETIME_CLASS_FOREGROUND) {
            idletime_blk_list_remove(part, req);
            QSIMPLEQ_INSERT_TAIL(&ready, req, held_next);
        }
    }
    while ((req = QSIMPLEQ_FIRST(&ready))) {
        QSIMPLEQ_REMOVE_HEAD(&ready, held_next);
        promote(part, req, IDLETIME_BLK_PROMOTED,
                IDLETIME_PROMOTION_CLASS_CHANGE);
    }
}

/* Returns false if the first one has to wait. */
static bool release_first(IdletimeBlkPart *part)
{
    IdletimePromotion cause;
    VirtIOBlockReq *req = idletime_blk_expedited(part, &cause);
    uint64_t bytes;

    if (req) {
        if (part->expedited >= idletime_resource_get(part->gate->res,
                                                     IDLETIME_MAX_INFLIGHT)) {
            return false;
        }
        idletime_blk_list_remove(part, req);
        promote(part, req, IDLETIME_BLK_EXPEDITED, cause);
        return true;
    }
    req = QSIMPLEQ_FIRST(&part->held);
    bytes = MIN(size_of(req), idletime_blk_piece_limit(part->owner->s));
    if (!idletime_gate_ask(part->gate, idletime_blk_due_since_ns(part, req),
                           bytes, &req->idletime.lease)) {
        return false;
    }
    idletime_blk_list_remove(part, req);
    release(part, req, IDLETIME_BLK_BACKGROUND);
    return true;
}

static void take_orders(IdletimeBlkPart *part)
{
    if (qatomic_xchg(&part->reclassify, false)) {
        release_reclassified(part);
    }
    idletime_blk_take_expedite(part);
}

/*
 * Called when the gate says that asking is worth it, after each completion,
 * and when the first request is held.  A request that fails at once completes
 * in here: the loop, not a recursion, goes on.
 */
void idletime_blk_pump(void *opaque)
{
    IdletimeBlkPart *part = opaque;
    bool waiting = false;

    idletime_blk_assert_thread(part);
    if (part->pumping) {
        return;
    }
    part->pumping = true;
    while (!waiting && !idletime_blk_blocked(part->owner)) {
        take_orders(part);
        if (QSIMPLEQ_EMPTY(&part->held)) {
            break;
        }
        waiting = !release_first(part);
    }
    part->pumping = false;
    if (!waiting) {
        idletime_gate_rest(part->gate);
    }
}

/* ---- in service */

void idletime_blk_begin_slow(VirtIOBlockReq *req, uint64_t bytes,
                             int64_t now_ns)
{
    const IdletimeDevice *dev = &req->dev->idletime->dev;
    unsigned queue = idletime_blk_queue(req);
    IdletimeGate *gate = idletime_queue_gate(dev, queue);

    if (req->idletime.state == IDLETIME_BLK_BACKGROUND ||
        (req->idletime.state == IDLETIME_BLK_NONE &&
         idletime_queue_class(dev, queue) == IDLETIME_CLASS_BACKGROUND) ||
        !gate->fg_ready) {
        return;
    }
    idletime_gate_begin(gate, now_ns, bytes);
    if (req->idletime.state == IDLETIME_BLK_EXPEDITED) {
        req->idletime.state = IDLETIME_BLK_EXPEDITED_FG;
        idletime_blk_part(req)->expedited++;
    } else {
        req->idletime.state = IDLETIME_BLK_FOREGROUND;
    }
}

/* ---- large requests */

/* The next piece waits before the requests that came after the first. */
static void hold_rest(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    IdletimeLease lease = req->idletime.lease;

    req->idletime.waited_ns = idletime_now_ns() - req->idletime.held_ns;
    if (!idletime_blk_join_rq(req)) {
        idletime_blk_list_prepend(part, req);
        /* Its class may have changed while the piece was in service. */
        if (idletime_blk_class(req) == IDLETIME_CLASS_FOREGROUND) {
            qatomic_set(&part->reclassify, true);
        }
    }
    idletime_gate_done(part->gate, &lease, !QSIMPLEQ_EMPTY(&part->held));
}

static void piece_done(VirtIOBlockReq *req, bool last, int ret)
{
    IdletimeBlkPart *part = idletime_blk_part(req);

    idletime_blk_assert_thread(part);
    if (last) {
        /* The lease, or the foreground's end, goes with the completion. */
        idletime_blk_pieces_free(req);
        virtio_blk_rw_complete(req, ret);
        return;
    }
    hold_rest(part, req);
    idletime_blk_pump(part);
}

bool idletime_blk_split_slow(VirtIOBlockReq *req, bool is_write)
{
    if (req->qiov.size <= idletime_blk_piece_limit(req->dev)) {
        return false;
    }
    idletime_blk_pieces_new(req, is_write, piece_done);
    issue_piece(idletime_blk_part(req), req);
    return true;
}
