/*
 * virtio-net: which way packets go: by QEMU, or past it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   netdev             device holds nothing       device holds, or has held
 *                                                 and not sent it yet
 *   tap with vhost     vhost: not seen            QEMU's own path
 *   vhost-user, vdpa   its process: not seen      refused, there is no other
 *   all others         QEMU's own path            QEMU's own path
 *
 * QEMU's own path beside vhost is the one that stock QEMU falls back on where
 * vhost does not start.  virtio-net.c asks us each time before it starts
 * vhost, and here we have it look again.  It stops vhost between two packets
 * and takes over the rings where it was in them; what vhost left is looked
 * for as if the guest had kicked.  The other way waits until nothing is on a
 * list or in the backend's queue: the rest is in the ring, where vhost finds
 * it.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "net/vhost_net.h"
#include "virtio-net-idletime-impl.h"

/* ---- facts */

static NetClientState *peer_of(const VirtIONet *n)
{
    return n->nic_conf.peers.ncs[0];
}

static bool has_vhost(const VirtIONet *n)
{
    return peer_of(n) && get_vhost_net(peer_of(n));
}

/* Its packets can come by QEMU, if that is wanted. */
static bool has_own_path(const VirtIONet *n)
{
    return !has_vhost(n) || peer_of(n)->info->type == NET_CLIENT_DRIVER_TAP;
}

static bool runs(const VirtIONet *n)
{
    const VirtIODevice *vdev = VIRTIO_DEVICE(n);

    return (vdev->status & VIRTIO_CONFIG_S_DRIVER_OK) && vdev->vm_running &&
           (n->status & VIRTIO_NET_S_LINK_UP);
}

/* Where it does not run: as it will be.  Vhost may have failed to start. */
bool idletime_net_is_seen(const IdletimeDevice *dev)
{
    const VirtIONetIdletime *it =
        container_of(dev, VirtIONetIdletime, dev);
    const VirtIONet *n = it->n;

    return !n->vhost_started && (it->by_qemu || !has_vhost(n) || runs(n));
}

/* Something of the time when not all was foreground. */
static bool has_left(const IdletimeNetQueue *nq)
{
    return idletime_net_waits(nq) || nq->num_held || nq->piece_of ||
           nq->leased_bytes || nq->q->async_tx.elem;
}

bool idletime_net_is_released(const VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        if (idletime_net_class(&it->queue[i]) != IDLETIME_CLASS_FOREGROUND ||
            has_left(&it->queue[i])) {
            return false;
        }
    }
    return true;
}

/* ---- decision */

bool idletime_net_can_hold(IdletimeDevice *dev, IdletimeClass class,
                           const char *queues, Error **errp)
{
    const VirtIONet *n = container_of(dev, VirtIONetIdletime, dev)->n;

    if (has_own_path(n)) {
        return true;
    }
    error_setg(errp, "property '%s' is '%s', but netdev '%s' is %s: its "
               "packets do not come by QEMU, which cannot hold them; use a tap "
               "(libvirt: <interface type='network'> or 'bridge'), or class "
               "'foreground'",
               *queues ? "idletime-background-queues" : "idletime-class",
               *queues ? queues : IdletimeClass_str(class), peer_of(n)->name,
               NetClientDriver_str(peer_of(n)->info->type));
    return false;
}

bool idletime_net_by_qemu_slow(const VirtIONet *n)
{
    return n->idletime->by_qemu;
}

/* ---- act */

/* The guest's kicks went to vhost. */
static void look_at_rings(VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        if (it->queue[i].state != IDLETIME_NET_PAUSED) {
            idletime_net_kick(&it->queue[i]);
        }
    }
}

/* Neither a packet for the guest nor the send buffer may be in its way. */
static void make_room_for_vhost(VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        idletime_net_leave(&it->queue[i]);
        qemu_flush_queued_packets(qemu_get_subqueue(it->n->nic, i));
    }
    idletime_tap_free(&it->tap);
}

static void change_path(VirtIONetIdletime *it)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(it->n);
    bool vhost_ran = it->n->vhost_started;

    if (!it->by_qemu) {
        make_room_for_vhost(it);
    }
    VIRTIO_DEVICE_GET_CLASS(vdev)->set_status(vdev, vdev->status);
    if (vhost_ran && !it->n->vhost_started) {
        look_at_rings(it);
    }
}

void idletime_net_choose_path(VirtIONetIdletime *it)
{
    bool by_qemu = has_vhost(it->n) && has_own_path(it->n) &&
                   !idletime_net_is_released(it);

    assert(bql_locked());
    if (by_qemu == it->by_qemu) {
        return;
    }
    it->by_qemu = by_qemu;
    if (it->n->nic) {
        change_path(it);
    }
}
