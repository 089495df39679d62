/*
 * virtio-blk: what the files of its background hold share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   virtio-blk-idletime.c         hold, release, in service
 *   virtio-blk-idletime-promote.c what leaves before its turn
 *   virtio-blk-idletime-class.c   what a request's header says
 *   virtio-blk-idletime-pieces.c  large requests, a piece at a time
 *   virtio-blk-idletime-life.c    realize, park, drain, unrealize
 *
 * Context: everything here belongs to the AioContext of the part's gate,
 * unless said otherwise.
 */
#ifndef VIRTIO_BLK_IDLETIME_IMPL_H
#define VIRTIO_BLK_IDLETIME_IMPL_H

#include "hw/virtio/virtio-blk.h"
#include "hw/virtio/virtio-blk-idletime.h"

typedef QSIMPLEQ_HEAD(, VirtIOBlockReq) IdletimeHeldList;

/* One thread's share of a device. */
typedef struct IdletimeBlkPart {
    VirtIOBlkIdletime *owner;
    IdletimeGate *gate;
    IdletimeHeldList held;
    const VirtIOBlockReq *head; /* the first that was asked for; not owned */
    int64_t head_since_ns;
    bool pumping;
    uint64_t holds;             /* so many were ever held */
    /* Requests up to this number are urged, for that reason. */
    uint64_t urged_number;
    IdletimePromotion urge;
    uint32_t urgent;            /* of these, in service now */
    /* Orders from other threads (qatomic), for idletime_blk_pump(). */
    bool reclassify;
    int urged;                  /* IdletimePromotion + 1 */
} IdletimeBlkPart;

struct VirtIOBlkIdletime {
    IdletimeDevice dev;
    VirtIOBlock *s;
    IdletimeBlkPart *part;              /* one for each gate */
    bool parked;                /* qatomic: VM stopped, or device in reset */
    bool drained;               /* qatomic: inside a drained section */
    int64_t drained_since_ns;   /* BQL */
};

static inline IdletimeBlkPart *idletime_blk_part(const VirtIOBlockReq *req)
{
    VirtIOBlkIdletime *it = req->dev->idletime;

    return &it->part[it->dev.queue_gate[virtio_get_queue_index(req->vq)]];
}

static inline IdletimeClass idletime_blk_class(const VirtIOBlockReq *req)
{
    return idletime_queue_class(&req->dev->idletime->dev,
                                virtio_get_queue_index(req->vq));
}

/* No releases now.  Context: any thread. */
static inline bool idletime_blk_blocked(const VirtIOBlkIdletime *it)
{
    return qatomic_read(&it->parked) || qatomic_read(&it->drained);
}

/* ---- virtio-blk-idletime-class.c */

/* What to do with a request of a queue that is not all foreground. */
typedef enum IdletimeBlkVerdict {
    IDLETIME_BLK_STOCK,         /* foreground, or malformed */
    IDLETIME_BLK_URGE,          /* foreground, and held ones must not wait */
    IDLETIME_BLK_PASS,          /* background, of a kind that is never held */
    IDLETIME_BLK_HOLD,
} IdletimeBlkVerdict;

/**
 * idletime_blk_classify: from the header as the guest wrote it.
 * @class: of the queue, not foreground
 * @cause: set with IDLETIME_BLK_URGE
 * Changes nothing.
 */
IdletimeBlkVerdict idletime_blk_classify(const VirtIOBlockReq *req,
                                         IdletimeClass class,
                                         IdletimePromotion *cause);

/* ---- virtio-blk-idletime.c */

/** idletime_blk_pump: release what may start.  @opaque: IdletimeBlkPart */
void idletime_blk_pump(void *opaque);

/** idletime_blk_held_first: hold @req before all others: its next piece. */
void idletime_blk_held_first(IdletimeBlkPart *part, VirtIOBlockReq *req);
/** idletime_blk_held_remove: from the list; the caller issues it. */
void idletime_blk_held_remove(IdletimeBlkPart *part, VirtIOBlockReq *req);

/** idletime_blk_release: issue @req, not on a list, in @state. */
void idletime_blk_release(IdletimeBlkPart *part, VirtIOBlockReq *req,
                          IdletimeBlkState state);

/* ---- virtio-blk-idletime-promote.c */

/** idletime_blk_promote: issue @req, not on a list, as foreground. */
void idletime_blk_promote(IdletimeBlkPart *part, VirtIOBlockReq *req,
                          IdletimePromotion cause);
/** idletime_blk_urge: all that the device holds.  Context: any of its parts */
void idletime_blk_urge(VirtIOBlkIdletime *it, IdletimePromotion cause);
/** idletime_blk_follow_orders: of other threads, and of idletime_blk_urge() */
void idletime_blk_follow_orders(IdletimeBlkPart *part);
/** idletime_blk_release_urged: the head of the list; false: it has to wait. */
bool idletime_blk_release_urged(IdletimeBlkPart *part, VirtIOBlockReq *req);
/** idletime_blk_due_since_ns: for the head; its max-hold-ms begins then. */
int64_t idletime_blk_due_since_ns(IdletimeBlkPart *part,
                                  const VirtIOBlockReq *req);
/** idletime_blk_relieve_ring: the head leaves if too many are held. */
void idletime_blk_relieve_ring(IdletimeBlkPart *part);

/* ---- virtio-blk-idletime-pieces.c */

/** idletime_blk_piece_limit: bytes, at least one logical block. */
uint64_t idletime_blk_piece_limit(const VirtIOBlock *s);
/** idletime_blk_issue_piece: the next of a request that was split. */
void idletime_blk_issue_piece(VirtIOBlockReq *req);
/** idletime_blk_pieces_left: bytes that are not done yet. */
uint64_t idletime_blk_pieces_left(const VirtIOBlockReq *req);
/** idletime_blk_pieces_forget: @req is what was popped from the ring again. */
void idletime_blk_pieces_forget(VirtIOBlockReq *req);

/* ---- virtio-blk-idletime-life.c */

/** idletime_blk_join_rq: onto s->rq, as stock QEMU does with werror=stop. */
void idletime_blk_join_rq(VirtIOBlockReq *req);

#endif
