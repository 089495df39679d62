/*
 * virtio-net: foreground packets, sent and received, are events.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "virtio-net-idletime-impl.h"

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

VirtQueueElement *idletime_net_send_foreground(IdletimeNetQueue *nq,
                                               VirtQueueElement *elem)
{
    idletime_net_free_tap(nq->owner);
    post_foreground(nq->owner, bytes_of(nq, elem));
    return elem;
}

void idletime_net_received_slow(NetClientState *nc, const uint8_t *buf,
                                size_t size)
{
    VirtIONet *n = qemu_get_nic_opaque(nc);
    VirtIONetIdletime *it = n->idletime;
    IdletimeClass class = idletime_queue_class(&it->dev, nc->queue_index);
    struct iovec iov = { .iov_base = (void *)buf, .iov_len = size };
    IdletimePacket packet;

    assert(bql_locked());
    if (size <= n->host_hdr_len || (buf[n->host_hdr_len] & 1)) {
        /* To all or to many: whoever sends it, it is nobody's foreground. */
        return;
    }
    if (class == IDLETIME_CLASS_GUEST) {
        idletime_packet_parse(&iov, 1, n->host_hdr_len, &packet);
        if (idletime_net_is_marked(it, &packet)) {
            return;
        }
    }
    if (class != IDLETIME_CLASS_BACKGROUND) {
        /* An event, but no bytes of the uplink. */
        post_foreground(it, 0);
    }
}
