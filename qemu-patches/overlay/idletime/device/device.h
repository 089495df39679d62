/*
 * Idletime device: a virtio device attached to a resource.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What block and network devices have in common: properties, the class of
 * each queue, a gate for each thread, and what the monitor shows.
 */
#ifndef IDLETIME_DEVICE_H
#define IDLETIME_DEVICE_H

#include "hw/qdev-core.h"
#include "hw/qdev-properties.h"
#include "idletime/gate/gate.h"
#include "qapi/qapi-types-idletime.h"

/* As given on the command line or by idletime-attach; all NULL: stock QEMU. */
typedef struct IdletimeConf {
    char *resource;     /* idletime */
    char *class;        /* idletime-class */
    char *queues;       /* idletime-background-queues */
    char *dscp;         /* idletime-dscp, of a network device */
} IdletimeConf;

typedef struct IdletimeDevice IdletimeDevice;

typedef struct IdletimeDeviceOps {
    IdletimeResourceKind kind;  /* of the resource that such a device uses */
    /**
     * can_hold: may queues of this device hold requests?  Asked at the start
     * and at each change that leaves a queue with another class than
     * foreground; nothing has changed yet.
     * @class, @queues: as asked for; @queues is never NULL
     * Returns false with @errp set.  NULL: they may.  Context: BQL.
     */
    bool (*can_hold)(IdletimeDevice *dev, IdletimeClass class,
                     const char *queues, Error **errp);
    /**
     * is_seen: do the device's foreground requests come by QEMU?  NULL: they
     * do.  Context: BQL.
     */
    bool (*is_seen)(const IdletimeDevice *dev);
    /** dscp: a bit for each background code point.  NULL: has no packets. */
    uint64_t (*dscp)(const IdletimeDevice *dev);
    /** reclassified: queue classes changed.  Context: BQL. */
    void (*reclassified)(IdletimeDevice *dev);
} IdletimeDeviceOps;

struct IdletimeDevice {
    Object *obj;                    /* the virtio device */
    DeviceState *qdev;              /* the same, or its proxy with the id */
    IdletimeResource *res;
    const IdletimeDeviceOps *ops;

    IdletimeClass class;            /* BQL */
    IdletimeServiceEnd service;     /* BQL; for the books */
    int64_t drained_ns;             /* BQL; for the books */
    bool detaching;                 /* BQL */
    char *queues;                   /* BQL; never NULL */
    uint16_t num_queues;
    uint8_t *queue_class;           /* IdletimeClass; any thread, qatomic */

    unsigned num_gates;
    IdletimeGate **gate;
    uint16_t *queue_gate;           /* index of the gate of each queue */

    QTAILQ_ENTRY(IdletimeDevice) next;
};

/**
 * idletime_device_init: attach to the resource that @conf names.
 * @dev: zeroed
 * @ctx: the context that serves each queue
 * Returns false with @errp set, which names property, value and remedy.
 * Context: BQL.
 */
bool idletime_device_init(IdletimeDevice *dev, DeviceState *qdev,
                          const IdletimeConf *conf, uint16_t num_queues,
                          AioContext **ctx, const IdletimeDeviceOps *ops,
                          Error **errp);

/**
 * idletime_device_start: claim slots; queues get their classes.
 * The gates' pump and opaque must be set.  Context: BQL.
 */
bool idletime_device_start(IdletimeDevice *dev, Error **errp);

/**
 * idletime_device_detach: all queues become foreground for good, and ops->
 * reclassified() is called.  It does not fail: where no slot is to be had,
 * what leaves is not seen by others (the gate's fg_ready is false).
 * Context: BQL.
 */
void idletime_device_detach(IdletimeDevice *dev);

/**
 * idletime_device_cleanup: leave the resource.  Nothing may be held or in
 * service any more.  Sends IDLETIME_DETACHED if it was detaching, also where
 * it was unplugged meanwhile.  Context: BQL.
 */
void idletime_device_cleanup(IdletimeDevice *dev);

/** idletime_conf_check_unset: no resource, so no other property may be set. */
bool idletime_conf_check_unset(const IdletimeConf *conf, Error **errp);

/**
 * idletime_device_set: new class and queue list, or NULL to keep it.
 * All or nothing, but that places which were claimed on the boards before it
 * failed stay claimed until the device leaves.  Context: BQL.
 */
bool idletime_device_set(IdletimeDevice *dev, const IdletimeClass *class,
                         const char *queues, Error **errp);

/** idletime_device_kick: have all of its gates ask again.  Any thread. */
void idletime_device_kick(IdletimeDevice *dev);

/**
 * idletime_device_foreach: those of @res (NULL: of all), in order of their
 * creation.  Context: BQL.
 */
void idletime_device_foreach(const IdletimeResource *res,
                             void (*fn)(IdletimeDevice *dev, void *opaque),
                             void *opaque);

/** idletime_device_of: of the virtio device @obj; NULL: not attached.  BQL. */
IdletimeDevice *idletime_device_of(const Object *obj);

/** idletime_device_find: by id or QOM path.  Context: BQL. */
IdletimeDevice *idletime_device_find(const char *name, Error **errp);

/** idletime_device_name: id, or QOM path (then owned by the caller: g_free) */
char *idletime_device_name(const IdletimeDevice *dev);

/** idletime_queue_class: Context: any thread. */
static inline IdletimeClass idletime_queue_class(const IdletimeDevice *dev,
                                                 unsigned queue)
{
    return qatomic_read(&dev->queue_class[queue]);
}

static inline IdletimeGate *idletime_queue_gate(const IdletimeDevice *dev,
                                                unsigned queue)
{
    return dev->gate[dev->queue_gate[queue]];
}

/**
 * idletime_queue_list_parse: "2-3,6" sets listed[2], [3] and [6].
 * @listed: @num_queues flags, cleared first; @text NULL or "" is no queue
 */
bool idletime_queue_list_parse(const char *text, uint16_t num_queues,
                               bool *listed, Error **errp);

#endif
