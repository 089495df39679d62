/*
 * idletime-resource: one contended host resource, as a QOM object.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Holds what the operator set and the mapped boards; decides nothing.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qom/object_interfaces.h"
#include "qemu/main-loop.h"
#include "idletime/resource/resource.h"
#include "system/qtest.h"

static QTAILQ_HEAD(, IdletimeResource) resources =
    QTAILQ_HEAD_INITIALIZER(resources);

QEMUClockType idletime_clock(void)
{
    /* As block accounting does, whose timestamps we take. */
    return qtest_enabled() ? QEMU_CLOCK_VIRTUAL : QEMU_CLOCK_REALTIME;
}

const char *idletime_resource_id(const IdletimeResource *res)
{
    return object_get_canonical_path_component(OBJECT(res));
}

/* ---- devices */

bool idletime_resource_join(IdletimeResource *res, IdletimeResourceKind kind,
                            Error **errp)
{
    static const char *const device[IDLETIME_KIND__MAX] = {
        [IDLETIME_KIND_DISK] = "disk",
        [IDLETIME_KIND_UPLINK] = "network device",
    };

    GLOBAL_STATE_CODE();
    if (res->users && res->kind != kind) {
        error_setg(errp, "property 'idletime' is '%s', which a %s uses, so a "
                   "%s cannot: add an idletime-resource with another path",
                   idletime_resource_id(res), device[res->kind],
                   device[kind]);
        return false;
    }
    if (!res->users && res->kind != kind) {
        idletime_resource_become(res, kind);
    }
    res->users++;
    object_ref(OBJECT(res));
    return true;
}

void idletime_resource_leave(IdletimeResource *res)
{
    GLOBAL_STATE_CODE();
    res->users--;
    object_unref(OBJECT(res));
}

/* ---- settings as properties */

static void setting_get(Object *obj, Visitor *v, const char *name,
                        void *opaque, Error **errp)
{
    const IdletimeSettingInfo *info = opaque;
    IdletimeSetting setting = info - idletime_setting_info;
    int64_t value = idletime_resource_get(IDLETIME_RESOURCE(obj), setting);

    idletime_setting_visit(v, setting, &value, errp);
}

static void setting_set(Object *obj, Visitor *v, const char *name,
                        void *opaque, Error **errp)
{
    const IdletimeSettingInfo *info = opaque;
    IdletimeSetting setting = info - idletime_setting_info;
    int64_t value = 0;

    if (idletime_setting_visit(v, setting, &value, errp) &&
        idletime_setting_check(setting, value, errp)) {
        idletime_resource_set(IDLETIME_RESOURCE(obj), setting, value);
    }
}

/* ---- creation */

static bool check_unique(IdletimeResource *res, Error **errp)
{
    IdletimeResource *other;

    QTAILQ_FOREACH(other, &resources, next) {
        if (idletime_boards_same(res->boards, other->boards)) {
            error_setg(errp, "idletime-resource property 'path': '%s' is "
                       "already used by '%s'; use one object per path",
                       res->path, idletime_resource_id(other));
            return false;
        }
    }
    return true;
}

static bool open_observer(IdletimeResource *res, Error **errp)
{
    IdletimeError err;

    if (!idletime_observer_open(&res->observer, &res->boards->arena, &err)) {
        error_setg(errp, "idletime-resource '%s': %s",
                   idletime_resource_id(res), err.text);
        return false;
    }
    return true;
}

static void idletime_resource_complete(UserCreatable *uc, Error **errp)
{
    IdletimeResource *res = IDLETIME_RESOURCE(uc);

    if (!res->path || !*res->path) {
        error_setg(errp, "idletime-resource needs the property 'path': the "
                   "directory of the arena, such as /run/idletime/sda");
        return;
    }
    res->boards = idletime_boards_new(idletime_resource_id(res), res->path,
                                      errp);
    /* Early: a bad board is an error here, not at the first device. */
    if (!res->boards ||
        !idletime_boards_map(res->boards, IDLETIME_BOARD_FOREGROUND, false,
                             errp) ||
        !check_unique(res, errp) || !open_observer(res, errp)) {
        return;
    }
    /* A disk, until its first device says that it is none. */
    idletime_resource_become(res, IDLETIME_KIND_DISK);
    QTAILQ_INSERT_TAIL(&resources, res, next);
    res->complete = true;
}

/* ---- finding */

IdletimeResource *idletime_resource_find(const char *id, const char *property,
                                         Error **errp)
{
    Object *obj = object_resolve_path_component(object_get_objects_root(), id);
    Object *res = obj ? object_dynamic_cast(obj, TYPE_IDLETIME_RESOURCE) : NULL;

    GLOBAL_STATE_CODE();
    if (!res) {
        error_setg(errp, "property '%s': no idletime-resource has the id '%s'; "
                   "add -object idletime-resource,id=%s,path=DIRECTORY",
                   property, id, id);
        return NULL;
    }
    return IDLETIME_RESOURCE(res);
}

void idletime_resource_foreach(void (*fn)(IdletimeResource *res, void *opaque),
                               void *opaque)
{
    IdletimeResource *res;

    GLOBAL_STATE_CODE();
    QTAILQ_FOREACH(res, &resources, next) {
        fn(res, opaque);
    }
}

/* ---- QOM */

static char *path_get(Object *obj, Error **errp)
{
    return g_strdup(IDLETIME_RESOURCE(obj)->path);
}

static void path_set(Object *obj, const char *value, Error **errp)
{
    IdletimeResource *res = IDLETIME_RESOURCE(obj);

    if (res->complete) {
        error_setg(errp, "idletime-resource property 'path' cannot be changed "
                   "to '%s' while the object exists; add another object",
                   value);
        return;
    }
    g_free(res->path);
    res->path = g_strdup(value);
}

static bool idletime_resource_can_be_deleted(UserCreatable *uc)
{
    return IDLETIME_RESOURCE(uc)->users == 0;
}

static void idletime_resource_init(Object *obj)
{
    IdletimeResource *res = IDLETIME_RESOURCE(obj);

    QTAILQ_INIT(&res->gates);
    notifier_list_init(&res->changed);
    qemu_mutex_init(&res->lock);
}

static void idletime_resource_finalize(Object *obj)
{
    IdletimeResource *res = IDLETIME_RESOURCE(obj);

    if (res->complete) {
        timer_free(res->watch);
        QTAILQ_REMOVE(&resources, res, next);
    }
    idletime_observer_close(&res->observer);
    g_slist_free_full(res->old_boards,
                      (GDestroyNotify)idletime_boards_free);
    idletime_boards_free(res->boards);
    qemu_mutex_destroy(&res->lock);
    g_free(res->learner);
    g_free(res->path);
}

static void idletime_resource_class_init(ObjectClass *oc, void *data)
{
    UserCreatableClass *ucc = USER_CREATABLE_CLASS(oc);

    ucc->complete = idletime_resource_complete;
    ucc->can_be_deleted = idletime_resource_can_be_deleted;
    object_class_property_add_str(oc, "path", path_get, path_set);
    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        const IdletimeSettingInfo *info = &idletime_setting_info[i];

        object_class_property_add(oc, info->name,
                                  info->is_bool ? "bool" : "int",
                                  setting_get, setting_set, NULL,
                                  (void *)info);
    }
}

static const TypeInfo idletime_resource_info = {
    .name = TYPE_IDLETIME_RESOURCE,
    .parent = TYPE_OBJECT,
    .instance_size = sizeof(IdletimeResource),
    .instance_init = idletime_resource_init,
    .instance_finalize = idletime_resource_finalize,
    .class_init = idletime_resource_class_init,
    .interfaces = (InterfaceInfo[]) {
        { TYPE_USER_CREATABLE },
        { }
    }
};

static void idletime_resource_register_types(void)
{
    type_register_static(&idletime_resource_info);
}

type_init(idletime_resource_register_types)
