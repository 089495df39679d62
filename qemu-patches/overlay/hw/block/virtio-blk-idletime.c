/*
 * virtio-blk: hold background requests in the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A held request is raw: popped, its header looked at, nothing else.  When it
 * is released it takes the stock path from the beginning, so that it is
 * checked, accounted, merged and failed as any other.
 *
 * Stopped, reset or migrated, a held request is one of s->rq: popped and not
 * completed, which the stock code knows how to keep, send, restart and drop.
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "system/block-backend.h"
#include "trace.h"
#include "virtio-blk-idletime-impl.h"

/* NULL: detached since the caller looked, or nothing of ours. */
static IdletimeHolder *holder_of(const VirtIOBlockReq *req)
{
    IdletimeHolder *hold = qatomic_rcu_read(&req->dev->idletime);

    return hold && idletime_hold_served(hold, idletime_blk_queue(req)) ?
           hold : NULL;
}

/* ---- a request comes */

bool idletime_blk_hold_slow(VirtIOBlockReq *req)
{
    IdletimeHolder *hold = holder_of(req);
    unsigned queue = idletime_blk_queue(req);
    IdletimeClass class = hold ? idletime_queue_class(&hold->dev, queue) :
                                 IDLETIME_CLASS_FOREGROUND;
    IdletimePromotion cause = IDLETIME_PROMOTION_FLUSH;
    IdletimeHoldVerdict verdict;

    /* Released ones take the stock path, through here once more. */
    if (likely(class == IDLETIME_CLASS_FOREGROUND) ||
        req->idletime.state != IDLETIME_REQ_NONE) {
        return false;
    }
    verdict = idletime_blk_classify(req, class, &cause);
    if (!idletime_hold_judge(hold, queue, verdict, cause)) {
        return false;
    }
    trace_virtio_blk_idletime_hold(VIRTIO_DEVICE(req->dev), req, queue);
    return idletime_hold_put(hold, &req->idletime, queue);
}

/* ---- it leaves */

/* For the books: the data behind the header, or before the status byte. */
uint64_t idletime_blk_size(const IdletimeHolder *hold, const IdletimeReq *held)
{
    const VirtIOBlockReq *req = idletime_blk_req(held);
    uint64_t out = iov_size(req->elem.out_sg, req->elem.out_num);
    uint64_t in = iov_size(req->elem.in_sg, req->elem.in_num);

    return MAX(out - MIN(out, sizeof(struct virtio_blk_outhdr)),
               in - MIN(in, sizeof(struct virtio_blk_inhdr)));
}

void idletime_blk_issue(IdletimeHolder *hold, IdletimeReq *held)
{
    VirtIOBlockReq *req = idletime_blk_req(held);

    req->next = NULL;
    virtio_blk_submit_list(req);
}

/* Onto s->rq, as it was popped.  Context: rq_lock held. */
bool idletime_blk_join_rq(IdletimeHolder *hold, IdletimeReq *held)
{
    VirtIOBlockReq *req = idletime_blk_req(held);

    idletime_blk_pieces_forget(req);
    req->mr_next = NULL;
    req->next = req->dev->rq;
    req->dev->rq = req;
    return true;
}

/* ---- in service */

void idletime_blk_begin_slow(VirtIOBlockReq *req, uint64_t bytes,
                             int64_t now_ns)
{
    IdletimeHolder *hold = req->idletime.state == IDLETIME_REQ_NONE ?
                           holder_of(req) :
                           qatomic_rcu_read(&req->dev->idletime);

    idletime_hold_begin(hold, &req->idletime, idletime_blk_queue(req), bytes,
                        now_ns);
}

void idletime_blk_end_slow(VirtIOBlockReq *req, int64_t now_ns)
{
    idletime_hold_end(req->dev->idletime, &req->idletime, now_ns);
}
