/*
 * virtio-net: life cycle of a device that holds background packets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "net/vhost_net.h"
#include "virtio-net-idletime-impl.h"

/* The LE PHB, lower effort: RFC 8622. */
#define DSCP_STANDARD "1"

/* ---- refusals */

static const char *bypass_of(NetClientState *peer)
{
    if (!peer) {
        return NULL;
    }
    switch (peer->info->type) {
    case NET_CLIENT_DRIVER_VHOST_USER:
        return "vhost-user";
    case NET_CLIENT_DRIVER_VHOST_VDPA:
        return "vhost-vdpa";
    default:
        return get_vhost_net(peer) ? "vhost" : NULL;
    }
}

static bool check_bypass(VirtIONet *n, bool holds, Error **errp)
{
    const IdletimeConf *conf = &n->net_conf.idletime.common;
    NetClientState *peer = n->nic_conf.peers.ncs[0];
    const char *bypass = bypass_of(peer);

    if (!bypass) {
        return true;
    }
    if (holds) {
        error_setg(errp, "property '%s' is '%s', but netdev '%s' runs %s, "
                   "which passes packets by QEMU: use a tap with vhost=off "
                   "(libvirt: <driver name='qemu'/>)",
                   conf->queues ? "idletime-background-queues" :
                   "idletime-class", conf->queues ?: conf->class,
                   peer->name, bypass);
        return false;
    }
    warn_report("netdev '%s' runs %s, which passes packets by QEMU: its "
                "device posts no foreground events on idletime-resource '%s'",
                peer->name, bypass, conf->resource);
    return true;
}

static bool holds(const IdletimeConf *conf)
{
    return (conf->queues && *conf->queues) ||
           (conf->class && !g_str_equal(conf->class, "foreground"));
}

static bool check_unset(const IdletimeNetConf *conf, Error **errp)
{
    if (conf->dscp) {
        error_setg(errp, "property 'idletime-dscp' is '%s', but 'idletime' is "
                   "not set: add idletime=ID of an idletime-resource object",
                   conf->dscp);
        return false;
    }
    return idletime_conf_check_unset(&conf->common, errp);
}

static bool parse_dscp(VirtIONetIdletime *it, const char *list, Error **errp)
{
    if (!idletime_dscp_parse(list, &it->dscp)) {
        error_setg(errp, "property 'idletime-dscp' is '%s', must be a list of "
                   "code points from 0 to 63, such as 1,8,10-12", list);
        return false;
    }
    return true;
}

/* ---- realize */

static void net_reclassified(IdletimeDevice *dev)
{
    VirtIONetIdletime *it = container_of(dev, VirtIONetIdletime, dev);

    idletime_net_pump(it);
}

static const IdletimeDeviceOps net_ops = {
    .kind = IDLETIME_KIND_UPLINK,
    .reclassified = net_reclassified,
};

static void queues_init(VirtIONetIdletime *it)
{
    VirtIONet *n = it->n;

    it->gate = it->dev.gate[0];
    it->gate->pump = idletime_net_pump;
    it->gate->opaque = it;
    it->gate->hold_max_ns = IDLETIME_NET_HOLD_NS;
    idletime_net_calibrate(it);
    it->queue = g_new0(IdletimeNetQueue, it->dev.num_queues);
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        IdletimeNetQueue *nq = &it->queue[i];

        nq->owner = it;
        nq->index = i;
        nq->q = &n->vqs[i];
        QSIMPLEQ_INIT(&nq->held);
        idletime_tap_open(&nq->tap, n->nic_conf.peers.ncs[i],
                          idletime_net_drained, nq);
        nq->service_timer = timer_new_ns(idletime_clock(),
                                         idletime_net_service_timer, nq);
    }
}

static void queues_free(VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        idletime_tap_close(&it->queue[i].tap);
        timer_free(it->queue[i].service_timer);
    }
    g_free(it->queue);
}

static bool attach(VirtIONet *n, VirtIONetIdletime *it, Error **errp)
{
    const IdletimeConf *conf = &n->net_conf.idletime.common;
    g_autofree AioContext **ctx = g_new(AioContext *, n->max_queue_pairs);

    for (unsigned i = 0; i < n->max_queue_pairs; i++) {
        ctx[i] = qemu_get_aio_context();
    }
    if (!idletime_device_init(&it->dev, DEVICE(n), conf, n->max_queue_pairs,
                              ctx, &net_ops, errp)) {
        return false;
    }
    queues_init(it);
    if (!idletime_device_start(&it->dev, errp)) {
        queues_free(it);
        idletime_device_cleanup(&it->dev);
        return false;
    }
    return true;
}

bool idletime_net_realize(VirtIONet *n, Error **errp)
{
    const IdletimeNetConf *conf = &n->net_conf.idletime;
    VirtIONetIdletime *it;

    if (!conf->common.resource) {
        return check_unset(conf, errp);
    }
    if (!check_bypass(n, holds(&conf->common), errp)) {
        return false;
    }
    it = g_new0(VirtIONetIdletime, 1);
    it->n = n;
    if (!parse_dscp(it, conf->dscp ?: DSCP_STANDARD, errp) ||
        !attach(n, it, errp)) {
        g_free(it);
        return false;
    }
    n->idletime = it;
    return true;
}

/* ---- status */

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
 */
static void queue_pause(IdletimeNetQueue *nq)
{
    if (nq->num_held) {
        idletime_net_give_back(nq);
        idletime_net_urge(nq, NULL, IDLETIME_PROMOTION_STOP);
        virtio_queue_set_notification(nq->q->tx_vq, 0);
        nq->q->tx_waiting = 1;
        virtio_net_flush_tx(nq->q);
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

/* As a network device whose link is down, and as virtio-net.c does then. */
static void queue_drop(IdletimeNetQueue *nq)
{
    idletime_net_drop(nq, true);
    if (nq->left) {
        queue_drop_ring(nq);
    }
    virtio_notify(VIRTIO_DEVICE(nq->q->n), nq->q->tx_vq);
}

static void queue_follow(IdletimeNetQueue *nq, QueueState state)
{
    nq->paused = state != QUEUE_RUNS && state != QUEUE_RESET;
    if (state == QUEUE_RUNS) {
        return;
    }
    if (state == QUEUE_PAUSED) {
        queue_pause(nq);
    } else if (state == QUEUE_LINK_DOWN && (nq->num_held || nq->left)) {
        queue_drop(nq);
    } else if (state == QUEUE_RESET) {
        idletime_net_drop(nq, false);
    }
    idletime_net_wait(nq, 0);
    idletime_net_settle(nq);
    nq->left = nq->refused = false;
}

void idletime_net_set_status(VirtIONet *n, uint8_t status)
{
    VirtIONetIdletime *it = n->idletime;

    for (unsigned i = 0; it && i < it->dev.num_queues; i++) {
        queue_follow(&it->queue[i], state_of(n, status, i));
    }
}

void idletime_net_queue_reset(VirtIONet *n, unsigned index)
{
    /* Receive and transmit queues alternate. */
    IdletimeNetQueue *nq;

    if (n->idletime && index % 2) {
        nq = &n->idletime->queue[index / 2];
        if (nq->left) {
            /* The flag that it is waited for goes with a bottom half. */
            idletime_net_kick(nq);
        }
        queue_follow(nq, QUEUE_RESET);
    }
}

/* ---- unrealize */

/* A packet may sit in the backend's queue; its callback is ours. */
static void queue_leave(IdletimeNetQueue *nq)
{
    NetClientState *nc = qemu_get_subqueue(nq->q->n->nic, nq->index);

    nq->paused = true;
    if (nc->peer) {
        qemu_flush_or_purge_queued_packets(nc->peer, true);
    }
    idletime_net_leave(nq);
}

void idletime_net_unrealize(VirtIONet *n)
{
    VirtIONetIdletime *it = n->idletime;

    if (!it) {
        return;
    }
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        queue_leave(&it->queue[i]);
    }
    n->idletime = NULL;
    queues_free(it);
    idletime_device_cleanup(&it->dev);
    g_free(it);
}
