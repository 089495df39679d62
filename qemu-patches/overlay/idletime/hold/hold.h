/*
 * Idletime hold: background requests of a disk, until they may start.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   device --request--> hold?  --no-------------------------> stock path
 *                         |                                       ^
 *                        yes --> held list --gate says start--> release
 *                                    ^                            |
 *                                    +- next piece of a large one-+
 *
 * What virtio-blk and SCSI disks have in common.  The device knows what a
 * request is: it classifies it, starts it on the stock path, and puts it
 * aside while the VM is stopped.  Here is known when.
 *
 * There is one list for each thread that serves the device.  It belongs to
 * that thread (with no iothread: to the holder of the BQL), so there is no
 * lock; others reach it by a bottom half.
 *
 * A held request is no request of the block layer, so a drain does not wait
 * for it.
 */
#ifndef IDLETIME_HOLD_H
#define IDLETIME_HOLD_H

#include "block/block-common.h"
#include "idletime/device/attach.h"

/*
 * Where a request is.  A foreground one goes NONE, FOREGROUND, NONE; a
 * background one NONE, HELD, BACKGROUND, NONE (HELD again for each piece of a
 * large one).  A held one that leaves early goes on as EXPEDITED until it
 * begins.  One that began while the device was not attached stays NONE.
 */
typedef enum IdletimeReqState {
    IDLETIME_REQ_NONE,          /* stock path, or not in service */
    IDLETIME_REQ_FOREGROUND,    /* in service, on the foreground board */
    IDLETIME_REQ_HELD,          /* on its part's list */
    IDLETIME_REQ_BACKGROUND,    /* in service, with a lease */
    IDLETIME_REQ_EXPEDITED,     /* leaves as foreground, within the cap */
    IDLETIME_REQ_EXPEDITED_FG,  /* the same, in service */
    IDLETIME_REQ_EXPEDITED_UNSEEN, /* the same, with no foreground slot */
} IdletimeReqState;

/* A large request on its way; first member of what the device has of it. */
typedef struct IdletimePieces {
    uint64_t total_bytes;
    uint64_t done_bytes;
    uint64_t piece_bytes;       /* in service */
    int ignored;                /* the first error that the policy ignores */
    bool is_write;
} IdletimePieces;

/* Part of each request; all zero: NONE. */
typedef struct IdletimeReq {
    uint8_t state;              /* IdletimeReqState */
    uint16_t queue;             /* valid unless NONE */
    int64_t held_ns;            /* when the guest submitted it */
    /* In the order in which its part has held requests; 0: was not held. */
    uint64_t number;
    /* How long it was held before the VM was stopped. */
    int64_t waited_ns;
    IdletimeLease lease;
    IdletimePieces *pieces;     /* a large request being issued in pieces */
    QTAILQ_ENTRY(IdletimeReq) next;
} IdletimeReq;

typedef struct IdletimeHolder IdletimeHolder;
typedef struct IdletimeHoldPart IdletimeHoldPart;

/* What to do with a request of a queue that is not all foreground. */
typedef enum IdletimeHoldVerdict {
    IDLETIME_HOLD_STOCK,        /* foreground, or malformed */
    IDLETIME_HOLD_EXPEDITE,     /* foreground; held ones may be waited for */
    IDLETIME_HOLD_PASS,         /* background, of a kind that is never held */
    IDLETIME_HOLD_HOLD,
} IdletimeHoldVerdict;

/* Of the device.  Context: the thread of the request, unless said otherwise. */
typedef struct IdletimeHoldOps {
    IdletimeDeviceOps device;   /* .reclassified: idletime_hold_reclassified */
    /** issue: start @req, or what is left of it, on the stock path. */
    void (*issue)(IdletimeHolder *hold, IdletimeReq *req);
    /** issue_piece: start req->pieces->piece_bytes at done_bytes. */
    void (*issue_piece)(IdletimeHolder *hold, IdletimeReq *req);
    /**
     * finish: the last piece is done: free the pieces, complete @req as the
     * stock path does with @ret (a negative errno, or 0).
     */
    void (*finish)(IdletimeHolder *hold, IdletimeReq *req, int ret);
    /** size: bytes of @req, which is not in pieces; for the books */
    uint64_t (*size)(const IdletimeHolder *hold, const IdletimeReq *req);
    /** ring_places: of a queue, as the driver made it */
    unsigned (*ring_places)(const IdletimeHolder *hold, unsigned queue);
    /**
     * park: the VM is stopped.  Make @req, of which a piece or nothing was
     * done, one that failed with werror=stop, as stock QEMU does; so it is in
     * the migration stream, and restarted from its beginning at cont.
     * Returns false if the stream cannot have it: it is started now.
     * Context: park_lock held.
     */
    bool (*park)(IdletimeHolder *hold, IdletimeReq *req);
    /** detached: clear the device's pointer to @hold.  Context: BQL. */
    void (*detached)(IdletimeHolder *hold);
} IdletimeHoldOps;

/* What is held of one queue.  Context: its thread. */
typedef struct IdletimeHoldRing {
    unsigned held;
    unsigned limit;             /* if foreground shares it; by the first held */
} IdletimeHoldRing;

/* One device, in all its threads. */
struct IdletimeHolder {
    IdletimeDevice dev;
    const IdletimeHoldOps *ops;
    void *opaque;               /* the device's */
    BlockBackend *blk;
    uint32_t block_bytes;       /* pieces are multiples of it */
    QemuMutex *park_lock;       /* of the device's stopped requests */
    IdletimeHoldPart *part;     /* one for each gate */
    IdletimeHoldRing *ring;     /* one for each queue */
    /* VM stopped, or device in reset.  Written under park_lock (qatomic) */
    bool parked;
    bool drained;               /* qatomic: inside a drained section */
    bool leaving;               /* qatomic: being detached; nothing begins */
    int64_t drained_since_ns;   /* BQL */
    QEMUBH *left_bh;            /* main loop: a part has left */
};

/* ---- a request comes, and ends.  Context: its thread. */

/**
 * idletime_hold_judge: a request of a queue that is not all foreground comes.
 * Returns true if it is to be held: the caller calls idletime_hold_put().
 */
bool idletime_hold_judge(IdletimeHolder *hold, unsigned queue,
                         IdletimeHoldVerdict verdict, IdletimePromotion cause);

/**
 * idletime_hold_put: @req waits for its turn.  Returns false where it goes on
 * at once: the VM is stopped, and the stream cannot have it.
 */
bool idletime_hold_put(IdletimeHolder *hold, IdletimeReq *req, unsigned queue);

/**
 * idletime_hold_served: does the caller's thread serve @queue?  Not where host
 * notifiers are being stopped: stock code then looks at the ring once more in
 * the thread that stops them.  A request that a gate does not serve is a stock
 * one.  Context: any thread.
 */
static inline bool idletime_hold_served(const IdletimeHolder *hold,
                                        unsigned queue)
{
    return idletime_queue_gate(&hold->dev, queue)->ctx ==
           qemu_get_current_aio_context();
}

/** idletime_hold_take: @req, held, is taken back: it is cancelled. */
void idletime_hold_take(IdletimeHolder *hold, IdletimeReq *req);

/* Part of idletime_hold_begin(). */
void idletime_hold_begin_expedited(IdletimeHolder *hold, IdletimeReq *req,
                                   uint64_t bytes, int64_t now_ns);

/**
 * idletime_hold_begin: @req is about to be issued.  @hold NULL: not attached,
 * nothing is done.
 */
static inline void idletime_hold_begin(IdletimeHolder *hold, IdletimeReq *req,
                                       unsigned queue, uint64_t bytes,
                                       int64_t now_ns)
{
    IdletimeGate *gate;

    if (unlikely(req->state == IDLETIME_REQ_EXPEDITED)) {
        idletime_hold_begin_expedited(hold, req, bytes, now_ns);
    } else if (req->state == IDLETIME_REQ_NONE && hold) {
        gate = idletime_queue_gate(&hold->dev, queue);
        /* Is it foreground, and does anybody listen? */
        if (idletime_queue_class(&hold->dev, queue) !=
            IDLETIME_CLASS_BACKGROUND &&
            qatomic_load_acquire(&gate->fg_ready) &&
            likely(!qatomic_read(&hold->leaving))) {
            idletime_gate_begin(gate, now_ns, bytes);
            req->queue = queue;
            req->state = IDLETIME_REQ_FOREGROUND;
        }
    }
}

/** idletime_hold_end: no longer in service, for whatever reason. */
void idletime_hold_end(IdletimeHolder *hold, IdletimeReq *req, int64_t now_ns);

/** idletime_hold_gate: of @req, whose queue is set. */
static inline IdletimeGate *idletime_hold_gate(const IdletimeHolder *hold,
                                               const IdletimeReq *req)
{
    return idletime_queue_gate(&hold->dev, req->queue);
}

/* ---- large requests, a piece at a time */

/** idletime_hold_piece_limit: bytes, at least one logical block. */
uint64_t idletime_hold_piece_limit(const IdletimeHolder *hold);
/** idletime_hold_split: issue @req in @pieces, whose head is filled in. */
void idletime_hold_split(IdletimeHolder *hold, IdletimeReq *req,
                         IdletimePieces *pieces);
/**
 * idletime_hold_piece_done: the piece in service has completed.  Goes on with
 * the next one when it may, or calls ops->finish().
 */
void idletime_hold_piece_done(IdletimeHolder *hold, IdletimeReq *req, int ret);
/**
 * idletime_hold_goes_on: a part of @pieces ended with @ret, which is noted if
 * the error policy ignores it.  Returns true if the next part may follow.
 */
bool idletime_hold_goes_on(const IdletimeHolder *hold, IdletimePieces *pieces,
                           int ret);

/* ---- the device is attached, stopped, drained, detached.  Context: BQL. */

/* What a device is like, for idletime_hold_attach(). */
typedef struct IdletimeHoldLayout {
    DeviceState *qdev;
    void *opaque;
    BlockBackend *blk;
    uint32_t block_bytes;
    uint16_t num_queues;
    AioContext **ctx;           /* of each queue */
    bool ioeventfd;             /* as for idletime_hold_serve() */
    QemuMutex *park_lock;
} IdletimeHoldLayout;

/**
 * idletime_hold_attach: All is made; the caller shows it to its threads by
 * one store of the device's pointer.  NULL with @errp set: nothing is done.
 */
IdletimeHolder *idletime_hold_attach(const IdletimeHoldLayout *layout,
                                   const IdletimeConf *conf,
                                   const IdletimeHoldOps *ops, Error **errp);
/** idletime_hold_detach: ops->detached() is called when nothing is left. */
void idletime_hold_detach(IdletimeHolder *hold);
/** idletime_hold_free: nothing is held or in service, and none comes. */
void idletime_hold_free(IdletimeHolder *hold);
/** idletime_hold_reclassified: of IdletimeDeviceOps. */
void idletime_hold_reclassified(IdletimeDevice *dev);

/**
 * idletime_hold_park: stop releasing; what is held, and what comes, is given
 * to ops->park().
 */
void idletime_hold_park(IdletimeHolder *hold);
/** idletime_hold_unpark: what was parked is the caller's to restart. */
void idletime_hold_unpark(IdletimeHolder *hold);
/** idletime_hold_drain: no releases between true and false. */
void idletime_hold_drain(IdletimeHolder *hold, bool drained);
/**
 * idletime_hold_serve: who serves the queues from now on.
 * @ioeventfd: the threads of the layout; false: host notifiers could not be
 * started, so it is the holder of the BQL
 * Nothing is in service.
 */
void idletime_hold_serve(IdletimeHolder *hold, bool ioeventfd);

#endif
