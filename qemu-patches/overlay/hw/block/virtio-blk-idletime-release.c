/*
 * virtio-blk: from the list of held requests into service.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   expedited       leave as foreground, max-inflight at a time
 *   the others      leave as background, when the gate gives a lease
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

/* ---- all that may leave */

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
        idletime_gate_note_promotion(part->gate, cause);
        release(part, req, IDLETIME_BLK_EXPEDITED);
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

static bool is_idle(const IdletimeBlkPart *part)
{
    return QSIMPLEQ_EMPTY(&part->held) && !part->expedited &&
           !part->gate->stats.in_service && !part->gate->fg.in_service;
}

/* Nothing begins in a device that leaves: what is idle there stays so. */
void idletime_blk_leave(IdletimeBlkPart *part)
{
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
        idletime_blk_take_orders(part);
        if (QSIMPLEQ_EMPTY(&part->held)) {
            break;
        }
        waiting = !release_first(part);
    }
    part->pumping = false;
    if (!waiting) {
        idletime_gate_rest(part->gate);
    }
    idletime_blk_leave(part);
}

/* ---- in service */

/* One that was never held: is it foreground, and does anybody listen? */
static bool is_foreground(const VirtIOBlkIdletime *it, unsigned queue,
                          const IdletimeGate *gate)
{
    return idletime_queue_class(&it->dev, queue) !=
           IDLETIME_CLASS_BACKGROUND && gate->fg_ready &&
           likely(!qatomic_read(&it->leaving));
}

static void begin_expedited(IdletimeBlkPart *part, VirtIOBlockReq *req,
                            uint64_t bytes, int64_t now_ns)
{
    part->expedited++;
    if (part->gate->fg_ready) {
        idletime_gate_begin(part->gate, now_ns, bytes);
        req->idletime.state = IDLETIME_BLK_EXPEDITED_FG;
    } else {
        req->idletime.state = IDLETIME_BLK_EXPEDITED_UNSEEN;
    }
}

void idletime_blk_begin_slow(VirtIOBlockReq *req, uint64_t bytes,
                             int64_t now_ns)
{
    const VirtIOBlkIdletime *it = qatomic_rcu_read(&req->dev->idletime);
    unsigned queue = idletime_blk_queue(req);

    if (req->idletime.state == IDLETIME_BLK_EXPEDITED) {
        begin_expedited(idletime_blk_part(req), req, bytes, now_ns);
    } else if (req->idletime.state == IDLETIME_BLK_NONE && it) {
        IdletimeGate *gate = idletime_queue_gate(&it->dev, queue);

        if (is_foreground(it, queue, gate)) {
            idletime_gate_begin(gate, now_ns, bytes);
            req->idletime.state = IDLETIME_BLK_FOREGROUND;
        }
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
