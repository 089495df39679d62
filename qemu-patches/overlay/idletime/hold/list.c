/*
 * Idletime hold: the list of held requests, and those of a stopped VM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "hold-impl.h"
#include "idletime/device/trace.h"

/* What is held may take this part of a ring that foreground shares. */
#define RING_SHARE      4

/* One more (1) or one fewer (-1) of the queue of @req. */
static void count_held(IdletimeHoldPart *part, const IdletimeReq *req, int n)
{
    IdletimeHolder *hold = part->owner;
    IdletimeHoldRing *ring = &hold->ring[req->queue];
    bool was_full;

    if (!ring->held) {
        ring->limit = hold->ops->ring_places(hold, req->queue) / RING_SHARE;
    }
    was_full = ring->held > ring->limit;
    ring->held += n;
    part->full_queues += (ring->held > ring->limit) - was_full;
    idletime_stat_add(&part->gate->stats.held, n);
}

/*
 * Restarted at cont in whichever order, they are in that of their holds.  Those
 * of one queue come in that order: the place of the next one is looked for
 * behind the one before, so that each queue walks the list once.
 */
static void insert_by_number(IdletimeHoldPart *part, IdletimeReq *req)
{
    IdletimeReq *other = part->reheld;

    if (!other || other->number > req->number) {
        other = QTAILQ_FIRST(&part->held);
    }
    while (other && other->number <= req->number) {
        other = QTAILQ_NEXT(other, next);
    }
    if (other) {
        QTAILQ_INSERT_BEFORE(other, req, next);
    } else {
        QTAILQ_INSERT_TAIL(&part->held, req, next);
    }
    part->reheld = req;
}

void idletime_hold_list_append(IdletimeHoldPart *part, IdletimeReq *req)
{
    idletime_hold_assert_thread(part);
    /* It goes on waiting where a stop interrupted it. */
    req->held_ns = idletime_now_ns() - req->waited_ns;
    req->state = IDLETIME_REQ_HELD;
    if (req->number && req->number <= part->holds) {
        insert_by_number(part, req);
    } else {
        req->number = ++part->holds;
        QTAILQ_INSERT_TAIL(&part->held, req, next);
    }
    count_held(part, req, 1);
}

void idletime_hold_list_prepend(IdletimeHoldPart *part, IdletimeReq *req)
{
    idletime_hold_assert_thread(part);
    req->state = IDLETIME_REQ_HELD;
    QTAILQ_INSERT_HEAD(&part->held, req, next);
    count_held(part, req, 1);
}

void idletime_hold_list_remove(IdletimeHoldPart *part, IdletimeReq *req)
{
    idletime_hold_assert_thread(part);
    QTAILQ_REMOVE(&part->held, req, next);
    req->state = IDLETIME_REQ_NONE;
    count_held(part, req, -1);
    if (part->head == req) {
        part->head = NULL;
    }
    if (part->reheld == req) {
        part->reheld = NULL;
    }
}

IdletimeAside idletime_hold_set_aside(IdletimeHolder *hold, IdletimeReq *req)
{
    idletime_hold_assert_thread(idletime_hold_part(hold, req->queue));
    QEMU_LOCK_GUARD(hold->park_lock);
    if (!hold->parked) {
        return IDLETIME_ASIDE_NO;
    }
    trace_idletime_device_aside(req);
    if (!hold->ops->park(hold, req)) {
        return IDLETIME_ASIDE_START;
    }
    req->pieces = NULL;
    req->state = IDLETIME_REQ_NONE;
    return IDLETIME_ASIDE_DONE;
}
