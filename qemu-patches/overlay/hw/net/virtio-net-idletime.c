/*
 * virtio-net: hold background packets at the transmit queue.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   ring --pop--> class? --foreground----------------------> stock path
 *                   |                                           ^
 *              background --gate says start--> in service ------+
 *                   |  ^
 *                   v  |  gate says no
 *             back into the ring, which is not heard until asked again
 *
 * virtio-net.c asks us for the next packet and gives each one back when it was
 * sent; what is in between is the stock path, one packet at a time and queue.
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "system/replay.h"
#include "virtio-net-idletime-impl.h"

/*
 * Foreground time stamps: reading the clock costs more than all the rest of a
 * packet's way through here, so one is good for so many processor ticks (13 to
 * 65 us at 5 to 1 GHz), far below any interval that makes sense.
 */
#define STAMP_TICKS 65536

/* ---- foreground */

static int64_t stamp_ns(VirtIONetIdletime *it)
{
#ifdef __x86_64__
    int64_t ticks = cpu_get_host_ticks();

    if (likely((uint64_t)(ticks - it->stamp_ticks) < STAMP_TICKS)) {
        return it->stamp_ns;
    }
    it->stamp_ticks = ticks;
    /* Virtual time stands still and jumps. */
    if (idletime_clock() == QEMU_CLOCK_VIRTUAL) {
        it->stamp_ticks -= STAMP_TICKS;
    }
#endif
    it->stamp_ns = idletime_now_ns();
    return it->stamp_ns;
}

/*
 * A packet is an event, not a time: when it will have left the host's queues
 * is not known.
 */
static void post_foreground(VirtIONetIdletime *it, uint64_t bytes)
{
    IdletimeGate *gate = it->gate;
    int64_t now_ns;

    if (gate->fg_ready) {
        now_ns = stamp_ns(it);
        idletime_gate_begin(gate, now_ns, bytes);
        idletime_gate_end(gate, now_ns);
    }
}

static uint64_t bytes_of(const IdletimeNetQueue *nq,
                         const VirtQueueElement *elem)
{
    uint64_t size = iov_size(elem->out_sg, elem->out_num);

    return size - MIN(size, nq->q->n->guest_hdr_len);
}

static VirtQueueElement *pop_foreground(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem = virtqueue_pop(nq->q->tx_vq,
                                           sizeof(VirtQueueElement));

    if (elem) {
        if (unlikely(nq->owner->bound)) {
            idletime_net_unbind(nq->owner);
        }
        nq->send = IDLETIME_NET_PLAIN;
        post_foreground(nq->owner, bytes_of(nq, elem));
    }
    return elem;
}

void idletime_net_received_slow(NetClientState *nc, const uint8_t *buf,
                                size_t size)
{
    VirtIONet *n = qemu_get_nic_opaque(nc);
    VirtIONetIdletime *it = n->idletime;

    if (idletime_queue_class(&it->dev, nc->queue_index) ==
        IDLETIME_CLASS_FOREGROUND) {
        post_foreground(it, size);
    }
}

/* ---- waiting */

static bool waits(const IdletimeNetQueue *nq)
{
    return nq->head_ns != 0;
}

bool idletime_net_anything_waits(const VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        if (waits(&it->queue[i])) {
            return true;
        }
    }
    return false;
}

static void set_head(IdletimeNetQueue *nq, int64_t head_ns)
{
    bool was = waits(nq);

    nq->head_ns = head_ns;
    idletime_stat_add(&nq->owner->gate->stats.held, waits(nq) - was);
    if (was && !idletime_net_anything_waits(nq->owner)) {
        idletime_gate_rest(nq->owner->gate);
    }
}

/* The one that waits longest asks; the device's others wait for it. */
static bool is_first(const IdletimeNetQueue *nq)
{
    const VirtIONetIdletime *it = nq->owner;

    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        if (waits(&it->queue[i]) && it->queue[i].head_ns < nq->head_ns) {
            return false;
        }
    }
    return true;
}

/* Packets stay in the ring.  The flag makes a restarted VM look there. */
static void leave_in_ring(IdletimeNetQueue *nq)
{
    virtio_queue_set_notification(nq->q->tx_vq, 0);
    nq->q->tx_waiting = 1;
    nq->left = true;
}

bool idletime_net_left_slow(VirtIONetQueue *q)
{
    return idletime_net_queue(q)->left;
}

static void kick(IdletimeNetQueue *nq)
{
    VirtIONetQueue *q = nq->q;

    if (!VIRTIO_DEVICE(q->n)->vm_running || !q->tx_vq) {
        return;
    }
    q->tx_waiting = 1;
    if (q->tx_bh) {
        replay_bh_schedule_event(q->tx_bh);
    } else if (q->tx_timer) {
        timer_mod(q->tx_timer, qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL));
    }
}

void idletime_net_pump(void *opaque)
{
    VirtIONetIdletime *it = opaque;

    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        if (waits(&it->queue[i])) {
            it->queue[i].refused = false;
            kick(&it->queue[i]);
        }
    }
}

/* ---- background */

/* May the packet at the head, of @bytes, start now?  Then nq->lease is it. */
static bool may_start(IdletimeNetQueue *nq, uint64_t bytes)
{
    IdletimeGate *gate = nq->owner->gate;

    if (!waits(nq)) {
        set_head(nq, idletime_now_ns());
    }
    if (nq->refused || !is_first(nq) || !idletime_net_room(nq)) {
        return false;
    }
    if (!idletime_gate_ask(gate, nq->head_ns, bytes, &nq->lease)) {
        nq->refused = true;
        return false;
    }
    idletime_gate_note_hold(gate, idletime_now_ns() - nq->head_ns);
    set_head(nq, 0);
    return true;
}

static VirtQueueElement *pop_background(IdletimeNetQueue *nq)
{
    VirtQueue *vq = nq->q->tx_vq;
    VirtQueueElement *elem = virtqueue_pop(vq, sizeof(VirtQueueElement));

    if (!elem) {
        set_head(nq, 0);
        return NULL;
    }
    if (!may_start(nq, bytes_of(nq, elem))) {
        virtqueue_unpop(vq, elem, 0);
        g_free(elem);
        leave_in_ring(nq);
        return NULL;
    }
    nq->send = IDLETIME_NET_LEASED;
    return elem;
}

/* ---- the hooks */

VirtQueueElement *idletime_net_pop_slow(VirtIONetQueue *q)
{
    IdletimeNetQueue *nq = idletime_net_queue(q);

    nq->left = false;
    if (likely(idletime_queue_class(&nq->owner->dev, nq->index) !=
               IDLETIME_CLASS_BACKGROUND)) {
        return pop_foreground(nq);
    }
    /* The flush of a stopping VM: what is in the ring goes with it. */
    if (!VIRTIO_DEVICE(q->n)->vm_running) {
        leave_in_ring(nq);
        return NULL;
    }
    return pop_background(nq);
}

bool idletime_net_push_slow(VirtIONetQueue *q, VirtQueueElement *elem)
{
    IdletimeNetQueue *nq = idletime_net_queue(q);

    if (nq->send == IDLETIME_NET_LEASED) {
        nq->send = IDLETIME_NET_PLAIN;
        idletime_net_serve(nq);
    }
    return false;
}
