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

/*
 * The deadline of a packet, where max-hold-ms is not shorter: half of TCP's
 * smallest retransmission timeout (200 ms on Linux), and far below the 5 s of
 * a Linux guest's transmit watchdog.
 */
#define HOLD_MAX_NS (100 * 1000 * 1000LL)

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

/* ---- realize */

static void net_reclassified(IdletimeDevice *dev)
{
    VirtIONetIdletime *it = container_of(dev, VirtIONetIdletime, dev);

    idletime_net_pump(it);
}

static const IdletimeDeviceOps net_ops = {
    .reclassified = net_reclassified,
};

static void queues_init(VirtIONetIdletime *it)
{
    VirtIONet *n = it->n;

    it->gate = it->dev.gate[0];
    it->gate->pump = idletime_net_pump;
    it->gate->opaque = it;
    it->gate->hold_max_ns = HOLD_MAX_NS;
    it->queue = g_new0(IdletimeNetQueue, it->dev.num_queues);
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        IdletimeNetQueue *nq = &it->queue[i];

        nq->owner = it;
        nq->index = i;
        nq->q = &n->vqs[i];
        idletime_tap_open(&nq->tap, n->nic_conf.peers.ncs[i],
                          idletime_net_drained, nq);
        nq->stall_timer = timer_new_ns(idletime_clock(), idletime_net_stalled,
                                       nq);
    }
}

static void queues_free(VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        idletime_tap_close(&it->queue[i].tap);
        timer_free(it->queue[i].stall_timer);
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
    if (!attach(n, it, errp)) {
        g_free(it);
        return false;
    }
    n->idletime = it;
    return true;
}

/* ---- status */

void idletime_net_set_status(VirtIONet *n, uint8_t status)
{
}

void idletime_net_queue_reset(VirtIONet *n, unsigned index)
{
}

void idletime_net_unrealize(VirtIONet *n)
{
    VirtIONetIdletime *it = n->idletime;

    if (!it) {
        return;
    }
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        idletime_net_leave(&it->queue[i]);
    }
    n->idletime = NULL;
    queues_free(it);
    idletime_device_cleanup(&it->dev);
    g_free(it);
}
