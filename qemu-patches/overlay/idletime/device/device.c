/*
 * Idletime device: a virtio device attached to a resource.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-events-idletime.h"
#include "qapi/util.h"
#include "idletime/device/device.h"
#include "qemu/main-loop.h"
#include "system/replay.h"
#include "system/system.h"
#include "trace.h"

static QTAILQ_HEAD(, IdletimeDevice) devices =
    QTAILQ_HEAD_INITIALIZER(devices);

/* ---- names */

char *idletime_device_name(const IdletimeDevice *dev)
{
    return dev->qdev->id ? g_strdup(dev->qdev->id) :
                           object_get_canonical_path(OBJECT(dev->qdev));
}

/* virtio-blk-pci and friends carry the id; the device itself is their child */
static DeviceState *device_with_id(DeviceState *qdev)
{
    bool has_proxy = object_dynamic_cast(OBJECT(qdev), "virtio-device");
    DeviceState *parent = has_proxy && qdev->parent_bus ?
                          qdev->parent_bus->parent : NULL;

    return !qdev->id && parent && parent->id ? parent : qdev;
}

/* ---- the properties */

static bool class_parse(const char *text, IdletimeClass *class, Error **errp)
{
    int value = text ? qapi_enum_parse(&IdletimeClass_lookup, text, -1, NULL) :
                       IDLETIME_CLASS_FOREGROUND;

    if (value < 0) {
        error_setg(errp, "property 'idletime-class' is '%s', must be "
                   "'foreground', 'background' or 'guest'", text);
        return false;
    }
    *class = value;
    return true;
}

bool idletime_conf_check_unset(const IdletimeConf *conf, Error **errp)
{
    const char *name = conf->class ? "idletime-class" :
                       conf->queues ? "idletime-background-queues" :
                       conf->dscp ? "idletime-dscp" : NULL;

    if (name) {
        error_setg(errp, "property '%s' is '%s', but 'idletime' is not set: "
                   "add idletime=ID of an idletime-resource object", name,
                   conf->class ?: conf->queues ?: conf->dscp);
    }
    return !name;
}

static IdletimeClass class_of_queue(IdletimeClass class, bool listed)
{
    return listed ? IDLETIME_CLASS_BACKGROUND : class;
}

/* ---- gates */

static unsigned gate_of_context(IdletimeDevice *dev, AioContext *ctx)
{
    g_autofree char *name = idletime_device_name(dev);
    g_autofree char *label = NULL;

    for (unsigned i = 0; i < dev->num_gates; i++) {
        if (dev->gate[i]->ctx == ctx) {
            return i;
        }
    }
    label = g_strdup_printf("%s/%s", qemu_get_vm_name() ?: "qemu", name);
    dev->gate[dev->num_gates] = idletime_gate_new(dev->res, ctx, label);
    return dev->num_gates++;
}

/* Claims what the classes in @class need. */
static bool join_gates(IdletimeDevice *dev, const uint8_t *class, Error **errp)
{
    for (unsigned i = 0; i < dev->num_queues; i++) {
        if (!idletime_gate_join(idletime_queue_gate(dev, i),
                                class[i] != IDLETIME_CLASS_BACKGROUND,
                                class[i] != IDLETIME_CLASS_FOREGROUND,
                                errp)) {
            return false;
        }
    }
    return true;
}

/* ---- life */

bool idletime_device_init(IdletimeDevice *dev, DeviceState *qdev,
                          const IdletimeConf *conf, uint16_t num_queues,
                          AioContext **ctx, const IdletimeDeviceOps *ops,
                          Error **errp)
{
    IdletimeResource *res = idletime_resource_find(conf->resource, "idletime",
                                                   errp);

    GLOBAL_STATE_CODE();
    if (!res || !class_parse(conf->class, &dev->class, errp) ||
        !idletime_resource_join(res, ops->kind, errp)) {
        return false;
    }
    dev->obj = OBJECT(qdev);
    dev->qdev = device_with_id(qdev);
    dev->res = res;
    dev->ops = ops;
    dev->queues = g_strdup(conf->queues ?: "");
    dev->num_queues = num_queues;
    dev->queue_class = g_new0(uint8_t, num_queues);
    dev->queue_gate = g_new0(uint16_t, num_queues);
    dev->gate = g_new0(IdletimeGate *, num_queues);
    for (unsigned i = 0; i < num_queues; i++) {
        dev->queue_gate[i] = gate_of_context(dev, ctx[i]);
    }
    QTAILQ_INSERT_TAIL(&devices, dev, next);
    return true;
}

bool idletime_device_start(IdletimeDevice *dev, Error **errp)
{
    return idletime_device_set(dev, &dev->class, dev->queues, errp);
}

void idletime_device_detach(IdletimeDevice *dev)
{
    g_autofree char *name = idletime_device_name(dev);

    GLOBAL_STATE_CODE();
    dev->detaching = true;
    dev->class = IDLETIME_CLASS_FOREGROUND;
    g_free(dev->queues);
    dev->queues = g_strdup("");
    for (unsigned i = 0; i < dev->num_queues; i++) {
        idletime_gate_join(idletime_queue_gate(dev, i), true, false, NULL);
        qatomic_store_release(&dev->queue_class[i], IDLETIME_CLASS_FOREGROUND);
    }
    trace_idletime_device_detach(name);
    dev->ops->reclassified(dev);
}

static void say_detached(const IdletimeDevice *dev)
{
    g_autofree char *name = idletime_device_name(dev);
    g_autofree char *path = object_get_canonical_path(OBJECT(dev->qdev));

    trace_idletime_device_detached(name);
    qapi_event_send_idletime_detached(name, path, NULL, NULL, false, false);
}

void idletime_device_cleanup(IdletimeDevice *dev)
{
    GLOBAL_STATE_CODE();
    if (!dev->res) {
        return;
    }
    QTAILQ_REMOVE(&devices, dev, next);
    for (unsigned i = 0; i < dev->num_gates; i++) {
        idletime_gate_free(dev->gate[i]);
    }
    idletime_resource_leave(dev->res);
    g_free(dev->gate);
    g_free(dev->queue_gate);
    g_free(dev->queue_class);
    g_free(dev->queues);
    dev->res = NULL;
    if (dev->detaching) {
        say_detached(dev);
    }
}

/* ---- live changes */

static bool can_hold(IdletimeDevice *dev, IdletimeClass class,
                     const char *queues, Error **errp)
{
    if (replay_mode != REPLAY_MODE_NONE) {
        g_autofree char *name = idletime_device_name(dev);

        /* When they leave depends on the host's clock. */
        error_setg(errp, "device '%s' cannot hold requests (class '%s', "
                   "background queues '%s') while execution is recorded or "
                   "replayed: use class 'foreground', or no 'rr' in -icount",
                   name, IdletimeClass_str(class), queues);
        return false;
    }
    return !dev->ops->can_hold ||
           dev->ops->can_hold(dev, class, queues, errp);
}

bool idletime_device_set(IdletimeDevice *dev, const IdletimeClass *class,
                         const char *queues, Error **errp)
{
    g_autofree bool *listed = g_new0(bool, dev->num_queues);
    g_autofree uint8_t *new_class = g_new0(uint8_t, dev->num_queues);
    IdletimeClass device_class = class ? *class : dev->class;
    g_autofree char *list = g_strdup(queues ?: dev->queues);
    g_autofree char *name = idletime_device_name(dev);
    bool holds = false;

    GLOBAL_STATE_CODE();
    if (dev->detaching) {
        error_setg(errp, "device '%s' is being detached from idletime-resource "
                   "'%s': wait for the event IDLETIME_DETACHED", name,
                   idletime_resource_id(dev->res));
        return false;
    }
    if (!idletime_queue_list_parse(list, dev->num_queues, listed, errp)) {
        return false;
    }
    for (unsigned i = 0; i < dev->num_queues; i++) {
        new_class[i] = class_of_queue(device_class, listed[i]);
        holds |= new_class[i] != IDLETIME_CLASS_FOREGROUND;
    }
    if (holds && !can_hold(dev, device_class, list, errp)) {
        return false;
    }
    if (!join_gates(dev, new_class, errp)) {
        return false;
    }
    for (unsigned i = 0; i < dev->num_queues; i++) {
        /* After the gates' slots, which the device's threads then use. */
        qatomic_store_release(&dev->queue_class[i], new_class[i]);
    }
    dev->class = device_class;
    g_free(dev->queues);
    dev->queues = g_steal_pointer(&list);
    trace_idletime_device_class(name, IdletimeClass_str(dev->class),
                                dev->queues);
    dev->ops->reclassified(dev);
    return true;
}

void idletime_device_kick(IdletimeDevice *dev)
{
    for (unsigned i = 0; i < dev->num_gates; i++) {
        idletime_gate_kick(dev->gate[i]);
    }
}

/* ---- finding */

void idletime_device_foreach(const IdletimeResource *res,
                             void (*fn)(IdletimeDevice *dev, void *opaque),
                             void *opaque)
{
    IdletimeDevice *dev;

    GLOBAL_STATE_CODE();
    QTAILQ_FOREACH(dev, &devices, next) {
        if (!res || dev->res == res) {
            fn(dev, opaque);
        }
    }
}

IdletimeDevice *idletime_device_of(const Object *obj)
{
    IdletimeDevice *dev;

    GLOBAL_STATE_CODE();
    QTAILQ_FOREACH(dev, &devices, next) {
        if (dev->obj == obj) {
            return dev;
        }
    }
    return NULL;
}

static bool is_named(const IdletimeDevice *dev, const char *name)
{
    g_autofree char *own = idletime_device_name(dev);
    g_autofree char *path = object_get_canonical_path(OBJECT(dev->qdev));
    g_autofree char *child = object_get_canonical_path(dev->obj);

    return g_str_equal(name, own) || g_str_equal(name, path) ||
           g_str_equal(name, child);
}

IdletimeDevice *idletime_device_find(const char *name, Error **errp)
{
    IdletimeDevice *dev;

    GLOBAL_STATE_CODE();
    QTAILQ_FOREACH(dev, &devices, next) {
        if (is_named(dev, name)) {
            return dev;
        }
    }
    error_setg(errp, "no device '%s' is attached to an idletime-resource; "
               "query-idletime lists those that are", name);
    return NULL;
}
