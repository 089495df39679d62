/*
 * Idletime hold: held requests that do not wait for the gate.
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
#include "hold-impl.h"

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
void idletime_hold_expedite(IdletimeHoldPart *part, IdletimePromotion cause)
{
    IdletimeHolder *hold = part->owner;

    idletime_hold_assert_thread(part);
    for (unsigned i = 0; i < hold->dev.num_gates; i++) {
        IdletimeHoldPart *each = &hold->part[i];

        if (qatomic_read(&each->gate->stats.held) ||
            qatomic_read(&each->gate->stats.in_service)) {
            qatomic_set(&each->expedite, cause + 1);
            idletime_gate_kick(each->gate);
        }
    }
}

void idletime_hold_take_orders(IdletimeHoldPart *part)
{
    int expedite = qatomic_xchg(&part->expedite, 0);

    idletime_hold_assert_thread(part);
    part->reclassified |= qatomic_xchg(&part->reclassify, false);
    if (expedite) {
        part->expedite_cause = expedite - 1;
        part->expedite_number = part->holds;
    }
}

static bool has_too_many(const IdletimeHolder *hold, unsigned queue)
{
    return hold->ring[queue].held > hold->ring[queue].limit;
}

/* Of a queue that foreground shares, with too many held; NULL: none. */
static IdletimeReq *first_of_full_ring(const IdletimeHoldPart *part)
{
    const IdletimeHolder *hold = part->owner;
    IdletimeReq *req;

    QTAILQ_FOREACH(req, &part->held, next) {
        if (has_too_many(hold, req->queue) &&
            idletime_hold_class(hold, req) == IDLETIME_CLASS_GUEST) {
            return req;
        }
    }
    return NULL;
}

/* On a background device all may be held: then nobody looks for rings. */
static bool ring_is_full(const IdletimeHoldPart *part)
{
    const IdletimeDevice *dev = &part->owner->dev;

    for (unsigned i = 0; part->full_queues && i < dev->num_queues; i++) {
        if (dev->gate[dev->queue_gate[i]] == part->gate &&
            has_too_many(part->owner, i) &&
            idletime_queue_class(dev, i) == IDLETIME_CLASS_GUEST) {
            return true;
        }
    }
    return false;
}

/* Of those whose queue is foreground now; NULL: none. */
static IdletimeReq *first_reclassified(IdletimeHoldPart *part)
{
    IdletimeReq *req;

    if (part->reclassified) {
        QTAILQ_FOREACH(req, &part->held, next) {
            if (idletime_hold_class(part->owner, req) ==
                IDLETIME_CLASS_FOREGROUND) {
                return req;
            }
        }
        part->reclassified = false;
    }
    return NULL;
}

IdletimeReq *idletime_hold_expedited(IdletimeHoldPart *part,
                                     IdletimePromotion *cause)
{
    IdletimeReq *head = QTAILQ_FIRST(&part->held);
    IdletimeReq *req;

    idletime_hold_assert_thread(part);
    req = first_reclassified(part);
    if (req) {
        *cause = IDLETIME_PROMOTION_CLASS_CHANGE;
        return req;
    }
    if (head && head->number <= part->expedite_number) {
        *cause = part->expedite_cause;
        return head;
    }
    *cause = IDLETIME_PROMOTION_RING;
    return ring_is_full(part) ? first_of_full_ring(part) : NULL;
}

int64_t idletime_hold_due_since_ns(IdletimeHoldPart *part,
                                   const IdletimeReq *req)
{
    int64_t max_hold_ns = idletime_resource_get(part->gate->res,
                                                IDLETIME_MAX_HOLD_MS) *
                          SCALE_MS;

    idletime_hold_assert_thread(part);
    if (part->head != req) {
        part->head = req;
        part->head_since_ns = idletime_now_ns();
    }
    if (!max_hold_ns ||
        idletime_hold_class(part->owner, req) != IDLETIME_CLASS_GUEST) {
        return req->held_ns;
    }
    return MIN(req->held_ns,
               part->head_since_ns + GUEST_HEAD_NS - max_hold_ns);
}
