/*
 * virtio-net: what a packet is, and whether it may leave.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "virtio-net-idletime-impl.h"

/* The deadline of each in its turn where a queue holds much of its ring. */
#define HOLD_FULL_NS        (10 * 1000 * 1000LL)

/* Much of the ring that foreground shares is this part of it. */
#define RING_SHARE          4

/*
 * What passes the background (acknowledgements, ARP and the like) has an
 * allowance of 1 Mbit/s, saved up for one full frame: 1 % of 100 Mbit/s.
 */
#define PASS_BYTES_PER_S    125000
#define PASS_BYTES_MAX      2048

/* ---- what it is */

bool idletime_net_is_malformed(const IdletimeNetQueue *nq,
                               const VirtQueueElement *elem)
{
    return iov_size(elem->out_sg, elem->out_num) <= nq->q->n->guest_hdr_len;
}

void idletime_net_parse(const IdletimeNetQueue *nq,
                        const VirtQueueElement *elem,
                        IdletimePacket *packet)
{
    idletime_packet_parse(elem->out_sg, elem->out_num,
                          nq->q->n->guest_hdr_len, packet);
}

bool idletime_net_is_marked(const VirtIONetIdletime *it,
                            const IdletimePacket *packet)
{
    return (packet->kind == IDLETIME_PACKET_DATA ||
            packet->kind == IDLETIME_PACKET_BARE_ACK) &&
           (it->dscp >> packet->dscp & 1);
}

/* ---- whether it may leave */

bool idletime_net_is_full(const IdletimeNetQueue *nq)
{
    VirtQueue *vq = nq->q->tx_vq;
    int places = virtio_queue_get_num(VIRTIO_DEVICE(nq->q->n),
                                      virtio_get_queue_index(vq));

    /* QEMU may offer more than is configured; drivers may use less. */
    return nq->num_held >= MIN(places, nq->q->n->net_conf.tx_queue_size) /
                           RING_SHARE;
}

size_t idletime_net_piece_limit(const VirtIONetIdletime *it)
{
    return MIN(IDLETIME_FRAME_FULL,
               idletime_resource_get(it->dev.res, IDLETIME_MAX_REQUEST_BYTES));
}

/* The deadline of what waits since @since_ns. */
static int64_t due_ns(const IdletimeNetQueue *nq, int64_t since_ns)
{
    int64_t hold_ns = idletime_resource_get(nq->owner->dev.res,
                                            IDLETIME_MAX_HOLD_MS) * SCALE_MS;

    return hold_ns ? since_ns + MIN(hold_ns, nq->owner->gate->hold_max_ns) :
                     INT64_MAX;
}

static bool ask(IdletimeNetQueue *nq, uint64_t bytes)
{
    IdletimeGate *gate = nq->owner->gate;

    if (!idletime_net_is_first(nq) || !idletime_net_room(nq)) {
        return false;
    }
    gate->hold_max_ns = idletime_net_is_full(nq) ? HOLD_FULL_NS :
                                                   IDLETIME_NET_HOLD_NS;
    return !idletime_net_link_busy(nq, due_ns(nq, nq->since_ns)) &&
           idletime_gate_ask(gate, nq->since_ns, bytes, &nq->lease);
}

/*
 * What was refused may have been so for one of our own that has left unseen:
 * of fewer than the full number nobody has asked yet.
 */
static bool ask_without(IdletimeNetQueue *nq, uint64_t bytes)
{
    unsigned before = nq->in_service;

    idletime_net_settle(nq);
    return nq->in_service != before && ask(nq, bytes);
}

bool idletime_net_may_start(IdletimeNetQueue *nq, int64_t since_ns,
                            uint64_t bytes)
{
    idletime_net_first(nq, since_ns);
    if (nq->state != IDLETIME_NET_ASKING) {
        return false;
    }
    if (!ask(nq, bytes) && !ask_without(nq, bytes)) {
        idletime_net_move(nq, IDLETIME_NET_REFUSED);
        return false;
    }
    idletime_gate_note_hold(nq->owner->gate, idletime_now_ns() - since_ns);
    nq->leased_bytes = bytes;
    idletime_net_prepare(nq);
    return true;
}

bool idletime_net_may_pass(VirtIONetIdletime *it, const IdletimePacket *packet)
{
    int64_t bytes = MAX(packet->bytes, IDLETIME_FRAME_LEAST) +
                    IDLETIME_FRAME_EXTRA;
    int64_t now_ns = idletime_now_ns();
    /* A second earns more than is kept; years would overflow. */
    int64_t since_us = MIN(now_ns - it->pass_ns, NANOSECONDS_PER_SECOND) / 1000;
    int64_t earned = since_us * PASS_BYTES_PER_S / 1000000;

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
