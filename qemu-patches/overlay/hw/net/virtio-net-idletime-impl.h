/*
 * virtio-net: what the files of its idletime part share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef HW_NET_VIRTIO_NET_IDLETIME_IMPL_H
#define HW_NET_VIRTIO_NET_IDLETIME_IMPL_H

#include "hw/virtio/virtio-net.h"
#include "idletime/packet.h"
#include "net/idletime-tap.h"

/* What the packet between pop and push is. */
typedef enum IdletimeNetSend {
    IDLETIME_NET_PLAIN,         /* foreground, or passed: nothing to end */
    IDLETIME_NET_LEASED,        /* background, with a lease */
} IdletimeNetSend;

/* One transmit queue. */
typedef struct IdletimeNetQueue {
    VirtIONetIdletime *owner;
    VirtIONetQueue *q;
    unsigned index;

    /* Waiting. */
    bool left;                  /* packets stay in the ring, it is not heard */
    bool refused;               /* the gate said no and will call */
    int64_t head_ns;            /* since when the first one waits; 0: none */

    /* Between pop and push. */
    IdletimeNetSend send;
    IdletimeLease lease;

    /* Written to the backend, not known to have left. */
    unsigned in_service;
    IdletimeLease service[IDLETIME_TOKENS];
    IdletimeTap tap;
    QEMUTimer *stall_timer;
} IdletimeNetQueue;

struct VirtIONetIdletime {
    IdletimeDevice dev;
    VirtIONet *n;
    IdletimeGate *gate;         /* all queues run under the BQL: one gate */
    IdletimeNetQueue *queue;
    bool shared;                /* some queue may send foreground */
    bool bound;                 /* a tap has our send buffer */

    /* The last time stamp of foreground, and the ticks at which it was. */
    int64_t stamp_ns;
    int64_t stamp_ticks;
};

static inline IdletimeNetQueue *idletime_net_queue(const VirtIONetQueue *q)
{
    return &q->n->idletime->queue[q - q->n->vqs];
}

/* ---- hold and release (virtio-net-idletime.c) */

/** idletime_net_pump: ask again for all queues that wait. */
void idletime_net_pump(void *opaque);

/* ---- in service (virtio-net-idletime-service.c) */

/** idletime_net_room: may this queue have one more packet in service? */
bool idletime_net_room(IdletimeNetQueue *nq);

/** idletime_net_serve: a packet with nq->lease was written. */
void idletime_net_serve(IdletimeNetQueue *nq);

/** idletime_net_unbind: foreground is about to be written. */
void idletime_net_unbind(VirtIONetIdletime *it);

/** idletime_net_leave: forget what is in service; its leases end. */
void idletime_net_leave(IdletimeNetQueue *nq);

/** idletime_net_drained: for the tap. */
void idletime_net_drained(void *opaque);
/** idletime_net_stalled: for the stall timer. */
void idletime_net_stalled(void *opaque);

/** idletime_net_anything_waits: does any queue of the device wait? */
bool idletime_net_anything_waits(const VirtIONetIdletime *it);

#endif
