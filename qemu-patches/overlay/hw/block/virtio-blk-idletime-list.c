/*
 * virtio-blk: the list of held requests, and the one of a stopped VM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Stopped, reset or migrated, a held request is one of s->rq: popped and not
 * completed, which the stock code knows how to keep, send, restart and drop.
 */
#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "virtio-blk-idletime-impl.h"

/* Held requests may take this part of a ring that foreground shares. */
#define RING_SHARE              4

unsigned idletime_blk_ring_limit(const VirtIOBlkIdletime *it)
{
    return it->s->conf.queue_size / RING_SHARE;
}

/* One more (1) or one fewer (-1) of the queue of @req. */
static void count_held(IdletimeBlkPart *part, const VirtIOBlockReq *req, int n)
{
    unsigned *held = &part->owner->queue_held[idletime_blk_queue(req)];
    unsigned limit = idletime_blk_ring_limit(part->owner);
    bool was_full = *held > limit;

    *held += n;
    part->full_queues += (*held > limit) - was_full;
    idletime_stat_add(&part->gate->stats.held, n);
}

void idletime_blk_list_append(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    /* It goes on waiting where a stop interrupted it. */
    req->idletime.held_ns = idletime_now_ns() - req->idletime.waited_ns;
    req->idletime.number = ++part->holds;
    req->idletime.state = IDLETIME_BLK_HELD;
    QSIMPLEQ_INSERT_TAIL(&part->held, req, held_next);
    count_held(part, req, 1);
}

void idletime_blk_list_prepend(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    req->idletime.state = IDLETIME_BLK_HELD;
    QSIMPLEQ_INSERT_HEAD(&part->held, req, held_next);
    count_held(part, req, 1);
}

void idletime_blk_list_remove(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    QSIMPLEQ_REMOVE(&part->held, req, VirtIOBlockReq, held_next);
    req->idletime.state = IDLETIME_BLK_NONE;
    count_held(part, req, -1);
    if (part->head == req) {
        part->head = NULL;
    }
}

bool idletime_blk_join_rq(VirtIOBlockReq *req)
{
    VirtIOBlock *s = req->dev;

    QEMU_LOCK_GUARD(&s->rq_lock);
    if (!s->idletime->parked) {
        return false;
    }
    idletime_blk_pieces_forget(req);
    req->idletime.state = IDLETIME_BLK_NONE;
    req->mr_next = NULL;
    req->next = s->rq;
    s->rq = req;
    return true;
}
