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
#include "qemu/iov.h"
#include "system/block-backend.h"
#include "virtio-blk-idletime-impl.h"

/* ---- lists */

static void held_add(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    req->idletime.state = IDLETIME_BLK_HELD;
    QSIMPLEQ_INSERT_TAIL(&part->held, req, held_next);
    idletime_stat_add(&part->gate->stats.held, 1);
}

/* The next piece goes before the requests that came after the first. */
void idletime_blk_held_first(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    req->idletime.state = IDLETIME_BLK_HELD;
    QSIMPLEQ_INSERT_HEAD(&part->held, req, held_next);
    idletime_stat_add(&part->gate->stats.held, 1);
}

void idletime_blk_held_remove(IdletimeBlkPart *part, VirtIOBlockReq *req)
{
    QSIMPLEQ_REMOVE(&part->held, req, VirtIOBlockReq, held_next);
    req->idletime.state = IDLETIME_BLK_NONE;
    idletime_stat_add(&part->gate->stats.held, -1);
    if (part->head == req) {
        part->head = NULL;
    }
}

/* ---- release */

static void issue(VirtIOBlockReq *req)
{
    if (req->idletime.pieces) {
        idletime_blk_issue_piece(req);
    } else {
        req->next = NULL;
        virtio_blk_submit_list(req);
    }
}

void idletime_blk_release(IdletimeBlkPart *part, VirtIOBlockReq *req,
                          IdletimeBlkState state)
{
    if (!req->idletime.pieces) {
        idletime_gate_note_hold(part->gate,
                                idletime_now_ns() - req->idletime.held_ns);
    }
    req->idletime.state = state;
    issue(req);
}

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

/* Returns false if the head of the list has to wait. */
static bool release_head(IdletimeBlkPart *part)
{
    VirtIOBlockReq *req = QSIMPLEQ_FIRST(&part->held);
    uint64_t limit = idletime_blk_piece_limit(part->owner->s);
    uint64_t bytes = MIN(size_of(req), limit);

    if (req->idletime.number <= part->urged_number) {
        return idletime_blk_release_urged(part, req);
    }
    if (!idletime_gate_ask(part->gate, idletime_blk_due_since_ns(part, req),
                           bytes, &req->idletime.lease)) {
        return false;
    }
    idletime_blk_held_remove(part, req);
    idletime_blk_release(part, req, IDLETIME_BLK_BACKGROUND);
    return true;
}

/*
 * Release what may start.  Called when the gate says that asking is worth it,
 * after each completion, and when the first request is held.  A request that
 * fails at once completes in here: the loop, not a recursion, goes on.
 */
void idletime_blk_pump(void *opaque)
{
    IdletimeBlkPart *part = opaque;
    bool waiting = false;

    if (part->pumping) {
        return;
    }
    part->pumping = true;
    while (!waiting && !idletime_blk_blocked(part->owner)) {
        idletime_blk_follow_orders(part);
        if (QSIMPLEQ_EMPTY(&part->held)) {
            break;
        }
        waiting = !release_head(part);
    }
    part->pumping = false;
    if (!waiting) {
        idletime_gate_rest(part->gate);
    }
}

/* ---- hold */

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
    case IDLETIME_BLK_URGE:
        if (!idletime_blk_blocked(part->owner)) {
            idletime_blk_urge(part->owner, cause);
        }
        return false;
    default:
        return false;
    }
}

bool idletime_blk_hold_slow(VirtIOBlockReq *req)
{
    IdletimeClass class = idletime_blk_class(req);
    IdletimeBlkPart *part;
    bool first;

    /* Released ones take the stock path, through here once more. */
    if (likely(class == IDLETIME_CLASS_FOREGROUND) ||
        req->idletime.state != IDLETIME_BLK_NONE) {
        return false;
    }
    part = idletime_blk_part(req);
    if (!judge(part, req, class)) {
        return false;
    }
    if (qatomic_read(&part->owner->parked)) {
        idletime_blk_join_rq(req);
        return true;
    }
    first = QSIMPLEQ_EMPTY(&part->held);
    /* It goes on waiting where a stop interrupted it. */
    req->idletime.held_ns = idletime_now_ns() - req->idletime.waited_ns;
    req->idletime.number = ++part->holds;
    held_add(part, req);
    if (first) {
        idletime_blk_pump(part);
    } else if (class == IDLETIME_CLASS_GUEST &&
               !idletime_blk_blocked(part->owner)) {
        idletime_blk_relieve_ring(part);
    }
    return true;
}

/* ---- in service */

void idletime_blk_begin_slow(VirtIOBlockReq *req, uint64_t bytes,
                             int64_t now_ns)
{
    const IdletimeDevice *dev = &req->dev->idletime->dev;
    unsigned queue = virtio_get_queue_index(req->vq);
    IdletimeGate *gate = idletime_queue_gate(dev, queue);

    if (req->idletime.state == IDLETIME_BLK_BACKGROUND ||
        (req->idletime.state == IDLETIME_BLK_NONE &&
         idletime_queue_class(dev, queue) == IDLETIME_CLASS_BACKGROUND) ||
        !gate->fg_ready) {
        return;
    }
    idletime_gate_begin(gate, now_ns, bytes);
    if (req->idletime.state == IDLETIME_BLK_URGED) {
        req->idletime.state = IDLETIME_BLK_URGENT;
        idletime_blk_part(req)->urgent++;
    } else {
        req->idletime.state = IDLETIME_BLK_FOREGROUND;
    }
    req->idletime.held_ns = now_ns;
}

/*
 * Block accounting has just read the clock for this request, unless it does
 * not account it (discards; failures if so configured).
 */
static int64_t accounted_now_ns(const VirtIOBlockReq *req)
{
    int64_t now_ns = blk_get_stats(req->dev->blk)->last_access_time_ns;

    return now_ns > req->idletime.held_ns ? now_ns : idletime_now_ns();
}

static void end_background(VirtIOBlockReq *req)
{
    IdletimeBlkPart *part = idletime_blk_part(req);

    idletime_gate_done(part->gate, &req->idletime.lease,
                       !QSIMPLEQ_EMPTY(&part->held));
    idletime_blk_pump(part);
}

static void end_urgent(VirtIOBlockReq *req)
{
    IdletimeBlkPart *part = idletime_blk_part(req);

    idletime_gate_end(part->gate, accounted_now_ns(req));
    part->urgent--;
    idletime_blk_pump(part);
}

void idletime_blk_end_slow(VirtIOBlockReq *req)
{
    uint8_t state = req->idletime.state;

    req->idletime.state = IDLETIME_BLK_NONE;
    if (state == IDLETIME_BLK_FOREGROUND) {
        idletime_gate_end(idletime_blk_part(req)->gate, accounted_now_ns(req));
    } else if (state == IDLETIME_BLK_URGENT) {
        end_urgent(req);
    } else if (state == IDLETIME_BLK_BACKGROUND) {
        end_background(req);
    }
}
