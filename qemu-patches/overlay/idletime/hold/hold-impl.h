/*
 * Idletime hold: what the files of this room share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each file calls only those below it in this list:
 *
 *   attach.c     attach, detach
 *   life.c       park, drain, threads
 *   hold.c       a request comes, a request ends
 *   release.c    from the list into service
 *   expedite.c   what does not wait for the gate, and why
 *   pieces.c     large requests: how much of one
 *   list.c       held requests, and those of a stopped VM
 *
 * What goes the other way are callbacks: the gate's pump, the completion of a
 * piece, and bottom halves for the orders of other threads.
 *
 * The device's pointer to all this appears and goes under the BQL while other
 * threads run; attach.c says when each of them may rely on it.
 *
 * Context: everything here belongs to the thread of the part's gate, unless
 * said otherwise.
 */
#ifndef IDLETIME_HOLD_IMPL_H
#define IDLETIME_HOLD_IMPL_H

#include "idletime/hold/hold.h"

typedef QTAILQ_HEAD(, IdletimeReq) IdletimeHeldList;

/* One thread's share of a device. */
struct IdletimeHoldPart {
    IdletimeHolder *owner;
    IdletimeGate *gate;
    AioContext *ioeventfd_ctx;  /* of its queues, where they have notifiers */
    IdletimeHeldList held;
    const IdletimeReq *head;    /* the first that was asked for; not owned */
    int64_t head_since_ns;
    bool pumping;
    uint64_t holds;             /* so many were ever held */
    IdletimeReq *reheld;        /* the last that came back at cont, while it */
                                /* is in the list; not owned */
    unsigned full_queues;       /* that hold more than their ring's share */
    /* Requests up to this number are expedited, for that reason. */
    uint64_t expedite_number;
    IdletimePromotion expedite_cause;
    uint32_t expedited;         /* in service now */
    bool reclassified;          /* some held ones may be foreground now */
    bool left;                  /* qatomic: nothing is here, nor will be */
    /* Orders from other threads (qatomic), for idletime_hold_pump(). */
    bool reclassify;
    int expedite;               /* IdletimePromotion + 1 */
};

static inline IdletimeHoldPart *idletime_hold_part(const IdletimeHolder *hold,
                                                   unsigned queue)
{
    return &hold->part[hold->dev.queue_gate[queue]];
}

static inline IdletimeClass idletime_hold_class(const IdletimeHolder *hold,
                                                const IdletimeReq *req)
{
    return idletime_queue_class(&hold->dev, req->queue);
}

/* The caller is the thread of the gate: an iothread, or has the BQL. */
static inline void idletime_hold_assert_thread(const IdletimeHoldPart *part)
{
    assert(qemu_get_current_aio_context() == part->gate->ctx);
}

/* No releases now.  Context: any thread. */
static inline bool idletime_hold_blocked(const IdletimeHolder *hold)
{
    return qatomic_read(&hold->parked) || qatomic_read(&hold->drained);
}

/* ---- release.c */

/** idletime_hold_pump: release what may start.  @opaque: IdletimeHoldPart */
void idletime_hold_pump(void *opaque);
/** idletime_hold_leave: has all of it left a device that is being detached? */
void idletime_hold_leave(IdletimeHoldPart *part);
/** idletime_hold_expel: start @req, which is on no list, as foreground now. */
void idletime_hold_expel(IdletimeHoldPart *part, IdletimeReq *req,
                         IdletimePromotion cause);

/* ---- expedite.c */

/**
 * idletime_hold_expedite: all that the device of @part holds now, for @cause.
 * Each of its parts follows in its next bottom half.
 */
void idletime_hold_expedite(IdletimeHoldPart *part, IdletimePromotion cause);
/** idletime_hold_take_orders: those of other threads, and class changes. */
void idletime_hold_take_orders(IdletimeHoldPart *part);
/** idletime_hold_expedited: the first of these; NULL: none.  @cause: set */
IdletimeReq *idletime_hold_expedited(IdletimeHoldPart *part,
                                     IdletimePromotion *cause);
/** idletime_hold_due_since_ns: for the head; its max-hold-ms begins then. */
int64_t idletime_hold_due_since_ns(IdletimeHoldPart *part,
                                   const IdletimeReq *req);

/* ---- pieces.c */

/** idletime_pieces_left: bytes that are not done yet. */
static inline uint64_t idletime_pieces_left(const IdletimePieces *pieces)
{
    return pieces->total_bytes - pieces->done_bytes;
}

/**
 * idletime_pieces_done: the piece in service ended with @ret.  Returns true
 * if it was the last of the request; @ret is then that of the request.
 */
bool idletime_pieces_done(const IdletimeHolder *hold, IdletimePieces *pieces,
                          int *ret);

/* ---- list.c */

/** idletime_hold_list_append: behind all others; it is held from now on. */
void idletime_hold_list_append(IdletimeHoldPart *part, IdletimeReq *req);
/** idletime_hold_list_prepend: before all others: the next piece of @req. */
void idletime_hold_list_prepend(IdletimeHoldPart *part, IdletimeReq *req);
/** idletime_hold_list_remove: the caller issues it. */
void idletime_hold_list_remove(IdletimeHoldPart *part, IdletimeReq *req);

typedef enum IdletimeAside {
    IDLETIME_ASIDE_NO,          /* not parked: nothing was done */
    IDLETIME_ASIDE_DONE,        /* it is the device's, until cont */
    IDLETIME_ASIDE_START,       /* parked, but it has to be started now */
} IdletimeAside;

/**
 * idletime_hold_set_aside: by ops->park(), if the device is parked; the queue
 * of @req is set.
 * Decided under park_lock: what is aside, the restart will see.
 */
IdletimeAside idletime_hold_set_aside(IdletimeHolder *hold, IdletimeReq *req);

#endif
