/*
 * virtio-blk: hold background requests in the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   ring --pop--> hold?  --no----------------------------> stock path
 *                   |                                          ^
 *                  yes --> held list --gate says start--> release
 *                              ^                               |
 *                              +---- next piece of a large one-+
 *
 * A held request is raw: popped, its header looked at, nothing else.  When it
 * is released it takes the stock path from the beginning, so that it is
 * checked, accounted, merged and failed as any other.  While it is held it is
 * no request of the block layer, so a drain does not wait for it.
 *
 * There is one list for each thread that serves the device.  It belongs to
 * that thread (with no iothread: to the holder of the BQL), so there is no
 * lock; others reach it by a bottom half.
 */
#include "qemu/osdep.h"
#include "system/block-backend.h"
#include "trace.h"
#include "virtio-blk-idletime-impl.h"

/* ---- a request comes */

/* Returns true if the request has to wait for its turn. */
static bool judge(IdletimeBlkPart *part, const VirtIOBlockReq *req,
                  IdletimeClass class)
{
    IdletimePromotion cause = IDLETIME_PROMOTION_FLUSH;

    switch (idletime_blk_classify(req, class, &cause)) {
    case IDLETIME_BLK_HOLD:
        return true;
    case IDLETIME_BLK_PASS:
        idletime_stat_add(&part->gate->stats.passed, 1);
        return false;
    case IDLETIME_BLK_EXPEDITE:
        if (!idletime_blk_blocked(part->owner)) {
            idletime_blk_expedite(part->owner, cause);
        }
        return false;
    default:
        return false;
    }
}

bool idletime_blk_hold_slow(VirtIOBlockReq *req)
{
    /* NULL: detached since the caller looked. */
    VirtIOBlkIdletime *it = qatomic_rcu_read(&req->dev->idletime);
    IdletimeClass class = it ? idletime_queue_class(&it->dev,
                                                    idletime_blk_queue(req)) :
                               IDLETIME_CLASS_FOREGROUND;
    IdletimePromotion cause;
    IdletimeBlkPart *part;
    bool first;

    /* Released ones take the stock path, through here once more. */
    if (likely(class == IDLETIME_CLASS_FOREGROUND) ||
        req->idletime.state != IDLETIME_BLK_NONE) {
        return false;
    }
    part = idletime_blk_part(req);
    idletime_blk_assert_thread(part);
    if (!judge(part, req, class)) {
        return false;
    }
    trace_virtio_blk_idletime_hold(VIRTIO_DEVICE(req->dev), req,
                                   idletime_blk_queue(req));
    if (idletime_blk_join_rq(req)) {
        return true;
    }
    first = QSIMPLEQ_EMPTY(&part->held);
    idletime_blk_list_append(part, req);
    if (first || idletime_blk_expedited(part, &cause)) {
        idletime_blk_pump(part);
    }
    return true;
}

/* ---- a request ends */

static void end_background(VirtIOBlockReq *req)
{
    IdletimeBlkPart *part = idletime_blk_part(req);

    idletime_blk_assert_thread(part);
    idletime_gate_done(part->gate, &req->idletime.lease,
                       !QSIMPLEQ_EMPTY(&part->held));
    idletime_blk_pump(part);
}

static void end_foreground(VirtIOBlockReq *req, int64_t now_ns)
{
    IdletimeBlkPart *part = idletime_blk_part(req);

    idletime_gate_end(part->gate, now_ns);
    if (unlikely(qatomic_read(&part->owner->leaving))) {
        idletime_blk_leave(part);
    }
}

static void end_expedited(VirtIOBlockReq *req, bool seen, int64_t now_ns)
{
    IdletimeBlkPart *part = idletime_blk_part(req);

    idletime_blk_assert_thread(part);
    if (seen) {
        idletime_gate_end(part->gate, now_ns);
    }
    part->expedited--;
    idletime_blk_pump(part);
}

void idletime_blk_end_slow(VirtIOBlockReq *req, int64_t now_ns)
{
    uint8_t state = req->idletime.state;

    req->idletime.state = IDLETIME_BLK_NONE;
    if (state == IDLETIME_BLK_FOREGROUND) {
        end_foreground(req, now_ns);
    } else if (state == IDLETIME_BLK_EXPEDITED_FG ||
               state == IDLETIME_BLK_EXPEDITED_UNSEEN) {
        end_expedited(req, state == IDLETIME_BLK_EXPEDITED_FG, now_ns);
    } else if (state == IDLETIME_BLK_BACKGROUND) {
        end_background(req);
    }
}
