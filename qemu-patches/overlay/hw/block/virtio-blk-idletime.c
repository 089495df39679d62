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
#include "qapi/error.h"
#include "qemu/iov.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "block/block_int.h"
#include "hw/virtio/virtio-access.h"
#include "hw/virtio/virtio-blk.h"
#include "hw/virtio/virtio-blk-idletime.h"
#include "system/block-backend.h"

/* Linux: ioprio class in the upper bits, idle is 3, best effort is 2. */
#define IOPRIO_CLASS_SHIFT      13
#define IOPRIO_CLASS_BE         2
#define IOPRIO_CLASS_IDLE       3
#define IOPRIO_LEVEL(v)         ((v) & 7)
/* jbd2 and xfs log writes: best effort, level 3. */
#define IOPRIO_LEVEL_JOURNAL    3
/* Held requests may take this part of a ring that foreground shares. */
#define RING_SHARE              4

typedef QSIMPLEQ_HEAD(, VirtIOBlockReq) HeldList;

/* One thread's share of a device. */
typedef struct BlkPart {
    VirtIOBlkIdletime *owner;
    IdletimeGate *gate;
    HeldList held;
    bool pumping;
    /* What released all that was held, and how often that was. */
    IdletimePromotion urge;
    unsigned urges;
    /* Orders from other threads (qatomic), carried out by part_pump(). */
    bool reclassify;
    int urged;                  /* IdletimePromotion + 1 */
} BlkPart;

struct VirtIOBlkIdletime {
    IdletimeDevice dev;
    VirtIOBlock *s;
    BlkPart *part;              /* one for each gate */
    bool parked;                /* qatomic: VM stopped, or device in reset */
    bool drained;               /* qatomic: inside a drained section */
};

/* A large request on its way. */
struct IdletimeBlkPieces {
    QEMUIOVector qiov;          /* of the piece in service */
    uint64_t done_bytes;
    uint64_t piece_bytes;
    unsigned urges;             /* of the part when it was issued */
    bool is_write;
};

static void part_pump(void *opaque);

static BlkPart *part_of(const VirtIOBlockReq *req)
{
    VirtIOBlkIdletime *it = req->dev->idletime;

    return &it->part[it->dev.queue_gate[virtio_get_queue_index(req->vq)]];
}

static IdletimeClass class_of(const VirtIOBlockReq *req)
{
    return idletime_queue_class(&req->dev->idletime->dev,
                                virtio_get_queue_index(req->vq));
}

static void stat_add(uint64_t *counter, int64_t n)
{
    qatomic_set(counter, *counter + n);
}

/* ---- classification */

/* The header as the guest wrote it, without touching the request. */
static bool peek_header(const VirtIOBlockReq *req,
                        struct virtio_blk_outhdr *header)
{
    return req->elem.out_num >= 1 && req->elem.in_num >= 1 &&
           iov_to_buf(req->elem.out_sg, req->elem.out_num, 0, header,
                      sizeof(*header)) == sizeof(*header);
}

/* Flush, get-id, zone management and what we do not know are never held. */
static bool type_is_holdable(uint32_t type)
{
    switch (type & ~VIRTIO_BLK_T_BARRIER) {
    case VIRTIO_BLK_T_IN:
    case VIRTIO_BLK_T_OUT:
    case VIRTIO_BLK_T_DISCARD:
    case VIRTIO_BLK_T_WRITE_ZEROES:
        return true;
    default:
        return false;
    }
}

/* Why held requests of the same device should not wait behind this one. */
static bool urges_held(uint32_t type, uint32_t ioprio,
                       IdletimePromotion *cause)
{
    if ((type & ~VIRTIO_BLK_T_BARRIER) == VIRTIO_BLK_T_FLUSH) {
        *cause = IDLETIME_PROMOTION_FLUSH;
        return true;
    }
    if ((ioprio >> IOPRIO_CLASS_SHIFT) == IOPRIO_CLASS_BE &&
        IOPRIO_LEVEL(ioprio) == IOPRIO_LEVEL_JOURNAL) {
        *cause = IDLETIME_PROMOTION_JOURNAL;
        return true;
    }
    return false;
}

/* ---- lists */

static void held_add(BlkPart *part, VirtIOBlockReq *req)
{
    req->idletime.state = IDLETIME_BLK_HELD;
    QSIMPLEQ_INSERT_TAIL(&part->held, req, held_next);
    stat_add(&part->gate->stats.held, 1);
}

/* The next piece goes before the requests that came after the first. */
static void held_add_first(BlkPart *part, VirtIOBlockReq *req)
{
    req->idletime.state = IDLETIME_BLK_HELD;
    QSIMPLEQ_INSERT_HEAD(&part->held, req, held_next);
    stat_add(&part->gate->stats.held, 1);
}

static void held_remove(BlkPart *part, VirtIOBlockReq *req)
{
    QSIMPLEQ_REMOVE(&part->held, req, VirtIOBlockReq, held_next);
    req->idletime.state = IDLETIME_BLK_NONE;
    stat_add(&part->gate->stats.held, -1);
}

/* Back to what was popped from the ring, and onto the device's list. */
static void join_rq(VirtIOBlockReq *req)
{
    VirtIOBlock *s = req->dev;

    if (req->idletime.pieces) {
        iov_discard_undo(&req->inhdr_undo);
        iov_discard_undo(&req->outhdr_undo);
        g_free(req->idletime.pieces);
        req->idletime.pieces = NULL;
    }
    req->idletime.state = IDLETIME_BLK_NONE;
    req->mr_next = NULL;
    WITH_QEMU_LOCK_GUARD(&s->rq_lock) {
        req->next = s->rq;
        s->rq = req;
    }
}

/* ---- release */

static void issue_piece(VirtIOBlockReq *req);

static void issue(VirtIOBlockReq *req)
{
    if (req->idletime.pieces) {
        issue_piece(req);
    } else {
        req->next = NULL;
        virtio_blk_submit_list(req);
    }
}

static void note_release(BlkPart *part, VirtIOBlockReq *req)
{
    if (!req->idletime.pieces) {
        idletime_gate_note_hold(part->gate,
                                idletime_now_ns() - req->idletime.held_ns);
    }
}

/* As foreground: something important waits behind it, or it became so. */
static void release_promoted(BlkPart *part, VirtIOBlockReq *req,
                             IdletimePromotion cause)
{
    note_release(part, req);
    idletime_gate_note_promotion(part->gate, cause);
    req->idletime.state = IDLETIME_BLK_PROMOTED;
    issue(req);
}

/* All of the list (for a class change: those whose queue is foreground). */
static void release_many(BlkPart *part, IdletimePromotion cause)
{
    HeldList ready = QSIMPLEQ_HEAD_INITIALIZER(ready);
    VirtIOBlockReq *req, *next;

    if (cause != IDLETIME_PROMOTION_CLASS_CHANGE) {
        part->urge = cause;
        part->urges++;
    }
    QSIMPLEQ_FOREACH_SAFE(req, &part->held, held_next, next) {
        if (cause != IDLETIME_PROMOTION_CLASS_CHANGE ||
            class_of(req) == IDLETIME_CLASS_FOREGROUND) {
            held_remove(part, req);
            QSIMPLEQ_INSERT_TAIL(&ready, req, held_next);
        }
    }
    while ((req = QSIMPLEQ_FIRST(&ready))) {
        QSIMPLEQ_REMOVE_HEAD(&ready, held_next);
        release_promoted(part, req, cause);
    }
}

/* For the books: the data behind the header, or before the status byte. */
static uint64_t size_of(const VirtIOBlockReq *req)
{
    uint64_t out = iov_size(req->elem.out_sg, req->elem.out_num);
    uint64_t in = iov_size(req->elem.in_sg, req->elem.in_num);

    if (req->idletime.pieces) {
        return req->qiov.size - req->idletime.pieces->done_bytes;
    }
    return MAX(out - MIN(out, sizeof(struct virtio_blk_outhdr)),
               in - MIN(in, sizeof(struct virtio_blk_inhdr)));
}

static uint64_t piece_limit(const VirtIOBlock *s)
{
    uint64_t block = s->conf.conf.logical_block_size;
    uint64_t limit = idletime_resource_get(s->idletime->dev.res,
                                           IDLETIME_MAX_REQUEST_BYTES);

    return MAX(QEMU_ALIGN_DOWN(limit, block), block);
}

static bool blocked(const VirtIOBlkIdletime *it)
{
    return qatomic_read(&it->parked) || qatomic_read(&it->drained);
}

static void follow_orders(BlkPart *part)
{
    int urged = qatomic_xchg(&part->urged, 0);

    if (qatomic_xchg(&part->reclassify, false)) {
        release_many(part, IDLETIME_PROMOTION_CLASS_CHANGE);
    }
    if (urged) {
        release_many(part, urged - 1);
    }
}

/* Returns false if the head of the list has to wait. */
static bool release_head(BlkPart *part)
{
    VirtIOBlockReq *req = QSIMPLEQ_FIRST(&part->held);
    uint64_t bytes = MIN(size_of(req), piece_limit(part->owner->s));

    if (!idletime_gate_ask(part->gate, req->idletime.held_ns, bytes,
                           &req->idletime.lease)) {
        return false;
    }
    held_remove(part, req);
    note_release(part, req);
    req->idletime.state = IDLETIME_BLK_BACKGROUND;
    issue(req);
    return true;
}

/*
 * Release what may start.  Called when the gate says that asking is worth it,
 * after each completion, and when the first request is held.  A request that
 * fails at once completes in here: the loop, not a recursion, goes on.
 */
static void part_pump(void *opaque)
{
    BlkPart *part = opaque;
    bool waiting = false;

    if (part->pumping) {
        return;
    }
    part->pumping = true;
    while (!waiting && !blocked(part->owner)) {
        follow_orders(part);
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

/* The device's other threads hold requests of the same guest, too. */
static void urge_device(VirtIOBlkIdletime *it, BlkPart *part,
                        IdletimePromotion cause)
{
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        BlkPart *other = &it->part[i];

        if (other != part && qatomic_read(&other->gate->stats.held)) {
            qatomic_set(&other->urged, cause + 1);
            idletime_gate_kick(other->gate);
        }
    }
    release_many(part, cause);
    part_pump(part);
}

/* A foreground request of a queue whose guest marks its own. */
static void pass_guest(BlkPart *part, uint32_t type, uint32_t ioprio)
{
    IdletimePromotion cause;

    if (!blocked(part->owner) && urges_held(type, ioprio, &cause)) {
        urge_device(part->owner, part, cause);
    }
}

static bool is_background(BlkPart *part, const VirtIOBlockReq *req,
                          IdletimeClass class)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(req->dev);
    struct virtio_blk_outhdr header;
    uint32_t type, ioprio;

    /* Malformed: the stock path says so to the guest. */
    if (!peek_header(req, &header)) {
        return false;
    }
    type = virtio_ldl_p(vdev, &header.type);
    ioprio = virtio_ldl_p(vdev, &header.ioprio);
    if (class == IDLETIME_CLASS_GUEST &&
        (ioprio >> IOPRIO_CLASS_SHIFT) != IOPRIO_CLASS_IDLE) {
        pass_guest(part, type, ioprio);
        return false;
    }
    if (!type_is_holdable(type)) {
        stat_add(&part->gate->stats.passed, 1);
        return false;
    }
    return true;
}

static void relieve_ring(BlkPart *part, IdletimeClass class)
{
    unsigned limit = part->owner->s->conf.queue_size / RING_SHARE;

    VirtIOBlockReq *first = QSIMPLEQ_FIRST(&part->held);

    if (class == IDLETIME_CLASS_GUEST && part->gate->stats.held > limit) {
        held_remove(part, first);
        release_promoted(part, first, IDLETIME_PROMOTION_RING);
    }
}

bool idletime_blk_hold_slow(VirtIOBlockReq *req)
{
    IdletimeClass class = class_of(req);
    BlkPart *part;
    bool first;

    /* Released ones take the stock path, through here once more. */
    if (likely(class == IDLETIME_CLASS_FOREGROUND) ||
        req->idletime.state != IDLETIME_BLK_NONE) {
        return false;
    }
    part = part_of(req);
    if (!is_background(part, req, class)) {
        return false;
    }
    if (qatomic_read(&part->owner->parked)) {
        join_rq(req);
        return true;
    }
    first = QSIMPLEQ_EMPTY(&part->held);
    req->idletime.held_ns = idletime_now_ns();
    held_add(part, req);
    if (first) {
        part_pump(part);
    } else if (!blocked(part->owner)) {
        relieve_ring(part, class);
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
    req->idletime.state = IDLETIME_BLK_FOREGROUND;
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
    BlkPart *part = part_of(req);

    idletime_gate_done(part->gate, &req->idletime.lease,
                       !QSIMPLEQ_EMPTY(&part->held));
    part_pump(part);
}

void idletime_blk_end_slow(VirtIOBlockReq *req)
{
    uint8_t state = req->idletime.state;

    req->idletime.state = IDLETIME_BLK_NONE;
    if (state == IDLETIME_BLK_FOREGROUND) {
        idletime_gate_end(part_of(req)->gate, accounted_now_ns(req));
    } else if (state == IDLETIME_BLK_BACKGROUND) {
        end_background(req);
    }
}

/* ---- large requests, in pieces */

static void pieces_finish(VirtIOBlockReq *req, int ret)
{
    g_free(req->idletime.pieces);
    req->idletime.pieces = NULL;
    virtio_blk_rw_complete(req, ret);
}

/* What became of the first on the list while its piece was in service? */
static void release_urged(BlkPart *part)
{
    VirtIOBlockReq *req = QSIMPLEQ_FIRST(&part->held);

    if (!req || !req->idletime.pieces || blocked(part->owner)) {
        return;
    }
    if (class_of(req) == IDLETIME_CLASS_FOREGROUND) {
        held_remove(part, req);
        release_promoted(part, req, IDLETIME_PROMOTION_CLASS_CHANGE);
    } else if (req->idletime.pieces->urges != part->urges) {
        held_remove(part, req);
        release_promoted(part, req, part->urge);
    }
}

static void piece_complete(void *opaque, int ret)
{
    VirtIOBlockReq *req = opaque;
    IdletimeBlkPieces *pieces = req->idletime.pieces;
    BlkPart *part = part_of(req);
    IdletimeLease lease = req->idletime.lease;
    bool leased = req->idletime.state == IDLETIME_BLK_BACKGROUND;

    qemu_iovec_destroy(&pieces->qiov);
    pieces->done_bytes += pieces->piece_bytes;
    if (ret < 0 || pieces->done_bytes == req->qiov.size) {
        /* The lease, or the foreground's end, goes with the completion. */
        pieces_finish(req, ret);
        return;
    }
    if (qatomic_read(&part->owner->parked)) {
        join_rq(req);
    } else {
        held_add_first(part, req);
    }
    if (leased) {
        idletime_gate_done(part->gate, &lease, !QSIMPLEQ_EMPTY(&part->held));
    }
    release_urged(part);
    part_pump(part);
}

static void issue_piece(VirtIOBlockReq *req)
{
    IdletimeBlkPieces *pieces = req->idletime.pieces;
    BlkPart *part = part_of(req);
    VirtIOBlock *s = req->dev;
    uint64_t left = req->qiov.size - pieces->done_bytes;
    bool whole = req->idletime.state != IDLETIME_BLK_BACKGROUND;
    int64_t offset = (req->sector_num << BDRV_SECTOR_BITS) +
                     pieces->done_bytes;
    BdrvRequestFlags flags = blk_ram_registrar_ok(&s->blk_ram_registrar) ?
                             BDRV_REQ_REGISTERED_BUF : 0;

    pieces->piece_bytes = whole ? left : MIN(left, piece_limit(s));
    pieces->urges = part->urges;
    qemu_iovec_init_slice(&pieces->qiov, &req->qiov, pieces->done_bytes,
                          pieces->piece_bytes);
    stat_add(&part->gate->stats.pieces, 1);
    if (whole) {
        idletime_blk_begin_slow(req, left, idletime_now_ns());
    }
    if (pieces->is_write) {
        blk_aio_pwritev(s->blk, offset, &pieces->qiov, flags,
                        piece_complete, req);
    } else {
        blk_aio_preadv(s->blk, offset, &pieces->qiov, flags,
                       piece_complete, req);
    }
}

bool idletime_blk_split_slow(VirtIOBlockReq *req, bool is_write)
{
    if (req->qiov.size <= piece_limit(req->dev)) {
        return false;
    }
    req->idletime.pieces = g_new0(IdletimeBlkPieces, 1);
    req->idletime.pieces->is_write = is_write;
    issue_piece(req);
    return true;
}

/* ---- life cycle */

static void each_part(VirtIOBlkIdletime *it, void (*fn)(void *part))
{
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        idletime_gate_run(it->part[i].gate, fn, &it->part[i]);
    }
}

static void part_park(void *opaque)
{
    BlkPart *part = opaque;
    VirtIOBlockReq *req;

    while ((req = QSIMPLEQ_FIRST(&part->held))) {
        held_remove(part, req);
        join_rq(req);
    }
    idletime_gate_rest(part->gate);
}

void idletime_blk_park(VirtIOBlock *s)
{
    if (s->idletime) {
        qatomic_set(&s->idletime->parked, true);
        each_part(s->idletime, part_park);
    }
}

void idletime_blk_unpark(VirtIOBlock *s)
{
    if (s->idletime) {
        qatomic_set(&s->idletime->parked, false);
    }
}

void idletime_blk_drain(VirtIOBlock *s, bool drained)
{
    if (s->idletime) {
        qatomic_set(&s->idletime->drained, drained);
        idletime_device_kick(&s->idletime->dev);
    }
}

static void blk_reclassified(IdletimeDevice *dev)
{
    VirtIOBlkIdletime *it = container_of(dev, VirtIOBlkIdletime, dev);

    for (unsigned i = 0; i < dev->num_gates; i++) {
        qatomic_set(&it->part[i].reclassify, true);
        idletime_gate_kick(dev->gate[i]);
    }
}

static const IdletimeDeviceOps blk_ops = {
    .reclassified = blk_reclassified,
};

static void parts_init(VirtIOBlkIdletime *it)
{
    it->part = g_new0(BlkPart, it->dev.num_gates);
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        it->part[i].owner = it;
        it->part[i].gate = it->dev.gate[i];
        QSIMPLEQ_INIT(&it->part[i].held);
        it->dev.gate[i]->pump = part_pump;
        it->dev.gate[i]->opaque = &it->part[i];
    }
}

static void blk_idletime_free(VirtIOBlkIdletime *it)
{
    idletime_device_cleanup(&it->dev);
    g_free(it->part);
    g_free(it);
}

bool idletime_blk_realize(VirtIOBlock *s, Error **errp)
{
    const IdletimeConf *conf = &s->conf.idletime;
    VirtIOBlkIdletime *it;

    if (!conf->resource) {
        return idletime_conf_check_unset(conf, errp);
    }
    it = g_new0(VirtIOBlkIdletime, 1);
    it->s = s;
    if (!idletime_device_init(&it->dev, DEVICE(s), conf, s->conf.num_queues,
                              s->vq_aio_context, &blk_ops, errp)) {
        g_free(it);
        return false;
    }
    parts_init(it);
    if (!idletime_device_start(&it->dev, errp)) {
        blk_idletime_free(it);
        return false;
    }
    s->idletime = it;
    return true;
}

/* As virtio_blk_reset() does with requests that nobody will complete. */
static void drop_rq(VirtIOBlock *s)
{
    WITH_QEMU_LOCK_GUARD(&s->rq_lock) {
        while (s->rq) {
            VirtIOBlockReq *req = s->rq;

            s->rq = req->next;
            virtqueue_detach_element(req->vq, &req->elem, 0);
            g_free(req);
        }
    }
}

void idletime_blk_unrealize(VirtIOBlock *s)
{
    VirtIOBlkIdletime *it = s->idletime;

    if (!it) {
        return;
    }
    idletime_blk_park(s);
    blk_drain(s->blk);
    drop_rq(s);
    s->idletime = NULL;
    blk_idletime_free(it);
}
