/*
 * virtio-blk: what the files of its background hold share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each file calls only those below it in this list:
 *
 *   virtio-blk-idletime-attach.c   attach, detach, unrealize
 *   virtio-blk-idletime-life.c     park, drain, reset, threads
 *   virtio-blk-idletime.c          a request comes, a request ends
 *   virtio-blk-idletime-release.c  from the list into service
 *   virtio-blk-idletime-expedite.c what does not wait for the gate, and why
 *   virtio-blk-idletime-list.c     held requests, and those of a stopped VM
 *   virtio-blk-idletime-pieces.c   large requests, a piece at a time
 *   virtio-blk-idletime-class.c    what a request's header says
 *
 * What goes the other way are callbacks: the gate's pump, the completion of a
 * piece, and bottom halves for the orders of other threads.
 *
 * The device's pointer to all this (VirtIOBlock.idletime) appears and goes
 * under the BQL while other threads run; virtio-blk-idletime-attach.c says
 * when each of them may rely on it.
 *
 * Context: everything here belongs to the thread of the part's gate, unless
 * said otherwise.
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
    AioContext *ioeventfd_ctx;  /* of its queues' vq_aio_context */
    IdletimeHeldList held;
    const VirtIOBlockReq *head; /* the first that was asked for; not owned */
    int64_t head_since_ns;
    bool pumping;
    uint64_t holds;             /* so many were ever held */
    unsigned full_queues;       /* that hold more than their ring's share */
    /* Requests up to this number are expedited, for that reason. */
    uint64_t expedite_number;
    IdletimePromotion expedite_cause;
    uint32_t expedited;         /* in service now */
    bool reclassified;          /* some held ones may be foreground now */
    bool left;                  /* qatomic: nothing is here, nor will be */
    /* Orders from other threads (qatomic), for idletime_blk_pump(). */
    bool reclassify;
    int expedite;               /* IdletimePromotion + 1 */
} IdletimeBlkPart;

struct VirtIOBlkIdletime {
    IdletimeDevice dev;
    VirtIOBlock *s;
    IdletimeBlkPart *part;      /* one for each gate */
    unsigned *queue_held;       /* now, in each queue; its thread */
    /* VM stopped, or device in reset.  Written under rq_lock, too (qatomic) */
    bool parked;
    bool drained;               /* qatomic: inside a drained section */
    bool leaving;               /* qatomic: being detached; nothing begins */
    int64_t drained_since_ns;   /* BQL */
    QEMUBH *left_bh;            /* main loop: a part has left */
};

static inline unsigned idletime_blk_queue(const VirtIOBlockReq *req)
{
    return virtio_get_queue_index(req->vq);
}

static inline IdletimeBlkPart *idletime_blk_part(const VirtIOBlockReq *req)
{
    VirtIOBlkIdletime *it = req->dev->idletime;

    return &it->part[it->dev.queue_gate[idletime_blk_queue(req)]];
}

static inline IdletimeClass idletime_blk_class(const VirtIOBlockReq *req)
{
    return idletime_queue_class(&req->dev->idletime->dev,
                                idletime_blk_queue(req));
}

/* The caller is the thread of the gate: an iothread, or has the BQL. */
static inline void idletime_blk_assert_thread(const IdletimeBlkPart *part)
{
    assert(qemu_get_current_aio_context() == part->gate->ctx);
}

/* No releases now.  Context: any thread. */
static inline bool idletime_blk_blocked(const VirtIOBlkIdletime *it)
{
    return qatomic_read(&it->parked) || qatomic_read(&it->drained);
}

/* ---- virtio-blk-idletime-life.c */

/** idletime_blk_drop_all: what is held, in service and stopped.  BQL. */
void idletime_blk_drop_all(VirtIOBlock *s);
/** idletime_blk_parts_serve: as idletime_blk_serve().  BQL. */
void idletime_blk_parts_serve(VirtIOBlkIdletime *it, bool ioeventfd);

/* ---- virtio-blk-idletime-release.c */

/** idletime_blk_pump: release what may start.  @opaque: IdletimeBlkPart */
void idletime_blk_pump(void *opaque);
/** idletime_blk_leave: has all of it left a device that is being detached? */
void idletime_blk_leave(IdletimeBlkPart *part);

/* ---- virtio-blk-idletime-expedite.c */

/**
 * idletime_blk_expedite: all that the device holds now, for @cause.
 * Each part follows in its next bottom half.  Context: any of its threads.
 */
void idletime_blk_expedite(VirtIOBlkIdletime *it, IdletimePromotion cause);
/** idletime_blk_take_orders: of idletime_blk_expedite(), and class changes. */
void idletime_blk_take_orders(IdletimeBlkPart *part);
/** idletime_blk_expedited: the first of these; NULL: none.  @cause: set */
VirtIOBlockReq *idletime_blk_expedited(IdletimeBlkPart *part,
                                       IdletimePromotion *cause);
/** idletime_blk_due_since_ns: for the head; its max-hold-ms begins then. */
int64_t idletime_blk_due_since_ns(IdletimeBlkPart *part,
                                  const VirtIOBlockReq *req);

/* ---- virtio-blk-idletime-list.c */

/** idletime_blk_list_append: behind all others; it is held from now on. */
void idletime_blk_list_append(IdletimeBlkPart *part, VirtIOBlockReq *req);
/** idletime_blk_list_prepend: before all others: the next piece of @req. */
void idletime_blk_list_prepend(IdletimeBlkPart *part, VirtIOBlockReq *req);
/** idletime_blk_list_remove: the caller issues it. */
void idletime_blk_list_remove(IdletimeBlkPart *part, VirtIOBlockReq *req);
/** idletime_blk_ring_limit: so many may be held in a ring that is shared. */
unsigned idletime_blk_ring_limit(const VirtIOBlkIdletime *it);

/**
 * idletime_blk_join_rq: onto s->rq, as it was popped from the ring, as stock
 * QEMU does with werror=stop.  Returns false if the device is not parked: then
 * nothing was done.  Decided under rq_lock: what joins, the restart will see.
 */
bool idletime_blk_join_rq(VirtIOBlockReq *req);

/* ---- virtio-blk-idletime-pieces.c */

/**
 * Called when a piece has completed.
 * @last: of the request, or it failed with @ret (a negative errno)
 */
typedef void IdletimeBlkPieceDone(VirtIOBlockReq *req, bool last, int ret);

/** idletime_blk_piece_limit: bytes, at least one logical block. */
uint64_t idletime_blk_piece_limit(const VirtIOBlock *s);
/** idletime_blk_pieces_new: @req will be issued in pieces. */
void idletime_blk_pieces_new(VirtIOBlockReq *req, bool is_write,
                             IdletimeBlkPieceDone *done);
/** idletime_blk_pieces_issue: the next @bytes of @req. */
void idletime_blk_pieces_issue(VirtIOBlockReq *req, uint64_t bytes);
/** idletime_blk_pieces_left: bytes that are not done yet. */
uint64_t idletime_blk_pieces_left(const VirtIOBlockReq *req);
/** idletime_blk_pieces_free: @req goes on as a whole. */
void idletime_blk_pieces_free(VirtIOBlockReq *req);
/** idletime_blk_pieces_forget: @req is what was popped from the ring again. */
void idletime_blk_pieces_forget(VirtIOBlockReq *req);

/* ---- virtio-blk-idletime-class.c */

/* What to do with a request of a queue that is not all foreground. */
typedef enum IdletimeBlkVerdict {
    IDLETIME_BLK_STOCK,         /* foreground, or malformed */
    IDLETIME_BLK_EXPEDITE,      /* foreground; held ones may be waited for */
    IDLETIME_BLK_PASS,          /* background, of a kind that is never held */
    IDLETIME_BLK_HOLD,
} IdletimeBlkVerdict;

/**
 * idletime_blk_classify: from the header as the guest wrote it.
 * @class: of the queue, not foreground
 * @cause: set with IDLETIME_BLK_EXPEDITE
 * Changes nothing.
 */
IdletimeBlkVerdict idletime_blk_classify(const VirtIOBlockReq *req,
                                         IdletimeClass class,
                                         IdletimePromotion *cause);

#endif
