/*
 * Idletime device: attaching a device to a resource, and detaching it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "hw/qdev-core.h"
#include "idletime/device/attach.h"
#include "qemu/main-loop.h"

/* ---- attach */

static bool check_detached(Object *obj, Error **errp)
{
    const IdletimeDevice *dev = idletime_device_of(obj);
    g_autofree char *name = dev ? idletime_device_name(dev) : NULL;

    if (dev && dev->detaching) {
        error_setg(errp, "device '%s' is being detached from idletime-resource "
                   "'%s': wait for the event IDLETIME_DETACHED", name,
                   idletime_resource_id(dev->res));
    } else if (dev) {
        error_setg(errp, "device '%s' is attached to idletime-resource '%s': "
                   "use idletime-detach first, or idletime-set to change its "
                   "class", name, idletime_resource_id(dev->res));
    }
    return !dev;
}

bool idletime_attach(Object *obj, const IdletimeConf *conf, Error **errp)
{
    const IdletimeAttachableClass *iac = IDLETIME_ATTACHABLE_GET_CLASS(obj);

    GLOBAL_STATE_CODE();
    if (!check_detached(obj, errp)) {
        return false;
    }
    if (conf->dscp && iac->ops->kind != IDLETIME_KIND_UPLINK) {
        error_setg(errp, "'dscp' is '%s', but a %s has no packets: leave it "
                   "out", conf->dscp, object_get_typename(obj));
        return false;
    }
    return iac->attach(obj, conf, errp);
}

bool idletime_attach_configured(Object *obj, const IdletimeConf *conf,
                                Error **errp)
{
    return conf->resource ? idletime_attach(obj, conf, errp) :
                            idletime_conf_check_unset(conf, errp);
}

/* ---- detach */

bool idletime_detach(Object *obj, Error **errp)
{
    const IdletimeDevice *dev = idletime_device_of(obj);

    GLOBAL_STATE_CODE();
    if (!dev) {
        g_autofree char *path = object_get_canonical_path(obj);

        error_setg(errp, "device '%s' is attached to no idletime-resource; "
                   "query-idletime lists those that are", path);
        return false;
    }
    return dev->detaching ||
           IDLETIME_ATTACHABLE_GET_CLASS(obj)->detach(obj, errp);
}

/* ---- finding */

static Object *attachable(Object *obj)
{
    return object_dynamic_cast(obj, TYPE_IDLETIME_ATTACHABLE);
}

static int find_child(Object *child, void *opaque)
{
    Object **found = opaque;

    *found = attachable(child);
    return *found != NULL;
}

/* The device of a virtio transport is its child. */
static Object *attachable_of(Object *obj)
{
    Object *found = attachable(obj);

    if (!found) {
        object_child_foreach(obj, find_child, &found);
    }
    return found;
}

static char *served_types(void)
{
    g_autoptr(GSList) list =
        object_class_get_list_sorted(TYPE_IDLETIME_ATTACHABLE, false);
    GString *text = g_string_new(NULL);

    for (GSList *l = list; l; l = l->next) {
        g_string_append_printf(text, "%s%s", text->len ? ", " : "",
                               object_class_get_name(l->data));
    }
    return g_string_free(text, false);
}

Object *idletime_attachable_find(const char *name, Error **errp)
{
    Object *obj = object_resolve_path_at(machine_get_container("peripheral"),
                                         name);
    Object *found;

    GLOBAL_STATE_CODE();
    if (!obj || !object_dynamic_cast(obj, TYPE_DEVICE)) {
        error_setg(errp, "no device has the id or the QOM path '%s'", name);
        return NULL;
    }
    found = attachable_of(obj);
    if (!found) {
        g_autofree char *types = served_types();

        error_setg(errp, "device '%s' is a %s, which cannot be attached to an "
                   "idletime-resource; served are: %s", name,
                   object_get_typename(obj), types);
        return NULL;
    }
    if (!qdev_is_realized(DEVICE(found))) {
        error_setg(errp, "device '%s' is not realized", name);
        return NULL;
    }
    return found;
}

/* ---- the interface */

static const TypeInfo idletime_attachable_info = {
    .name = TYPE_IDLETIME_ATTACHABLE,
    .parent = TYPE_INTERFACE,
    .class_size = sizeof(IdletimeAttachableClass),
};

static void idletime_attachable_register_types(void)
{
    type_register_static(&idletime_attachable_info);
}

type_init(idletime_attachable_register_types)
