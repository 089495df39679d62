/*
 * virtio-blk: held requests that do not wait for the gate.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   flush, journal   what was held by then is expedited: a commit may wait
 *   ring             too many are held in a ring that foreground shares
 *   class change     their queue is foreground now, or the device is detached
 *
 * They leave as foreground, without a token: others must see them, and yield
 * to them.  They are max-inflight at a time: what is still to come of a commit
 * queues behind these, and neither a guest that fills a ring nor an operator
 * that changes a class makes a burst.
 *
 * Deadlines are the gate's; here is since when they are counted.
 */
#include "qemu/osdep.h"
#include "virtio-blk-idletime-impl.h"

/*
 * Class guest: a process of the same guest that is foreground may wait for a
 * lock that is kept across a held read, of metadata say, and nothing in the
 * request tells.  So the first of a list leaves after half a second in that
 * place.  That is two requests a second at most, however many are held.
 */
#define GUEST_HEAD_NS           (500 * 1000 * 1000LL)

/*
 * What the device's threads hold is of the same guest.  It leaves in their
 * next bottom half, so behind the request that is the reason: a commit block
 * would otherwise wait for all of it, and what is ordered before it is done.
 */
void idletime_blk_expedite(VirtIOBlkIdletime *it, IdletimePromotion cause)
{
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        IdletimeBlkPart *part = &it->part[i];

        if (qatomic_read(&part->gate->stats.held) ||
            qatomic_read(&part->gate->stats.in_service)) {
            qatomic_set(&part->expedite, cause + 1);
            idletime_gate_kick(part->gate);
        }
    }
}

void idletime_blk_take_orders(IdletimeBlkPart *part)
{
    int expedite = qatomic_xchg(&part->expedite, 0);

    part->reclassified |= qatomic_xchg(&part->reclassify, false);
    if (expedite) {
        part->expedite_cause = expedite - 1;
        part->expedite_number = part->holds;
    }
}

/* Of a queue that foreground shares, with too many held; NULL: none. */
static VirtIOBlockReq *first_of_full_ring(const IdletimeBlkPart *part)
{
    const VirtIOBlkIdletime *it = part->owner;
    unsigned limit = idletime_blk_ring_limit(it);
    VirtIOBlockReq *req;

    QSIMPLEQ_FOREACH(req, &part->held, held_next) {
        if (it->queue_held[idletime_blk_queue(req)] > limit &&
            idletime_blk_class(req) == IDLETIME_CLASS_GUEST) {
            return req;
        }
    }
    return NULL;
}

/* On a background device all may be held: then nobody looks for rings. */
static bool ring_is_full(const IdletimeBlkPart *part)
{
    const IdletimeDevice *dev = &part->owner->dev;
    unsigned limit = idletime_blk_ring_limit(part->owner);

    for (unsigned i = 0; part->full_queues && i < dev->num_queues; i++) {
        if (dev->gate[dev->queue_gate[i]] == part->gate &&
            part->owner->queue_held[i] > limit &&
            idletime_queue_class(dev, i) == IDLETIME_CLASS_GUEST) {
            return true;
        }
    }
    return false;
}

/* Of those whose queue is foreground now; NULL: none. */
static VirtIOBlockReq *first_reclassified(IdletimeBlkPart *part)
{
    VirtIOBlockReq *req;

    if (part->reclassified) {
        QSIMPLEQ_FOREACH(req, &part->held, held_next) {
            if (idletime_blk_class(req) == IDLETIME_CLASS_FOREGROUND) {
                return req;
            }
        }
        part->reclassified = false;
    }
    return NULL;
}

VirtIOBlockReq *idletime_blk_expedited(IdletimeBlkPart *part,
                                       IdletimePromotion *cause)
{
    VirtIOBlockReq *head = QSIMPLEQ_FIRST(&part->held);
    VirtIOBlockReq *req = first_reclassified(part);

    if (req) {
        *cause = IDLETIME_PROMOTION_CLASS_CHANGE;
        return req;
    }
    if (head && head->idletime.number <= part->expedite_number) {
        *cause = part->expedite_cause;
        return head;
    }
    *cause = IDLETIME_PROMOTION_RING;
    return ring_is_full(part) ? first_of_full_ring(part) : NULL;
}

int64_t idletime_blk_due_since_ns(IdletimeBlkPart *part,
                                  const VirtIOBlockReq *req)
{
    int64_t max_hold_ns = idletime_resource_get(part->gate->res,
                                                IDLETIME_MAX_HOLD_MS) *
                          SCALE_MS;

    if (part->head != req) {
        part->head = req;
        part->head_since_ns = idletime_now_ns();
    }
    if (!max_hold_ns || idletime_blk_class(req) != IDLETIME_CLASS_GUEST) {
        return req->idletime.held_ns;
    }
    return MIN(req->idletime.held_ns,
               part->head_since_ns + GUEST_HEAD_NS - max_hold_ns);
}
