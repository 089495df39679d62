/*
 * virtio-net: background packets in service, that is in the host's queues.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A write to the backend returns when the host's queue has the packet, not
 * when the link has.  A tap tells us when the packet has left, by its send
 * buffer (net/idletime-tap.c); until then the packet's lease is ours and
 * nothing else of the background starts.  Other backends tell nothing: what
 * was written counts as gone.
 *
 * The send buffer is the tap's, not a queue's.  On a device that sends
 * foreground too, it is bound only while background is in service, and freed
 * before each foreground packet; after that the tap is writable when both
 * have left, so the background waits for its own foreground as well.
 */
#include "qemu/osdep.h"
#include "virtio-net-idletime-impl.h"

/*
 * A packet that is in service for so long meets a stopped link, or a send
 * buffer that is too small: 1 s is 100 times a queue of 1,000 packets at
 * 1 Gbit/s.
 */
#define STALL_NS (1000 * 1000 * 1000LL)

static unsigned packet_bound(const VirtIONetIdletime *it)
{
    return idletime_resource_get(it->dev.res, IDLETIME_MAX_INFLIGHT);
}

bool idletime_net_room(IdletimeNetQueue *nq)
{
    return nq->in_service < MIN(packet_bound(nq->owner), IDLETIME_TOKENS);
}

/* The @count oldest have left. */
static void end_oldest(IdletimeNetQueue *nq, unsigned count)
{
    VirtIONetIdletime *it = nq->owner;

    for (unsigned i = 0; i < count; i++) {
        idletime_gate_done(it->gate, &nq->service[i],
                           idletime_net_anything_waits(it));
    }
    nq->in_service -= count;
    memmove(nq->service, nq->service + count,
            nq->in_service * sizeof(nq->service[0]));
}

/* There is room for one more packet of the bound, or all have left. */
static void end_drained(IdletimeNetQueue *nq)
{
    unsigned bound = packet_bound(nq->owner);

    if (nq->in_service) {
        end_oldest(nq, nq->in_service >= bound ? nq->in_service - bound + 1 :
                                                 1);
    }
}

static void watch(IdletimeNetQueue *nq)
{
    if (nq->in_service) {
        idletime_tap_watch(&nq->tap);
        timer_mod(nq->stall_timer, idletime_now_ns() + STALL_NS);
    } else {
        idletime_tap_unwatch(&nq->tap);
        timer_del(nq->stall_timer);
    }
}

void idletime_net_serve(IdletimeNetQueue *nq)
{
    nq->service[nq->in_service++] = nq->lease;
    if (!idletime_tap_is_open(&nq->tap)) {
        end_oldest(nq, nq->in_service);
        return;
    }
    idletime_tap_bind(&nq->tap, packet_bound(nq->owner));
    nq->owner->bound = true;
    if (idletime_tap_drained(&nq->tap)) {
        end_drained(nq);
    }
    watch(nq);
}

void idletime_net_drained(void *opaque)
{
    IdletimeNetQueue *nq = opaque;

    /* Freed for foreground meanwhile: bind again and look. */
    idletime_tap_bind(&nq->tap, packet_bound(nq->owner));
    nq->owner->bound = true;
    if (idletime_tap_drained(&nq->tap)) {
        end_drained(nq);
    }
    watch(nq);
    idletime_net_pump(nq->owner);
}

void idletime_net_stalled(void *opaque)
{
    IdletimeNetQueue *nq = opaque;

    idletime_tap_stalled(&nq->tap);
    watch(nq);
}

void idletime_net_unbind(VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        idletime_tap_free(&it->queue[i].tap);
    }
    it->bound = false;
}

void idletime_net_leave(IdletimeNetQueue *nq)
{
    end_oldest(nq, nq->in_service);
    watch(nq);
}
