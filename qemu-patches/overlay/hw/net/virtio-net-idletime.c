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
 *             back into the ring, which is not heard until asked again;
 *             or, where foreground may be behind it, onto a list
 *
 * virtio-net.c asks us for the next packet and gives each one back when it was
 * sent; what is in between is the stock path, one packet at a time and queue.
 * Large packets come in pieces, each of which is asked for.
 *
 * Order: the background packets of a queue keep theirs, and so do its
 * foreground packets.  Where a flow has packets of both classes (its code
 * point changed), those that are held leave before its foreground packet, as
 * foreground.
 *
 * VIRTIO_F_IN_ORDER: the driver gets its packets back in the order of the
 * ring, so foreground packets would come back only after those that are held.
 * On such a queue what is held leaves as soon as foreground comes behind it.
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "hw/virtio/virtio-access.h"
#include "system/replay.h"
#include "virtio-net-idletime-impl.h"

static VirtQueueElement *pop(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem = virtqueue_pop(nq->q->tx_vq,
                                           sizeof(VirtQueueElement));

    nq->popped += elem != NULL;
    return elem;
}

static void unpop(IdletimeNetQueue *nq, VirtQueueElement *elem)
{
    virtqueue_unpop(nq->q->tx_vq, elem, 0);
    g_free(elem);
    nq->popped--;
}

/* ---- background */

/* Packets stay in the ring.  The flag makes a restarted VM look there. */
static void leave_in_ring(IdletimeNetQueue *nq)
{
    virtio_queue_set_notification(nq->q->tx_vq, 0);
    nq->q->tx_waiting = 1;
}

/*
 * What is asked for leaves, whatever the guest makes of the header meanwhile:
 * false only where the host does not look at that.
 */
static bool cut_begin(const IdletimeNetQueue *nq, const VirtQueueElement *elem,
                      const IdletimePacket *packet, IdletimeCut *cut)
{
    const VirtIONet *n = nq->q->n;

    return n->has_vnet_hdr &&
           idletime_cut_begin(cut, elem->out_sg, elem->out_num,
                              n->guest_hdr_len,
                              virtio_access_is_big_endian(VIRTIO_DEVICE(n)),
                              packet);
}

/* How much of this packet would leave next? */
static uint64_t next_bytes(IdletimeNetQueue *nq, IdletimeNetPacket *held)
{
    if (!held->is_cut) {
        held->is_cut = cut_begin(nq, held->elem, &held->packet, &held->cut);
    }
    return held->is_cut ?
           idletime_cut_size(&held->cut, idletime_net_piece_limit(nq->owner)) :
           held->packet.bytes;
}

static VirtQueueElement *release_urged(IdletimeNetQueue *nq)
{
    IdletimeNetPacket *held = idletime_net_first_urged(nq);
    IdletimeGate *gate = nq->owner->gate;
    VirtQueueElement *elem;

    if (!held) {
        return NULL;
    }
    if (held->promoted) {
        idletime_gate_note_promotion(gate, held->cause);
        idletime_gate_note_hold(gate, idletime_now_ns() - held->held_ns);
        held->promoted = false;
    }
    elem = idletime_net_take(nq, held, SIZE_MAX);
    if (!nq->num_held) {
        idletime_net_move(nq, IDLETIME_NET_NONE);
    }
    return idletime_net_send_foreground(nq, elem);
}

/* Each in its turn: the deadline is that of the first in line. */
static void next_in_line(IdletimeNetQueue *nq)
{
    IdletimeNetPacket *held = QSIMPLEQ_FIRST(&nq->held);

    if (held) {
        held->held_ns = idletime_now_ns();
        idletime_net_first(nq, held->held_ns);
    } else {
        idletime_net_move(nq, IDLETIME_NET_NONE);
    }
}

static VirtQueueElement *release_first(IdletimeNetQueue *nq)
{
    IdletimeNetPacket *held = QSIMPLEQ_FIRST(&nq->held);
    VirtQueueElement *elem;

    if (!held || !idletime_net_may_start(nq, held->held_ns,
                                         next_bytes(nq, held))) {
        return NULL;
    }
    elem = idletime_net_take(nq, held, idletime_net_piece_limit(nq->owner));
    next_in_line(nq);
    return elem;
}

/* ---- a queue that is all background */

/* What leaves of it now.  @cut: NULL: it leaves as it is */
static VirtQueueElement *start(IdletimeNetQueue *nq, VirtQueueElement *elem,
                               const IdletimePacket *packet,
                               const IdletimeCut *cut)
{
    if (cut) {
        idletime_net_hold_cut(nq, elem, packet, cut);
        return idletime_net_take(nq, QSIMPLEQ_FIRST(&nq->held),
                                 idletime_net_piece_limit(nq->owner));
    }
    return elem;
}

/* What passes is one frame on the wire: no acknowledgement asks for more. */
static bool may_pass(IdletimeNetQueue *nq, const IdletimePacket *packet,
                     const IdletimeCut *cut)
{
    return !(cut && idletime_cut_asks_for_segments(cut)) &&
           idletime_net_may_pass(nq->owner, packet);
}

/* The first of the ring, if it may leave. */
static VirtQueueElement *ask_for(IdletimeNetQueue *nq, VirtQueueElement *elem)
{
    int64_t since_ns = idletime_net_waits(nq) ? nq->since_ns :
                                                idletime_now_ns();
    size_t limit = idletime_net_piece_limit(nq->owner);
    IdletimePacket packet;
    IdletimeCut copy, *cut;

    idletime_net_parse(nq, elem, &packet);
    if (idletime_net_is_malformed(nq, elem)) {
        return elem;
    }
    cut = cut_begin(nq, elem, &packet, &copy) ? &copy : NULL;
    if (may_pass(nq, &packet, cut)) {
        return start(nq, elem, &packet, cut);
    }
    if (idletime_net_may_start(nq, since_ns,
                               cut ? idletime_cut_size(cut, limit) :
                                     packet.bytes)) {
        idletime_net_move(nq, IDLETIME_NET_NONE);
        return start(nq, elem, &packet, cut);
    }
    unpop(nq, elem);
    leave_in_ring(nq);
    return NULL;
}

static VirtQueueElement *pop_background(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem = release_first(nq);

    if (elem) {
        return elem;
    }
    if (nq->num_held) {
        leave_in_ring(nq);
        return NULL;
    }
    elem = pop(nq);
    if (!elem) {
        idletime_net_move(nq, IDLETIME_NET_NONE);
        idletime_net_settle(nq);
        return NULL;
    }
    return ask_for(nq, elem);
}

/* ---- a queue whose guest marks its packets */

/* Held packets of its flow go first. */
static bool has_to_follow(const IdletimeNetQueue *nq,
                          const IdletimePacket *packet)
{
    return unlikely(nq->num_held) && packet->version &&
           idletime_net_holds_flow(nq, packet->flow);
}

static bool is_in_order(const IdletimeNetQueue *nq)
{
    return virtio_vdev_has_feature(VIRTIO_DEVICE(nq->q->n),
                                   VIRTIO_F_IN_ORDER);
}

/* Returns the element if it may leave now. */
static VirtQueueElement *sort_foreground(IdletimeNetQueue *nq,
                                         VirtQueueElement *elem,
                                         const IdletimePacket *packet)
{
    if (has_to_follow(nq, packet)) {
        idletime_net_follow(nq, elem, packet);
        elem = NULL;
    }
    if (unlikely(nq->num_held) && is_in_order(nq)) {
        idletime_net_urge(nq, NULL, IDLETIME_PROMOTION_RING);
    }
    return elem ? idletime_net_send_foreground(nq, elem) : NULL;
}

/* An acknowledgement that waits for no other, and may pass. */
static VirtQueueElement *pass(IdletimeNetQueue *nq, VirtQueueElement *elem,
                              const IdletimePacket *packet)
{
    IdletimeCut copy, *cut;

    if (packet->kind != IDLETIME_PACKET_BARE_ACK ||
        idletime_net_holds_flow(nq, packet->flow)) {
        return NULL;
    }
    cut = cut_begin(nq, elem, packet, &copy) ? &copy : NULL;
    if (!may_pass(nq, packet, cut)) {
        return NULL;
    }
    /* Foreground behind it must not wait for the tap to take it. */
    idletime_net_free_tap(nq->owner);
    return start(nq, elem, packet, cut);
}

/* The same. */
static VirtQueueElement *sort(IdletimeNetQueue *nq, VirtQueueElement *elem)
{
    IdletimePacket packet;
    VirtQueueElement *passes;

    idletime_net_parse(nq, elem, &packet);
    if (idletime_net_is_malformed(nq, elem)) {
        return elem;
    }
    if (!idletime_net_is_marked(nq->owner, &packet)) {
        return sort_foreground(nq, elem, &packet);
    }
    passes = pass(nq, elem, &packet);
    if (!passes) {
        idletime_net_hold(nq, elem, &packet);
    }
    return passes;
}

static VirtQueueElement *pop_mixed(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem;

    if (unlikely(idletime_net_waits(nq)) && !nq->num_held) {
        /* It was the first of the ring, when all of that was background. */
        idletime_net_move(nq, IDLETIME_NET_NONE);
    }
    for (;;) {
        bool was_full = idletime_net_is_full(nq);

        elem = release_urged(nq) ?: release_first(nq);
        if (elem) {
            return elem;
        }
        elem = pop(nq);
        if (!elem) {
            idletime_net_settle(nq);
            return NULL;
        }
        elem = sort(nq, elem);
        if (elem) {
            return elem;
        }
        if (idletime_net_is_full(nq) && !was_full) {
            /* Now the deadline is short. */
            idletime_net_move(nq, IDLETIME_NET_CALLED);
        }
    }
}

/* ---- the hooks */

static VirtQueueElement *pop_foreground(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem = pop(nq);

    return elem ? idletime_net_send_foreground(nq, elem) : NULL;
}

/* The class is foreground now: what was held leaves first. */
static VirtQueueElement *pop_changed(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem;

    idletime_net_urge(nq, NULL, IDLETIME_PROMOTION_CLASS_CHANGE);
    elem = release_urged(nq);
    if (elem) {
        return elem;
    }
    idletime_net_move(nq, IDLETIME_NET_NONE);
    return pop_foreground(nq);
}

/* What is in the ring stays there. */
static VirtQueueElement *pop_paused(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem = release_urged(nq);

    if (!elem) {
        leave_in_ring(nq);
    }
    return elem;
}

VirtQueueElement *idletime_net_pop_slow(VirtIONetQueue *q)
{
    IdletimeNetQueue *nq = idletime_net_queue(q);
    IdletimeClass class = idletime_net_class(nq);

    assert(bql_locked());
    if (likely(class == IDLETIME_CLASS_FOREGROUND)) {
        return likely(!nq->num_held && !idletime_net_waits(nq)) ?
               pop_foreground(nq) : pop_changed(nq);
    }
    if (unlikely(nq->state == IDLETIME_NET_PAUSED)) {
        return pop_paused(nq);
    }
    return class == IDLETIME_CLASS_BACKGROUND ? pop_background(nq) :
                                                pop_mixed(nq);
}

bool idletime_net_in_ring(const IdletimeNetQueue *nq)
{
    IdletimeClass class = idletime_net_class(nq);

    return class != IDLETIME_CLASS_FOREGROUND &&
           (nq->state == IDLETIME_NET_PAUSED ||
            (idletime_net_waits(nq) && class == IDLETIME_CLASS_BACKGROUND));
}

bool idletime_net_left_slow(VirtIONetQueue *q)
{
    assert(bql_locked());
    idletime_net_note_released(q->n->idletime);
    return idletime_net_in_ring(idletime_net_queue(q));
}

/*
 * A driver whose ring is full asks to be interrupted when three quarters of it
 * have come back (VIRTIO_F_EVENT_IDX, Linux).  What is held does not come back
 * so soon; its foreground waits for the room that others leave.
 */
static void notify(IdletimeNetQueue *nq)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(nq->q->n);
    VirtQueue *vq = nq->q->tx_vq;

    if (unlikely(idletime_net_is_full(nq))) {
        virtio_queue_invalidate_signalled_used(vdev,
                                               virtio_get_queue_index(vq));
    }
    virtio_notify(vdev, vq);
}

void idletime_net_push_slow(VirtIONetQueue *q, VirtQueueElement *elem)
{
    IdletimeNetQueue *nq = idletime_net_queue(q);
    VirtQueueElement *whole = elem;

    assert(bql_locked());
    if (nq->piece_of) {
        whole = idletime_net_piece_sent(nq);
    }
    if (whole) {
        virtqueue_push(q->tx_vq, whole, 0);
        notify(nq);
    }
    if (whole != elem) {
        g_free(whole);
    }
    if (nq->leased_bytes) {
        idletime_net_serve(nq);
    }
    idletime_net_note_released(nq->owner);
}

/* ---- asking again */

void idletime_net_kick(IdletimeNetQueue *nq)
{
    VirtIONetQueue *q = nq->q;

    if (!VIRTIO_DEVICE(nq->owner->n)->vm_running) {
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

    assert(bql_locked());
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        IdletimeNetQueue *nq = &it->queue[i];

        idletime_net_move(nq, IDLETIME_NET_CALLED);
        if (idletime_net_waits(nq)) {
            idletime_net_kick(nq);
        }
    }
}
