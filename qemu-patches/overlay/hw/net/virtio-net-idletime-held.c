/*
 * virtio-net: packets that were popped and wait.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A list for each queue, in the order of the ring.  A background queue has at
 * most one packet on it, the one that is on its way; a queue whose guest marks
 * its packets has those that foreground passed.
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "virtio-net-idletime-impl.h"

/* ---- the list */

static IdletimeNetPacket *held_new(const IdletimeNetQueue *nq,
                                   VirtQueueElement *elem,
                                   const IdletimePacket *packet)
{
    IdletimeNetPacket *held = g_new0(IdletimeNetPacket, 1);

    held->elem = elem;
    held->packet = *packet;
    held->held_ns = idletime_now_ns();
    held->popped = nq->popped;
    return held;
}

static uint16_t *flow_count(IdletimeNetQueue *nq, uint32_t flow)
{
    return &nq->flow_count[flow % IDLETIME_NET_FLOWS];
}

static void note_added(IdletimeNetQueue *nq, const IdletimeNetPacket *held)
{
    (*flow_count(nq, held->packet.flow))++;
    idletime_net_set_num_held(nq, nq->num_held + 1);
}

void idletime_net_hold(IdletimeNetQueue *nq, VirtQueueElement *elem,
                       const IdletimePacket *packet)
{
    IdletimeNetPacket *held = held_new(nq, elem, packet);

    QSIMPLEQ_INSERT_TAIL(&nq->held, held, next);
    note_added(nq, held);
}

static IdletimeNetPacket *held_last(IdletimeNetQueue *nq)
{
    return QSIMPLEQ_LAST(&nq->held, IdletimeNetPacket, next);
}

void idletime_net_hold_cut(IdletimeNetQueue *nq, VirtQueueElement *elem,
                           const IdletimePacket *packet,
                           const IdletimeCut *cut)
{
    IdletimeNetPacket *held = held_new(nq, elem, packet);

    held->cut = *cut;
    held->is_cut = true;
    QSIMPLEQ_INSERT_HEAD(&nq->held, held, next);
    note_added(nq, held);
}

static void held_remove(IdletimeNetQueue *nq, IdletimeNetPacket *held)
{
    QSIMPLEQ_REMOVE(&nq->held, held, IdletimeNetPacket, next);
    (*flow_count(nq, held->packet.flow))--;
    nq->num_urged -= held->urged;
    idletime_net_set_num_held(nq, nq->num_held - 1);
}

/* ---- sending */

/*
 * An element of our own, which the stock path frees as any: the copied
 * header, and the payload where the guest has it.
 */
static VirtQueueElement *piece_new(const IdletimeNetPacket *held,
                                   const IdletimePiece *piece)
{
    const VirtQueueElement *whole = held->elem;
    /* With a header of ours it would be more than writev() takes. */
    size_t copied = whole->out_num < IOV_MAX ? 0 : piece->payload_bytes;
    size_t sg_bytes = (whole->out_num + 1) * sizeof(struct iovec);
    uint8_t *memory = g_malloc0(sizeof(VirtQueueElement) + sg_bytes +
                                piece->header_bytes + copied);
    VirtQueueElement *elem = (VirtQueueElement *)memory;
    uint8_t *header = memory + sizeof(*elem) + sg_bytes;

    elem->out_sg = (struct iovec *)(memory + sizeof(*elem));
    elem->out_sg[0].iov_base = header;
    elem->out_sg[0].iov_len = piece->header_bytes + copied;
    elem->out_num = 1;
    memcpy(header, piece->header, piece->header_bytes);
    if (copied) {
        iov_to_buf(whole->out_sg, whole->out_num, piece->payload_offset,
                   header + piece->header_bytes, copied);
    } else {
        elem->out_num += iov_copy(elem->out_sg + 1, whole->out_num,
                                  whole->out_sg, whole->out_num,
                                  piece->payload_offset, piece->payload_bytes);
    }
    return elem;
}

static VirtQueueElement *take_piece(IdletimeNetQueue *nq,
                                    IdletimeNetPacket *held, size_t limit)
{
    IdletimePiece piece;

    idletime_cut_next(&held->cut, limit, &piece);
    idletime_stat_add(&nq->owner->gate->stats.pieces,
                      piece.payload_bytes != held->cut.payload_bytes);
    if (!idletime_cut_left(&held->cut)) {
        held_remove(nq, held);
        held->finished = true;
    }
    nq->piece_of = held;
    return piece_new(held, &piece);
}

VirtQueueElement *idletime_net_take(IdletimeNetQueue *nq,
                                    IdletimeNetPacket *held, size_t limit)
{
    VirtQueueElement *elem = held->elem;

    if (held->is_cut) {
        return take_piece(nq, held, limit);
    }
    held_remove(nq, held);
    g_free(held);
    return elem;
}

VirtQueueElement *idletime_net_piece_sent(IdletimeNetQueue *nq)
{
    IdletimeNetPacket *held = nq->piece_of;
    VirtQueueElement *elem = NULL;

    nq->piece_of = NULL;
    if (held->finished) {
        elem = held->elem;
        g_free(held);
    }
    return elem;
}

/* ---- urging */

static void mark_urged(IdletimeNetQueue *nq, IdletimeNetPacket *held)
{
    held->urged = true;
    nq->num_urged++;
}

void idletime_net_urge(IdletimeNetQueue *nq, const uint32_t *flow,
                       IdletimePromotion cause)
{
    IdletimeNetPacket *held;

    QSIMPLEQ_FOREACH(held, &nq->held, next) {
        if (!held->urged && (!flow || held->packet.flow == *flow)) {
            mark_urged(nq, held);
            held->promoted = true;
            held->cause = cause;
        }
    }
}

void idletime_net_follow(IdletimeNetQueue *nq, VirtQueueElement *elem,
                         const IdletimePacket *packet)
{
    idletime_net_urge(nq, &packet->flow, IDLETIME_PROMOTION_FLOW);
    idletime_net_hold(nq, elem, packet);
    mark_urged(nq, held_last(nq));
}

bool idletime_net_holds_flow(const IdletimeNetQueue *nq, uint32_t flow)
{
    IdletimeNetPacket *held;

    /* Foreground asks for each packet; the list may be as long as the ring. */
    if (likely(!nq->flow_count[flow % IDLETIME_NET_FLOWS])) {
        return false;
    }
    QSIMPLEQ_FOREACH(held, &nq->held, next) {
        if (held->packet.flow == flow) {
            return true;
        }
    }
    return false;
}

IdletimeNetPacket *idletime_net_first_urged(const IdletimeNetQueue *nq)
{
    IdletimeNetPacket *held;

    if (likely(!nq->num_urged)) {
        return NULL;
    }
    QSIMPLEQ_FOREACH(held, &nq->held, next) {
        if (held->urged) {
            return held;
        }
    }
    return NULL;
}

/* ---- ends */

static bool has_begun(const IdletimeNetPacket *held)
{
    return held->is_cut && held->cut.done_bytes;
}

/* Only what was popped last can be unpopped, the last one first. */
void idletime_net_give_back(IdletimeNetQueue *nq)
{
    IdletimeNetPacket *held;

    while ((held = held_last(nq)) && held->popped == nq->popped &&
           !has_begun(held) && !held->urged) {
        virtqueue_unpop(nq->q->tx_vq, held->elem, 0);
        nq->popped--;
        held_remove(nq, held);
        g_free(held->elem);
        g_free(held);
    }
}

/* A piece that is under way ends its packet when it comes back. */
static void drop_one(IdletimeNetQueue *nq, IdletimeNetPacket *held, bool push)
{
    held_remove(nq, held);
    if (held == nq->piece_of) {
        held->finished = true;
        return;
    }
    if (push) {
        virtqueue_push(nq->q->tx_vq, held->elem, 0);
    } else {
        virtqueue_detach_element(nq->q->tx_vq, held->elem, 0);
    }
    g_free(held->elem);
    g_free(held);
    idletime_stat_add(&nq->owner->gate->stats.dropped, 1);
}

void idletime_net_drop(IdletimeNetQueue *nq, bool push)
{
    IdletimeNetPacket *held;

    while ((held = QSIMPLEQ_FIRST(&nq->held))) {
        drop_one(nq, held, push);
    }
}
