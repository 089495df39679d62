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
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "hw/virtio/virtio-access.h"
#include "system/replay.h"
#include "virtio-net-idletime-impl.h"

/*
 * A queue that foreground shares holds this part of its ring at most; then
 * what is behind stays in the ring, and the deadline is short.
 */
#define RING_SHARE          4
#define HOLD_FULL_NS        (10 * 1000 * 1000LL)

/*
 * What passes the background (acknowledgements, ARP and the like) has an
 * allowance of 1 Mbit/s, saved up for one full frame: 1 % of 100 Mbit/s.
 */
#define PASS_BYTES_PER_S    125000
#define PASS_BYTES_MAX      2048
/* Preamble, checksum and gap of a frame on Ethernet; its least size. */
#define FRAME_EXTRA         24
#define FRAME_LEAST         60

/* A piece at least: one full frame. */
#define PIECE_BYTES         1514

/* ---- foreground */

/*
 * Where the host has no ticks QEMU counts calls, of which there are few in
 * this time: then each reads the clock.  Virtual time stands still and jumps.
 */
void idletime_net_calibrate(VirtIONetIdletime *it)
{
    int64_t start_ns = get_clock();
    int64_t start = cpu_get_host_ticks();

    while (get_clock() - start_ns < IDLETIME_STAMP_NS) {
        /* Only time passes. */
    }
    if (idletime_clock() != QEMU_CLOCK_VIRTUAL) {
        it->stamp.limit = cpu_get_host_ticks() - start;
    }
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
        now_ns = idletime_stamp(&it->stamp, cpu_get_host_ticks(),
                                idletime_now_ns);
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

static VirtQueueElement *send_foreground(IdletimeNetQueue *nq,
                                         VirtQueueElement *elem)
{
    if (unlikely(nq->owner->bound)) {
        idletime_net_unbind(nq->owner);
    }
    post_foreground(nq->owner, bytes_of(nq, elem));
    return elem;
}

/* ---- what came */

static VirtQueueElement *pop(IdletimeNetQueue *nq)
{
    return virtqueue_pop(nq->q->tx_vq, sizeof(VirtQueueElement));
}

/* Nothing behind the virtio-net header: the stock path tells the guest. */
static bool is_malformed(const IdletimeNetQueue *nq,
                         const VirtQueueElement *elem)
{
    return iov_size(elem->out_sg, elem->out_num) <= nq->q->n->guest_hdr_len;
}

static void parse(const IdletimeNetQueue *nq, const VirtQueueElement *elem,
                  IdletimePacket *packet)
{
    idletime_packet_parse(elem->out_sg, elem->out_num,
                          nq->q->n->guest_hdr_len, packet);
}

static bool is_marked(const VirtIONetIdletime *it,
                      const IdletimePacket *packet)
{
    return (packet->kind == IDLETIME_PACKET_DATA ||
            packet->kind == IDLETIME_PACKET_BARE_ACK) &&
           (it->dscp >> packet->dscp & 1);
}

void idletime_net_received_slow(NetClientState *nc, const uint8_t *buf,
                                size_t size)
{
    VirtIONet *n = qemu_get_nic_opaque(nc);
    VirtIONetIdletime *it = n->idletime;
    IdletimeClass class = idletime_queue_class(&it->dev, nc->queue_index);
    struct iovec iov = { .iov_base = (void *)buf, .iov_len = size };
    IdletimePacket packet;

    if (class == IDLETIME_CLASS_GUEST) {
        idletime_packet_parse(&iov, 1, n->host_hdr_len, &packet);
        if (is_marked(it, &packet)) {
            return;
        }
    }
    if (class != IDLETIME_CLASS_BACKGROUND) {
        /* An event, but no bytes of the uplink. */
        post_foreground(it, 0);
    }
}

/* ---- background */

/* Packets stay in the ring.  The flag makes a restarted VM look there. */
static void leave_in_ring(IdletimeNetQueue *nq)
{
    virtio_queue_set_notification(nq->q->tx_vq, 0);
    nq->q->tx_waiting = 1;
    nq->left = true;
}

static bool is_full(const IdletimeNetQueue *nq)
{
    return nq->num_held >= nq->q->n->net_conf.tx_queue_size / RING_SHARE;
}

static size_t piece_limit(const VirtIONetIdletime *it)
{
    return MIN(PIECE_BYTES, idletime_resource_get(it->dev.res,
                                                  IDLETIME_MAX_REQUEST_BYTES));
}

/* The deadline of what waits since @since_ns. */
static int64_t due_ns(const IdletimeNetQueue *nq, int64_t since_ns)
{
    int64_t hold_ns = idletime_resource_get(nq->owner->dev.res,
                                            IDLETIME_MAX_HOLD_MS) * SCALE_MS;

    return hold_ns ? since_ns + MIN(hold_ns, nq->owner->gate->hold_max_ns) :
                     INT64_MAX;
}

static bool ask(IdletimeNetQueue *nq, int64_t since_ns, uint64_t bytes)
{
    IdletimeGate *gate = nq->owner->gate;

    if (nq->refused || !idletime_net_is_first(nq) || !idletime_net_room(nq)) {
        return false;
    }
    gate->hold_max_ns = is_full(nq) ? HOLD_FULL_NS : IDLETIME_NET_HOLD_NS;
    if (idletime_net_link_busy(nq, due_ns(nq, since_ns))) {
        return false;
    }
    nq->refused = !idletime_gate_ask(gate, since_ns, bytes, &nq->lease);
    return !nq->refused;
}

/* May the first that waits, of @bytes, start now?  Then nq->lease is it. */
static bool may_start(IdletimeNetQueue *nq, int64_t since_ns, uint64_t bytes)
{
    IdletimeGate *gate = nq->owner->gate;

    if (nq->head_ns != since_ns) {
        idletime_net_wait(nq, since_ns);
    }
    if (!ask(nq, since_ns, bytes)) {
        idletime_net_settle(nq);
        return false;
    }
    idletime_gate_note_hold(gate, idletime_now_ns() - since_ns);
    nq->leased = true;
    nq->leased_bytes = bytes;
    idletime_net_prepare(nq);
    return true;
}

/* An acknowledgement keeps a flow's clock going for next to nothing. */
static bool may_pass(VirtIONetIdletime *it, const IdletimePacket *packet)
{
    int64_t bytes = MAX(packet->bytes, FRAME_LEAST) + FRAME_EXTRA;
    int64_t now_ns = idletime_now_ns();
    int64_t earned = (now_ns - it->pass_ns) / 1000 * PASS_BYTES_PER_S / 1000000;

    if (packet->kind == IDLETIME_PACKET_DATA) {
        return false;
    }
    if (earned > 0) {
        it->pass_bytes = MIN(it->pass_bytes + earned, PASS_BYTES_MAX);
        it->pass_ns = now_ns;
    }
    if (it->pass_bytes < bytes) {
        return false;
    }
    it->pass_bytes -= bytes;
    idletime_stat_add(&it->gate->stats.passed, 1);
    return true;
}

static bool is_large(const IdletimeNetQueue *nq, const VirtQueueElement *elem,
                     const IdletimePacket *packet, IdletimeCut *cut)
{
    const VirtIONet *n = nq->q->n;

    return packet->bytes > piece_limit(nq->owner) && n->has_vnet_hdr &&
           idletime_cut_begin(cut, elem->out_sg, elem->out_num,
                              n->guest_hdr_len,
                              virtio_access_is_big_endian(VIRTIO_DEVICE(n)),
                              packet);
}

/* How much of this packet would leave next? */
static uint64_t next_bytes(const IdletimeNetQueue *nq,
                           const IdletimeNetPacket *held)
{
    return held->in_pieces ? idletime_cut_size(&held->cut,
                                               piece_limit(nq->owner)) :
                             held->packet.bytes;
}

/* Large ones turn into pieces when their time has come. */
static VirtQueueElement *take(IdletimeNetQueue *nq, IdletimeNetPacket *held)
{
    if (!held->in_pieces &&
        is_large(nq, held->elem, &held->packet, &held->cut)) {
        held->in_pieces = true;
    }
    return idletime_net_take(nq, held, piece_limit(nq->owner));
}

static VirtQueueElement *release_urged(IdletimeNetQueue *nq)
{
    IdletimeNetPacket *held = idletime_net_first_urged(nq);
    IdletimeGate *gate = nq->owner->gate;

    if (!held) {
        return NULL;
    }
    if (held->promoted) {
        idletime_gate_note_promotion(gate, held->cause);
        idletime_gate_note_hold(gate, idletime_now_ns() - held->held_ns);
    }
    return send_foreground(nq, idletime_net_take(nq, held, SIZE_MAX));
}

static VirtQueueElement *release_first(IdletimeNetQueue *nq)
{
    IdletimeNetPacket *held = QSIMPLEQ_FIRST(&nq->held);
    VirtQueueElement *elem;

    if (!held || !may_start(nq, held->held_ns, next_bytes(nq, held))) {
        return NULL;
    }
    elem = take(nq, held);
    held = QSIMPLEQ_FIRST(&nq->held);
    if (held) {
        /* Each in its turn: the deadline is that of the first in line. */
        held->held_ns = idletime_now_ns();
    }
    idletime_net_wait(nq, held ? held->held_ns : 0);
    return elem;
}

/* ---- a queue that is all background */

static VirtQueueElement *start_background(IdletimeNetQueue *nq,
                                          VirtQueueElement *elem,
                                          const IdletimePacket *packet)
{
    IdletimeCut cut;

    idletime_net_wait(nq, 0);
    if (is_large(nq, elem, packet, &cut)) {
        idletime_net_hold_cut(nq, elem, packet, &cut);
        return idletime_net_take(nq, QSIMPLEQ_FIRST(&nq->held),
                                 piece_limit(nq->owner));
    }
    return elem;
}

static VirtQueueElement *pop_background(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem = release_first(nq);
    IdletimePacket packet;

    if (elem) {
        return elem;
    }
    if (nq->num_held) {
        leave_in_ring(nq);
        return NULL;
    }
    elem = pop(nq);
    if (!elem) {
        idletime_net_wait(nq, 0);
        idletime_net_settle(nq);
        return NULL;
    }
    parse(nq, elem, &packet);
    if (is_malformed(nq, elem) || may_pass(nq->owner, &packet)) {
        return elem;
    }
    if (may_start(nq, nq->head_ns ?: idletime_now_ns(),
                  MIN(packet.bytes, piece_limit(nq->owner)))) {
        return start_background(nq, elem, &packet);
    }
    virtqueue_unpop(nq->q->tx_vq, elem, 0);
    g_free(elem);
    leave_in_ring(nq);
    return NULL;
}

/* ---- a queue whose guest marks its packets */

/* Held packets of its flow go first. */
static bool has_to_follow(const IdletimeNetQueue *nq,
                          const IdletimePacket *packet)
{
    return unlikely(nq->num_held) && packet->version &&
           idletime_net_holds_flow(nq, packet->flow);
}

/* Returns the element if it may leave now. */
static VirtQueueElement *sort(IdletimeNetQueue *nq, VirtQueueElement *elem)
{
    IdletimePacket packet;

    parse(nq, elem, &packet);
    if (is_malformed(nq, elem)) {
        return elem;
    }
    if (!is_marked(nq->owner, &packet)) {
        if (!has_to_follow(nq, &packet)) {
            return send_foreground(nq, elem);
        }
        idletime_net_follow(nq, elem, &packet);
        return NULL;
    }
    if (packet.kind == IDLETIME_PACKET_BARE_ACK &&
        !idletime_net_holds_flow(nq, packet.flow) &&
        may_pass(nq->owner, &packet)) {
        return elem;
    }
    idletime_net_hold(nq, elem, &packet);
    return NULL;
}

static VirtQueueElement *pop_mixed(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem;

    for (;;) {
        elem = release_urged(nq) ?: release_first(nq);
        if (elem) {
            return elem;
        }
        if (is_full(nq)) {
            leave_in_ring(nq);
            return NULL;
        }
        elem = pop(nq);
        if (!elem) {
            idletime_net_settle(nq);
            return NULL;
        }
        elem = sort(nq, elem);
        /* The last one that fits: from here on the deadline is short. */
        nq->refused &= !is_full(nq);
        if (elem) {
            nq->tail_run = 0;
            return elem;
        }
    }
}

/* ---- the hooks */

static VirtQueueElement *pop_foreground(IdletimeNetQueue *nq)
{
    VirtQueueElement *elem = pop(nq);

    return elem ? send_foreground(nq, elem) : NULL;
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
    if (nq->head_ns) {
        idletime_net_wait(nq, 0);
    }
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

    nq->left = false;
    if (likely(class == IDLETIME_CLASS_FOREGROUND)) {
        return likely(!nq->num_held && !nq->head_ns) ? pop_foreground(nq) :
                                                       pop_changed(nq);
    }
    if (unlikely(nq->paused) || !VIRTIO_DEVICE(q->n)->vm_running) {
        return pop_paused(nq);
    }
    return class == IDLETIME_CLASS_BACKGROUND ? pop_background(nq) :
                                                pop_mixed(nq);
}

bool idletime_net_left_slow(VirtIONetQueue *q)
{
    return idletime_net_queue(q)->left;
}

void idletime_net_push_slow(VirtIONetQueue *q, VirtQueueElement *elem)
{
    IdletimeNetQueue *nq = idletime_net_queue(q);
    VirtQueueElement *whole = elem;

    if (nq->piece_of) {
        whole = idletime_net_piece_sent(nq);
    }
    if (whole) {
        virtqueue_push(q->tx_vq, whole, 0);
        virtio_notify(VIRTIO_DEVICE(q->n), q->tx_vq);
    }
    if (whole != elem) {
        g_free(whole);
    }
    if (nq->leased) {
        nq->leased = false;
        idletime_net_serve(nq);
    }
}

/* ---- asking again */

void idletime_net_kick(IdletimeNetQueue *nq)
{
    VirtIONetQueue *q = nq->q;

    if (!VIRTIO_DEVICE(q->n)->vm_running) {
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
        IdletimeNetQueue *nq = &it->queue[i];

        nq->refused = false;
        if (!nq->paused && (nq->head_ns || nq->num_held || nq->left)) {
            idletime_net_kick(nq);
        }
    }
}
