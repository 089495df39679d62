/*
 * virtio-net: what the files of its idletime part share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context of all: BQL.  Each file calls those above it and no other:
 *
 *   -state.c       what a queue waits for: one state machine
 *   -held.c        packets that were popped and wait
 *   -service.c     packets in the host's queues
 *   -ask.c         what a packet is, and may it leave
 *   -foreground.c  foreground packets are events
 *   .c             from the ring to the backend
 *   -status.c      the device stops, is reset, loses its link
 *   -path.c        by QEMU, or past it
 *   -life.c        attach, detach
 *
 * What has to go up (the link is free again) goes by the gate's callback.
 */
#ifndef HW_NET_VIRTIO_NET_IDLETIME_IMPL_H
#define HW_NET_VIRTIO_NET_IDLETIME_IMPL_H

#include "qemu/main-loop.h"
#include "hw/virtio/virtio-net.h"
#include "idletime/packet/cut.h"
#include "idletime/gate/stamp.h"
#include "idletime/uplink/clock.h"
#include "idletime/uplink/frame.h"
#include "net/idletime-tap.h"

/* See virtio-net-idletime-state.c. */
typedef enum IdletimeNetState {
    IDLETIME_NET_IDLE,
    IDLETIME_NET_ASKING,
    IDLETIME_NET_HELD,
    IDLETIME_NET_PAUSED,
    IDLETIME_NET_STATE__MAX,
} IdletimeNetState;

typedef enum IdletimeNetEvent {
    IDLETIME_NET_FIRST,         /* a background packet is first in line */
    IDLETIME_NET_REFUSED,       /* it may not leave; somebody will call */
    IDLETIME_NET_CALLED,        /* gate, tap, timer or monitor */
    IDLETIME_NET_NONE,          /* no background packet is in line */
    IDLETIME_NET_PAUSE,         /* VM stopped, queue off, or link down */
    IDLETIME_NET_RESUME,
    IDLETIME_NET_RESET,
    IDLETIME_NET_EVENT__MAX,
} IdletimeNetEvent;

/* A packet that was popped and waits, or is on its way. */
typedef struct IdletimeNetPacket {
    VirtQueueElement *elem;
    IdletimePacket packet;
    int64_t held_ns;
    uint64_t popped;            /* it was the queue's nth */
    bool urged;                 /* leaves as foreground, is not asked for */
    bool promoted;              /* because of this: */
    IdletimePromotion cause;
    bool is_cut;                /* it leaves by @cut */
    bool finished;              /* the last piece is on its way */
    IdletimeCut cut;
    QSIMPLEQ_ENTRY(IdletimeNetPacket) next;
} IdletimeNetPacket;

/* A ring has at most 1,024 packets; few flows of the background send a lot. */
#define IDLETIME_NET_FLOWS  256

/* One transmit queue. */
typedef struct IdletimeNetQueue {
    VirtIONetIdletime *owner;
    VirtIONetQueue *q;
    unsigned index;

    /* Waiting. */
    IdletimeNetState state;
    int64_t since_ns;           /* the first in line is that, if it waits */
    uint64_t popped;            /* packets popped, less those put back */
    QSIMPLEQ_HEAD(, IdletimeNetPacket) held;
    unsigned num_held;
    unsigned num_urged;         /* of those */
    uint16_t flow_count[IDLETIME_NET_FLOWS]; /* of those, by flow modulo */

    /* The element between pop and push. */
    IdletimeNetPacket *piece_of; /* it is a piece of this */
    uint64_t leased_bytes;      /* 0: it needs no lease */
    IdletimeLease lease;

    /* Written to the backend, not known to have left; oldest first. */
    unsigned in_service;
    IdletimeLease service[IDLETIME_TOKENS];
    int64_t free_ns[IDLETIME_TOKENS]; /* by the clock: when it has left */
    IdletimeTapQueue tap;
    uint64_t unheld_bytes;      /* written since the tap held something */
    int64_t busy_until_ns;      /* by the clock, with foreground; 0: not */
    QEMUTimer *service_timer;
} IdletimeNetQueue;

struct VirtIONetIdletime {
    IdletimeDevice dev;
    VirtIONet *n;
    IdletimeGate *gate;         /* all queues run under the BQL: one gate */
    IdletimeNetQueue *queue;
    uint64_t dscp;              /* a bit for each background code point */
    IdletimeTap tap;
    IdletimeUplinkClock uplink; /* by the clock: the foreground's share */

    /* What may pass the background without being asked for. */
    int64_t pass_ns;            /* when the allowance was counted last */
    int64_t pass_bytes;

    IdletimeStamp stamp;        /* of foreground packets */

    bool by_qemu;               /* vhost must not run */
    bool releasing;             /* all is foreground; some is left of before */
    QEMUBH *released_bh;
};

static inline IdletimeNetQueue *idletime_net_queue(const VirtIONetQueue *q)
{
    return &q->n->idletime->queue[q - q->n->vqs];
}

static inline IdletimeClass idletime_net_class(const IdletimeNetQueue *nq)
{
    return idletime_queue_class(&nq->owner->dev, nq->index);
}

/*
 * The deadline of a packet, where max-hold-ms is not shorter: half of TCP's
 * smallest retransmission timeout (200 ms on Linux), and far below the 5 s of
 * a Linux guest's transmit watchdog.
 */
#define IDLETIME_NET_HOLD_NS (100 * 1000 * 1000LL)

/* ---- what a queue waits for (-state.c) */

/** idletime_net_move: something happened to the queue. */
void idletime_net_move(IdletimeNetQueue *nq, IdletimeNetEvent event);

/** idletime_net_first: a packet is first in line since @since_ns. */
void idletime_net_first(IdletimeNetQueue *nq, int64_t since_ns);

/** idletime_net_waits: is a packet in line, in the ring or on the list? */
static inline bool idletime_net_waits(const IdletimeNetQueue *nq)
{
    return nq->state == IDLETIME_NET_ASKING || nq->state == IDLETIME_NET_HELD;
}

/** idletime_net_set_num_held: the list's length changes. */
void idletime_net_set_num_held(IdletimeNetQueue *nq, unsigned num_held);

/** idletime_net_anything_waits: does any queue of the device wait? */
bool idletime_net_anything_waits(const VirtIONetIdletime *it);

/** idletime_net_is_first: does no other queue of the device wait longer? */
bool idletime_net_is_first(const IdletimeNetQueue *nq);

/* ---- held packets (-held.c) */

/** idletime_net_hold: @elem was popped and has to wait. */
void idletime_net_hold(IdletimeNetQueue *nq, VirtQueueElement *elem,
                       const IdletimePacket *packet);

/** idletime_net_hold_cut: it goes by @cut, before all that waits. */
void idletime_net_hold_cut(IdletimeNetQueue *nq, VirtQueueElement *elem,
                           const IdletimePacket *packet,
                           const IdletimeCut *cut);

/**
 * idletime_net_take: the element to send of a held packet: it, or its next
 * piece of at most @limit bytes.
 */
VirtQueueElement *idletime_net_take(IdletimeNetQueue *nq,
                                    IdletimeNetPacket *held, size_t limit);

/** idletime_net_piece_sent: Returns the packet if that was the last piece. */
VirtQueueElement *idletime_net_piece_sent(IdletimeNetQueue *nq);

/** idletime_net_urge: these need not be asked for.  @flow: NULL for all */
void idletime_net_urge(IdletimeNetQueue *nq, const uint32_t *flow,
                       IdletimePromotion cause);

/** idletime_net_follow: foreground @elem, behind the held ones of its flow. */
void idletime_net_follow(IdletimeNetQueue *nq, VirtQueueElement *elem,
                         const IdletimePacket *packet);

/** idletime_net_holds_flow: is a packet of @flow held? */
bool idletime_net_holds_flow(const IdletimeNetQueue *nq, uint32_t flow);

/** idletime_net_first_urged: or NULL. */
IdletimeNetPacket *idletime_net_first_urged(const IdletimeNetQueue *nq);

/** idletime_net_give_back: into the ring, those that can. */
void idletime_net_give_back(IdletimeNetQueue *nq);

/**
 * idletime_net_drop: all that is held.
 * @push: give it back to the driver as sent; else forget it (reset)
 */
void idletime_net_drop(IdletimeNetQueue *nq, bool push);

/* ---- in service (-service.c) */

/** idletime_net_room: may this queue have one more packet in service? */
bool idletime_net_room(IdletimeNetQueue *nq);

/**
 * idletime_net_link_busy: by the clock: is the link still sending foreground?
 * If so, the queue is called when it will have, or at @due_ns, from which on
 * it does not matter.
 */
bool idletime_net_link_busy(IdletimeNetQueue *nq, int64_t due_ns);

/** idletime_net_prepare: a packet with nq->lease is about to be written. */
void idletime_net_prepare(IdletimeNetQueue *nq);

/** idletime_net_serve: it was written. */
void idletime_net_serve(IdletimeNetQueue *nq);

/** idletime_net_settle: no more will be written for now; wait for the rest. */
void idletime_net_settle(IdletimeNetQueue *nq);

/** idletime_net_leave: forget what is in service; its leases end. */
void idletime_net_leave(IdletimeNetQueue *nq);

/**
 * idletime_net_close_tap: all queues leave; the tap is the operator's again.
 * Idempotent.
 */
void idletime_net_close_tap(VirtIONetIdletime *it);

/** idletime_net_drained: for the tap. */
void idletime_net_drained(void *opaque);
/** idletime_net_service_timer: for the timer. */
void idletime_net_service_timer(void *opaque);

/* ---- what it is, and may it leave (-ask.c) */

/**
 * idletime_net_is_malformed: nothing is behind the virtio-net header; the
 * stock path tells the guest.
 */
bool idletime_net_is_malformed(const IdletimeNetQueue *nq,
                               const VirtQueueElement *elem);

/** idletime_net_parse: classify a packet as the guest gave it. */
void idletime_net_parse(const IdletimeNetQueue *nq,
                        const VirtQueueElement *elem,
                        IdletimePacket *packet);

/** idletime_net_is_marked: has it a code point that means background? */
bool idletime_net_is_marked(const VirtIONetIdletime *it,
                            const IdletimePacket *packet);

/**
 * idletime_net_is_full: are so many held, a quarter of the ring, that the
 * foreground of the same guest may soon find no room in it?
 */
bool idletime_net_is_full(const IdletimeNetQueue *nq);

/** idletime_net_piece_limit: bytes that may leave at once. */
size_t idletime_net_piece_limit(const VirtIONetIdletime *it);

/**
 * idletime_net_may_start: may the first in line, which is that since
 * @since_ns and has @bytes, start now?  Then nq->lease is its lease; else the
 * queue is called when it is worth asking again.
 */
bool idletime_net_may_start(IdletimeNetQueue *nq, int64_t since_ns,
                            uint64_t bytes);

/**
 * idletime_net_may_pass: an acknowledgement keeps a flow's clock going for
 * next to nothing; what passes is taken from the allowance.
 */
bool idletime_net_may_pass(VirtIONetIdletime *it,
                           const IdletimePacket *packet);

/* ---- foreground (-foreground.c) */

/** idletime_net_free_tap: what leaves now need not wait for the tap's room. */
static inline void idletime_net_free_tap(VirtIONetIdletime *it)
{
    if (unlikely(idletime_tap_is_bound(&it->tap))) {
        idletime_tap_free(&it->tap);
    }
}

/** idletime_net_calibrate: how long a tick is; takes 50 us. */
void idletime_net_calibrate(VirtIONetIdletime *it);

/** idletime_net_send_foreground: post the event.  Returns @elem: send it. */
VirtQueueElement *idletime_net_send_foreground(IdletimeNetQueue *nq,
                                               VirtQueueElement *elem);

/* ---- from the ring to the backend (virtio-net-idletime.c) */

/** idletime_net_pump: ask again for all queues that wait. */
void idletime_net_pump(void *opaque);

/** idletime_net_kick: look at the queue soon, as if the guest had kicked. */
void idletime_net_kick(IdletimeNetQueue *nq);

/**
 * idletime_net_in_ring: do packets stay in the ring, which is not heard?
 * They are asked for when the queue is called.
 */
bool idletime_net_in_ring(const IdletimeNetQueue *nq);

/** idletime_net_note_released: one that was held may have been the last. */
static inline void idletime_net_note_released(VirtIONetIdletime *it)
{
    if (unlikely(it->releasing)) {
        qemu_bh_schedule(it->released_bh);
    }
}

/* ---- status (-status.c) */

/** idletime_net_follow_status: the device has, or is to have, @status. */
void idletime_net_follow_status(VirtIONetIdletime *it, uint8_t status);

/* ---- by QEMU, or past it (-path.c) */

/** idletime_net_is_seen, _can_hold: of IdletimeDeviceOps. */
bool idletime_net_is_seen(const IdletimeDevice *dev);
bool idletime_net_can_hold(IdletimeDevice *dev, IdletimeClass class,
                           const char *queues, Error **errp);

/** idletime_net_is_released: all is foreground, nothing is left of before. */
bool idletime_net_is_released(const VirtIONetIdletime *it);

/** idletime_net_choose_path: start or stop vhost as the classes demand. */
void idletime_net_choose_path(VirtIONetIdletime *it);

#endif
