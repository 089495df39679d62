/*
 * virtio-net: what the files of its idletime part share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context of all: BQL.
 */
#ifndef HW_NET_VIRTIO_NET_IDLETIME_IMPL_H
#define HW_NET_VIRTIO_NET_IDLETIME_IMPL_H

#include "hw/virtio/virtio-net.h"
#include "idletime/packet/cut.h"
#include "idletime/gate/stamp.h"
#include "idletime/uplink/clock.h"
#include "net/idletime-tap.h"

/* A packet that was popped and waits, or is on its way in pieces. */
typedef struct IdletimeNetPacket {
    VirtQueueElement *elem;
    IdletimePacket packet;
    int64_t held_ns;
    bool urged;                 /* leaves as foreground, is not asked for */
    bool promoted;              /* because of this: */
    IdletimePromotion cause;
    bool in_pieces;
    bool finished;              /* the last piece is on its way */
    IdletimeCut cut;
    QSIMPLEQ_ENTRY(IdletimeNetPacket) next;
} IdletimeNetPacket;

/* One transmit queue. */
typedef struct IdletimeNetQueue {
    VirtIONetIdletime *owner;
    VirtIONetQueue *q;
    unsigned index;

    /* Waiting. */
    QSIMPLEQ_HEAD(, IdletimeNetPacket) held;
    unsigned num_held;
    unsigned tail_run;          /* held ones that were popped last of all */
    bool left;                  /* packets stay in the ring, it is not heard */
    bool refused;               /* the gate said no and will call */
    bool paused;                /* VM stopped, queue off, or link down */
    int64_t head_ns;            /* since when the first one waits; 0: none */

    /* Between pop and push. */
    IdletimeNetPacket *piece_of; /* the element is a piece of it */
    bool leased;
    uint64_t leased_bytes;
    IdletimeLease lease;

    /* Written to the backend, not known to have left; oldest first. */
    unsigned in_service;
    IdletimeLease service[IDLETIME_TOKENS];
    int64_t free_ns[IDLETIME_TOKENS]; /* by the clock: when it has left */
    IdletimeTap tap;
    uint64_t unheld_bytes;      /* written since the tap held something */
    bool by_clock;
    int64_t link_busy_until_ns; /* by the clock, with foreground; 0: not */
    QEMUTimer *service_timer;
} IdletimeNetQueue;

struct VirtIONetIdletime {
    IdletimeDevice dev;
    VirtIONet *n;
    IdletimeGate *gate;         /* all queues run under the BQL: one gate */
    IdletimeNetQueue *queue;
    uint64_t dscp;              /* a bit for each background code point */
    bool bound;                 /* a tap has our send buffer */
    IdletimeUplinkClock link;          /* by the clock: the foreground's share */

    /* What may pass the background without being asked for. */
    int64_t pass_ns;            /* when the allowance was counted last */
    int64_t pass_bytes;

    IdletimeStamp stamp;        /* of foreground packets */
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

/* ---- decisions (virtio-net-idletime.c) */

/** idletime_net_pump: ask again for all queues that wait. */
void idletime_net_pump(void *opaque);

/** idletime_net_kick: look at the queue soon, as if the guest had kicked. */
void idletime_net_kick(IdletimeNetQueue *nq);

/* ---- foreground (virtio-net-idletime-foreground.c) */

/** idletime_net_calibrate: how long a tick is; takes 50 us. */
void idletime_net_calibrate(VirtIONetIdletime *it);

/** idletime_net_send_foreground: post the event.  Returns @elem: send it. */
VirtQueueElement *idletime_net_send_foreground(IdletimeNetQueue *nq,
                                               VirtQueueElement *elem);

/* ---- what it is, and may it leave (virtio-net-idletime-ask.c) */

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

/** idletime_net_is_full: are so many held that the ring is in danger? */
bool idletime_net_is_full(const IdletimeNetQueue *nq);

/** idletime_net_piece_limit: bytes that may leave at once. */
size_t idletime_net_piece_limit(const VirtIONetIdletime *it);

/**
 * idletime_net_may_start: may the first that waits, since @since_ns and of
 * @bytes, start now?  Then nq->lease is its lease; else the queue is pumped
 * when it is worth asking again.
 */
bool idletime_net_may_start(IdletimeNetQueue *nq, int64_t since_ns,
                            uint64_t bytes);

/**
 * idletime_net_may_pass: an acknowledgement keeps a flow's clock going for
 * next to nothing; what passes is taken from the allowance.
 */
bool idletime_net_may_pass(VirtIONetIdletime *it,
                           const IdletimePacket *packet);

/* ---- held packets (virtio-net-idletime-held.c) */

/** idletime_net_hold: @elem was popped and has to wait. */
void idletime_net_hold(IdletimeNetQueue *nq, VirtQueueElement *elem,
                       const IdletimePacket *packet);

/** idletime_net_hold_cut: it goes in pieces, before all that waits. */
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

/* ---- waiting (virtio-net-idletime-held.c) */

/** idletime_net_wait: the first packet waits since @head_ns; 0: none does. */
void idletime_net_wait(IdletimeNetQueue *nq, int64_t head_ns);

/** idletime_net_anything_waits: does any queue of the device wait? */
bool idletime_net_anything_waits(const VirtIONetIdletime *it);

/** idletime_net_is_first: does no other queue of the device wait longer? */
bool idletime_net_is_first(const IdletimeNetQueue *nq);

/* ---- in service (virtio-net-idletime-service.c) */

/** idletime_net_room: may this queue have one more packet in service? */
bool idletime_net_room(IdletimeNetQueue *nq);

/**
 * idletime_net_link_busy: by the clock: is the link still sending foreground?
 * If so, the queue is asked again when it will have, or at @due_ns, from which
 * on it does not matter.
 */
bool idletime_net_link_busy(IdletimeNetQueue *nq, int64_t due_ns);

/** idletime_net_prepare: a packet with nq->lease is about to be written. */
void idletime_net_prepare(IdletimeNetQueue *nq);

/** idletime_net_serve: it was written. */
void idletime_net_serve(IdletimeNetQueue *nq);

/** idletime_net_settle: no more will be written for now; wait for the rest. */
void idletime_net_settle(IdletimeNetQueue *nq);

/** idletime_net_unbind: foreground is about to be written. */
void idletime_net_unbind(VirtIONetIdletime *it);

/** idletime_net_leave: forget what is in service; its leases end. */
void idletime_net_leave(IdletimeNetQueue *nq);

/** idletime_net_drained: for the tap. */
void idletime_net_drained(void *opaque);
/** idletime_net_service_timer: for the timer. */
void idletime_net_service_timer(void *opaque);

#endif
