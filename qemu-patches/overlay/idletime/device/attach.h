/*
 * Idletime device: attaching a device to a resource, and detaching it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A type of device that can be attached has the interface
 * TYPE_IDLETIME_ATTACHABLE.  The properties of a device at its start and the
 * command idletime-attach lead to the same method.
 *
 *   not attached --attach()--> attached --detach()--> detaching
 *        ^                        |                       |
 *        +------- unplugged ------+      nothing is held or in service
 *        +------------------ idletime_device_cleanup() ---+
 *
 * Context of all: BQL.
 */
#ifndef IDLETIME_ATTACH_H
#define IDLETIME_ATTACH_H

#include "idletime/device/device.h"
#include "qom/object.h"

#define TYPE_IDLETIME_ATTACHABLE "idletime-attachable"

typedef struct IdletimeAttachableClass IdletimeAttachableClass;
DECLARE_CLASS_CHECKERS(IdletimeAttachableClass, IDLETIME_ATTACHABLE,
                       TYPE_IDLETIME_ATTACHABLE)

struct IdletimeAttachableClass {
    InterfaceClass parent_class;
    const IdletimeDeviceOps *ops;
    /**
     * attach: the device is attached to nothing.  Under load, stopped or
     * drained: its threads see it either as it was or attached.
     * @obj: the virtio device
     * @conf: resource is set; it is the caller's
     * All or nothing; returns false with @errp set.
     */
    bool (*attach)(Object *obj, const IdletimeConf *conf, Error **errp);
    /**
     * detach: the device is attached and not detaching.  Calls
     * idletime_device_detach(); what is held leaves as foreground; when
     * nothing is held or in service any more, perhaps later, the device is
     * as stock, and idletime_device_cleanup() says so to the monitor.
     * Returns false with @errp set, and nothing has changed.
     */
    bool (*detach)(Object *obj, Error **errp);
};

/**
 * idletime_attach: check what all types have in common, and call the type.
 * @obj: has TYPE_IDLETIME_ATTACHABLE
 */
bool idletime_attach(Object *obj, const IdletimeConf *conf, Error **errp);

/**
 * idletime_attach_configured: part of realize.  With no resource in @conf no
 * other property may be set, and the device is a stock one.
 */
bool idletime_attach_configured(Object *obj, const IdletimeConf *conf,
                                Error **errp);

/** idletime_detach: one that is being detached already goes on with that. */
bool idletime_detach(Object *obj, Error **errp);

/**
 * idletime_attachable_find: by id or QOM path of the device, or of the proxy
 * on its bus, such as virtio-blk-pci.
 */
Object *idletime_attachable_find(const char *name, Error **errp);

#endif
