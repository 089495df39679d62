/*
 * virtio-net: attaching a device to a resource, and detaching it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Both are done under the BQL, as all that a device does: between two of its
 * packets.  A packet that is in the backend's queue at that time is given
 * back to the guest by the one who is there when it has left.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "virtio-net-idletime-impl.h"

/* The LE PHB, lower effort: RFC 8622. */
#define DSCP_STANDARD "1"

/* ---- the class changes */

static bool is_foreground(const VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        if (idletime_net_class(&it->queue[i]) != IDLETIME_CLASS_FOREGROUND) {
            return false;
        }
    }
    return true;
}

static void net_reclassified(IdletimeDevice *dev)
{
    VirtIONetIdletime *it = container_of(dev, VirtIONetIdletime, dev);

    idletime_net_pump(it);
    idletime_net_choose_path(it);
    it->releasing = is_foreground(it) && !idletime_net_is_released(it);
}

static uint64_t net_dscp(const IdletimeDevice *dev)
{
    return container_of(dev, VirtIONetIdletime, dev)->dscp;
}

static const IdletimeDeviceOps net_ops = {
    .kind = IDLETIME_KIND_UPLINK,
    .can_hold = idletime_net_can_hold,
    .is_seen = idletime_net_is_seen,
    .dscp = net_dscp,
    .reclassified = net_reclassified,
};

/* ---- queues */

static void queue_init(VirtIONetIdletime *it, unsigned i)
{
    IdletimeNetQueue *nq = &it->queue[i];

    nq->owner = it;
    nq->index = i;
    nq->q = &it->n->vqs[i];
    QSIMPLEQ_INIT(&nq->held);
    idletime_tap_queue_open(&nq->tap, &it->tap, it->n->nic_conf.peers.ncs[i],
                            idletime_net_drained, nq);
    nq->service_timer = timer_new_ns(idletime_clock(),
                                     idletime_net_service_timer, nq);
}

static void released(void *opaque);

static void queues_init(VirtIONetIdletime *it)
{
    it->gate = it->dev.gate[0];
    it->gate->pump = idletime_net_pump;
    it->gate->opaque = it;
    it->gate->hold_max_ns = IDLETIME_NET_HOLD_NS;
    it->released_bh = aio_bh_new(iohandler_get_aio_context(), released, it);
    idletime_net_calibrate(it);
    it->queue = g_new0(IdletimeNetQueue, it->dev.num_queues);
    idletime_tap_open(&it->tap, it->n->nic_conf.peers.ncs[0]);
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        queue_init(it, i);
    }
    idletime_net_follow_status(it, VIRTIO_DEVICE(it->n)->status);
}

/* Nothing is in service any more, and the tap is the operator's again. */
static void queues_free(VirtIONetIdletime *it)
{
    idletime_net_close_tap(it);
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        timer_free(it->queue[i].service_timer);
    }
    qemu_bh_delete(it->released_bh);
    g_free(it->queue);
}

/* ---- attach */

static bool parse_dscp(VirtIONetIdletime *it, const char *list, Error **errp)
{
    if (!idletime_dscp_parse(list, &it->dscp)) {
        error_setg(errp, "property 'idletime-dscp' is '%s', must be a list of "
                   "code points from 0 to 63, such as 1,8,10-12", list);
        return false;
    }
    return true;
}

static bool device_init(VirtIONetIdletime *it, const IdletimeConf *conf,
                        Error **errp)
{
    VirtIONet *n = it->n;
    g_autofree AioContext **ctx = g_new(AioContext *, n->max_queue_pairs);

    for (unsigned i = 0; i < n->max_queue_pairs; i++) {
        ctx[i] = qemu_get_aio_context();
    }
    return idletime_device_init(&it->dev, DEVICE(n), conf, n->max_queue_pairs,
                                ctx, &net_ops, errp);
}

static void leave(VirtIONetIdletime *it)
{
    it->n->idletime = NULL;
    queues_free(it);
    idletime_device_cleanup(&it->dev);
    g_free(it);
}

static bool net_attach(Object *obj, const IdletimeConf *conf, Error **errp)
{
    VirtIONetIdletime *it = g_new0(VirtIONetIdletime, 1);

    assert(bql_locked());
    it->n = VIRTIO_NET(obj);
    if (!parse_dscp(it, conf->dscp ?: DSCP_STANDARD, errp) ||
        !device_init(it, conf, errp)) {
        g_free(it);
        return false;
    }
    queues_init(it);
    it->n->idletime = it;
    if (!idletime_device_start(&it->dev, errp)) {
        leave(it);
        return false;
    }
    return true;
}

/* ---- detach */

/*
 * In a bottom half that no nested event loop runs: who sent the last packet
 * is still at work.  Packets in service are not waited for: they are in the
 * host's queues, and may stay there while a link is down.
 */
static void released(void *opaque)
{
    VirtIONetIdletime *it = opaque;

    if (!idletime_net_is_released(it)) {
        return;
    }
    it->releasing = false;
    idletime_net_choose_path(it);
    if (it->dev.detaching) {
        leave(it);
    }
}

static bool net_detach(Object *obj, Error **errp)
{
    VirtIONetIdletime *it = VIRTIO_NET(obj)->idletime;

    assert(bql_locked());
    idletime_device_detach(&it->dev);
    released(it);
    return true;
}

/* A packet may sit in the backend's queue; it calls us back. */
static void queue_purge(IdletimeNetQueue *nq)
{
    NetClientState *nc = qemu_get_subqueue(nq->owner->n->nic, nq->index);

    idletime_net_move(nq, IDLETIME_NET_PAUSE);
    if (nc->peer) {
        qemu_flush_or_purge_queued_packets(nc->peer, true);
    }
}

void idletime_net_unrealize(VirtIONet *n)
{
    VirtIONetIdletime *it = n->idletime;

    assert(bql_locked());
    if (!it) {
        return;
    }
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        queue_purge(&it->queue[i]);
    }
    leave(it);
}

/* ---- the interface */

void idletime_net_class_init(ObjectClass *klass)
{
    IdletimeAttachableClass *iac = IDLETIME_ATTACHABLE_CLASS(klass);

    iac->ops = &net_ops;
    iac->attach = net_attach;
    iac->detach = net_detach;
}
