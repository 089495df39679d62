/*
 * virtio-blk: held requests that leave before their turn, as foreground.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   flush, journal   what was held by then is urged: a commit may wait for it
 *   ring             too many are held in a ring that foreground shares
 *   class change     they are foreground now
 *
 * They take no token: others must see them, and yield to them.  Deadlines are
 * the gate's; here is since when they are counted.
 */
#include "qemu/osdep.h"
#include "virtio-blk-idletime-impl.h"

/* Held requests may take this part of a ring that foreground shares. */
#define RING_SHARE              4

/*
 * Class guest: a process of the same guest that is foreground may wait for a
 * lock that is kept across a held read, of metadata say, and nothing in the
 * request tells.  So the first of a list leaves after half a second in that
 * place.  That is two requests a second at most, however many are held.
 */
#define GUEST_HEAD_NS           (500 * 1000 * 1000LL)

void idletime_blk_promote(IdletimeBlkPart *part, VirtIOBlockReq *req,
                          IdletimePromotion cause)
{
    bool urged = cause == IDLETIME_PROMOTION_FLUSH ||
                 cause == IDLETIME_PROMOTION_JOURNAL;

    idletime_gate_note_promotion(part->gate, cause);
    idletime_blk_release(part, req, urged ? IDLETIME_BLK_URGED :
                                            IDLETIME_BLK_PROMOTED);
}

/* Those whose queue is foreground now. */
static void release_reclassified(IdletimeBlkPart *part)
{
    IdletimeHeldList ready = QSIMPLEQ_HEAD_INITIALIZER(ready);
    VirtIOBlockReq *req, *next;

    QSIMPLEQ_FOREACH_SAFE(req, &part->held, held_next, next) {
        if (idletime_blk_class(req) == IDLETIME_CLASS_FOREGROUND) {
            idletime_blk_held_remove(part, req);
            QSIMPLEQ_INSERT_TAIL(&ready, req, held_next);
        }
    }
    while ((req = QSIMPLEQ_FIRST(&ready))) {
        QSIMPLEQ_REMOVE_HEAD(&ready, held_next);
        idletime_blk_promote(part, req, IDLETIME_PROMOTION_CLASS_CHANGE);
    }
}

void idletime_blk_follow_orders(IdletimeBlkPart *part)
{
    int urged = qatomic_xchg(&part->urged, 0);

    if (qatomic_xchg(&part->reclassify, false)) {
        release_reclassified(part);
    }
    if (urged) {
        part->urge = urged - 1;
        part->urged_number = part->holds;
    }
}

/*
 * Urged ones need no leave of the gate, but are no more at a time than the
 * resource serves: what is still to come of a commit queues behind these.
 */
bool idletime_blk_release_urged(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    IdletimeRule rule = idletime_resource_rule(part->owner->dev.res);

    if (part->urgent >= rule.max_inflight) {
        return false;
    }
    idletime_blk_held_remove(part, req);
    idletime_blk_promote(part, req, part->urge);
    return true;
}

/*
 * What the device's threads hold is of the same guest.  It leaves in their
 * next bottom half, so behind the request that urges: a commit block would
 * otherwise wait for all of it, and what is ordered before it is done already.
 */
void idletime_blk_urge(VirtIOBlkIdletime *it, IdletimePromotion cause)
{
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        IdletimeBlkPart *part = &it->part[i];

        if (qatomic_read(&part->gate->stats.held) ||
            qatomic_read(&part->gate->stats.in_service)) {
            qatomic_set(&part->urged, cause + 1);
            idletime_gate_kick(part->gate);
        }
    }
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

void idletime_blk_relieve_ring(IdletimeBlkPart *part)
{
    unsigned limit = part->owner->s->conf.queue_size / RING_SHARE;
    VirtIOBlockReq *first = QSIMPLEQ_FIRST(&part->held);

    if (part->gate->stats.held > limit) {
        idletime_blk_held_remove(part, first);
        idletime_blk_promote(part, first, IDLETIME_PROMOTION_RING);
    }
}
