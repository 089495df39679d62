/*
 * virtio-net: what becomes of held packets when the device's status changes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "virtio-net-idletime-impl.h"

typedef enum QueueState {
    QUEUE_RUNS,
    QUEUE_PAUSED,               /* VM stopped, or the guest does not use it */
    QUEUE_LINK_DOWN,
    QUEUE_RESET,
} QueueState;

static QueueState state_of(const VirtIONet *n, uint8_t status, unsigned i)
{
    if (!(status & VIRTIO_CONFIG_S_DRIVER_OK)) {
        return QUEUE_RESET;
    }
    if ((!n->multiqueue && i) || i >= n->curr_queue_pairs ||
        !VIRTIO_DEVICE(n)->vm_running) {
        return QUEUE_PAUSED;
    }
    return n->status & VIRTIO_NET_S_LINK_UP ? QUEUE_RUNS : QUEUE_LINK_DOWN;
}

/*
 * What can goes back into the ring; the rest leaves now, as foreground.  At
 * most a quarter of a ring, and only where foreground packets passed it.
 * What the backend does not take is dropped, as is what waits in the backend
 * itself: the migration stream knows nothing but the ring.
 */
static void queue_pause(IdletimeNetQueue *nq)
{
    /* A queue pair that the guest never had knows no device: nq->q->n. */
    NetClientState *peer = qemu_get_subqueue(nq->owner->n->nic,
                                             nq->index)->peer;

    if (!nq->num_held) {
        return;
    }
    idletime_net_give_back(nq);
    idletime_net_urge(nq, NULL, IDLETIME_PROMOTION_STOP);
    virtio_queue_set_notification(nq->q->tx_vq, 0);
    nq->q->tx_waiting = 1;
    virtio_net_flush_tx(nq->q);
    if (nq->num_held && peer) {
        /* While the VM is stopped packets go through the backend's queue. */
        qemu_flush_queued_packets(peer);
    }
    if (nq->num_held) {
        idletime_net_drop(nq, true);
        virtio_notify(VIRTIO_DEVICE(nq->q->n), nq->q->tx_vq);
    }
}

static void queue_drop_ring(IdletimeNetQueue *nq)
{
    VirtQueue *vq = nq->q->tx_vq;
    VirtQueueElement *elem;

    while ((elem = virtqueue_pop(vq, sizeof(VirtQueueElement)))) {
        virtqueue_push(vq, elem, 0);
        g_free(elem);
        idletime_stat_add(&nq->owner->gate->stats.dropped, 1);
    }
}

/*
 * The ring is empty: the guest's next packet kicks.  virtio-net.c would drop
 * what is left, and on a packed ring never listen again.
 */
static void queue_listen(VirtIONetQueue *q)
{
    if (q->tx_bh) {
        qemu_bh_cancel(q->tx_bh);
    } else {
        timer_del(q->tx_timer);
    }
    q->tx_waiting = 0;
    virtio_queue_set_notification(q->tx_vq, 1);
}

/* As a network device whose link is down, and as virtio-net.c does then. */
static void queue_drop(IdletimeNetQueue *nq, bool in_ring)
{
    idletime_net_drop(nq, true);
    if (in_ring) {
        queue_drop_ring(nq);
        queue_listen(nq->q);
    }
    virtio_notify(VIRTIO_DEVICE(nq->q->n), nq->q->tx_vq);
}

static void queue_follow(IdletimeNetQueue *nq, QueueState state)
{
    bool in_ring = idletime_net_in_ring(nq);

    if (state == QUEUE_RUNS) {
        idletime_net_move(nq, IDLETIME_NET_RESUME);
        return;
    }
    idletime_net_move(nq, state == QUEUE_RESET ? IDLETIME_NET_RESET :
                                                 IDLETIME_NET_PAUSE);
    if (state == QUEUE_PAUSED) {
        queue_pause(nq);
    } else if (state == QUEUE_LINK_DOWN && (nq->num_held || in_ring)) {
        queue_drop(nq, in_ring);
    } else if (state == QUEUE_RESET) {
        idletime_net_drop(nq, false);
    }
    idletime_net_settle(nq);
}

/* A deleted netdev is there until the NIC is unplugged, and sends nothing. */
static void follow_peer(VirtIONetIdletime *it)
{
    if (it->n->nic && it->n->nic->peer_deleted) {
        idletime_net_close_tap(it);
        return;
    }
    /*
     * Queues are attached and detached after a change of status.  One that is
     * not attached keeps its send buffer, and may be vhost's when it is again:
     * so none is detached while it is bound.
     */
    idletime_tap_forget(&it->tap);
    idletime_tap_free(&it->tap);
    idletime_tap_forget(&it->tap);
}

void idletime_net_follow_status(VirtIONetIdletime *it, uint8_t status)
{
    assert(bql_locked());
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        queue_follow(&it->queue[i], state_of(it->n, status, i));
    }
    follow_peer(it);
    idletime_net_note_released(it);
}

void idletime_net_set_status(VirtIONet *n, uint8_t status)
{
    assert(bql_locked());
    if (n->idletime) {
        idletime_net_follow_status(n->idletime, status);
    }
}

void idletime_net_del_queue(VirtIONet *n, unsigned pair)
{
    assert(bql_locked());
    if (n->idletime) {
        queue_follow(&n->idletime->queue[pair], QUEUE_RESET);
        idletime_net_note_released(n->idletime);
    }
}

bool idletime_net_purged_slow(VirtIONetQueue *q)
{
    assert(bql_locked());
    if (!VIRTIO_DEVICE(q->n)->vm_running) {
        return false;
    }
    idletime_net_kick(idletime_net_queue(q));
    return true;
}

void idletime_net_queue_reset(VirtIONet *n, unsigned index)
{
    /* Receive and transmit queues alternate. */
    IdletimeNetQueue *nq;

    assert(bql_locked());
    if (n->idletime && index % 2 &&
        virtio_queue_get_num(VIRTIO_DEVICE(n), index)) {
        nq = &n->idletime->queue[index / 2];
        if (idletime_net_in_ring(nq)) {
            /* The flag that it is waited for goes with a bottom half. */
            idletime_net_kick(nq);
        }
        queue_follow(nq, QUEUE_RESET);
        idletime_net_note_released(n->idletime);
    }
}
