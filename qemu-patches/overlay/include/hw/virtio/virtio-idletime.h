/*
 * virtio: what devices that hold requests or packets have in common.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef VIRTIO_IDLETIME_H
#define VIRTIO_IDLETIME_H

#include "qapi/error.h"
#include "hw/virtio/virtio.h"
#include "idletime/device/device.h"

/**
 * idletime_virtio_can_hold: may a disk on @vdev hold requests?  In order, what
 * is behind a held request of its queue could not complete, and the order is
 * not in the migration stream: on the other side held requests would never
 * complete.
 */
static inline bool idletime_virtio_can_hold(VirtIODevice *vdev,
                                            IdletimeClass class,
                                            const char *queues, Error **errp)
{
    if (virtio_has_feature(vdev->host_features, VIRTIO_F_IN_ORDER)) {
        error_setg(errp, "property '%s' is '%s', but 'in_order' is 'on': "
                   "held requests would delay all behind them; use "
                   "in_order=off, the default, or class 'foreground'",
                   *queues ? "idletime-background-queues" : "idletime-class",
                   *queues ? queues : IdletimeClass_str(class));
        return false;
    }
    return true;
}

/**
 * idletime_virtio_driver_goes: is it gone with @status, or may it no longer
 * access memory?  Some drivers submit before DRIVER_OK: it has to go, not to
 * be absent.  Context: BQL, before the status changes.
 */
static inline bool idletime_virtio_driver_goes(VirtIODevice *vdev,
                                               uint8_t status)
{
    return !(status & VIRTIO_CONFIG_S_DRIVER_OK) &&
           ((vdev->status & VIRTIO_CONFIG_S_DRIVER_OK) ||
            virtio_device_disabled(vdev));
}

#endif
