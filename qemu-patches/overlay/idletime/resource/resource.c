/*
 * idletime-resource: one contended host resource, as a QOM object.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Holds what the operator set and the mapped boards; decides nothing.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "qom/object_interfaces.h"
#include "qemu/lockable.h"
#include "idletime/device/device.h"
#include "idletime/resource/resource.h"
#include "system/qtest.h"
#include "trace.h"

typedef struct SettingInfo {
    const char *name;
    int64_t standard;
    int64_t min;
    int64_t max;
    int64_t multiple;
    bool is_bool;
    int64_t uplink;     /* the standard of an uplink; 0: the same */
} SettingInfo;

static const SettingInfo setting_info[IDLETIME_SETTING__MAX] = {
    /*
     * 20 ms: above the gaps within a burst on rotating disks (9-15 ms).
     * 5 ms: four packets of 10 Mbit/s (uplink.c).
     */
    [IDLETIME_INTERVAL_US] = {
        "interval-us", 20000, 0, 3600000000LL, 1, .uplink = 5000
    },
    /* An uplink would idle while we are told that a packet has left. */
    [IDLETIME_MAX_INFLIGHT] = {
        "max-inflight", 1, 1, IDLETIME_TOKENS, 1, .uplink = 2
    },
    /* 128 KiB: about one positioning time of transfer on a rotating disk */
    [IDLETIME_MAX_REQUEST_BYTES] = {
        "max-request-bytes", 131072, 4096, 1 << 30, 4096
    },
    /* 5 s: far below the 60 s of Windows and 120 s of Linux's hung tasks */
    [IDLETIME_MAX_HOLD_MS] = { "max-hold-ms", 5000, 0, 3600000, 1 },
    [IDLETIME_WEIGHT] = { "weight", 100, 1, 10000, 1 },
    [IDLETIME_AUTO] = { "auto", 0, 0, 1, 1, .is_bool = true },
    /* 5 %: about what the peers cost; 1000 is a foreground of a tenth */
    [IDLETIME_BUDGET_PERCENT] = { "budget-percent", 5, 0, 1000, 1 },
    [IDLETIME_SHADOW] = { "shadow", 0, 0, 1, 1, .is_bool = true },
    [IDLETIME_RATE_BPS] = { "rate-bps", 0, 0, 1000000000000LL, 1 },
};

static QTAILQ_HEAD(, IdletimeResource) resources =
    QTAILQ_HEAD_INITIALIZER(resources);

QEMUClockType idletime_clock(void)
{
    /* As block accounting does, whose timestamps we take. */
    return qtest_enabled() ? QEMU_CLOCK_VIRTUAL : QEMU_CLOCK_REALTIME;
}

bool idletime_resource_learns(const IdletimeResource *res)
{
    return !qatomic_read(&res->uplink) &&
           (idletime_resource_get(res, IDLETIME_AUTO) ||
            idletime_resource_get(res, IDLETIME_SHADOW));
}

IdletimeGoal idletime_resource_goal(const IdletimeResource *res)
{
    return (IdletimeGoal) {
        .share = idletime_resource_get(res, IDLETIME_BUDGET_PERCENT) / 100.0,
        .interval_ns = idletime_resource_get(res, IDLETIME_INTERVAL_US) *
                       SCALE_US,
    };
}

static uint32_t max_inflight(const IdletimeResource *res)
{
    return idletime_resource_get(res, IDLETIME_AUTO) &&
           !qatomic_read(&res->uplink) &&
           !qatomic_read(&res->given[IDLETIME_MAX_INFLIGHT]) ?
           IDLETIME_TOKENS :
           idletime_resource_get(res, IDLETIME_MAX_INFLIGHT);
}

static int64_t interval_ns(const IdletimeResource *res)
{
    int64_t learned_ns = qatomic_read(&res->uplink_interval_ns);

    return learned_ns && idletime_resource_get(res, IDLETIME_AUTO) ?
           learned_ns : idletime_resource_get(res, IDLETIME_INTERVAL_US) *
                        SCALE_US;
}

IdletimeRule idletime_resource_rule(const IdletimeResource *res)
{
    return (IdletimeRule) {
        .interval_ns = interval_ns(res),
        .max_hold_ns = idletime_resource_get(res, IDLETIME_MAX_HOLD_MS) *
                       SCALE_MS,
        .max_inflight = max_inflight(res),
    };
}

const char *idletime_resource_id(const IdletimeResource *res)
{
    return object_get_canonical_path_component(OBJECT(res));
}

/* ---- settings */

bool idletime_setting_check(IdletimeSetting setting, int64_t value,
                            Error **errp)
{
    const SettingInfo *info = &setting_info[setting];

    if (value < info->min || value > info->max || value % info->multiple) {
        error_setg(errp, "idletime-resource property '%s' is %" PRId64
                   ", must be %" PRId64 " to %" PRId64 "%s",
                   info->name, value, info->min, info->max,
                   info->multiple > 1 ? " and a multiple of 4096" : "");
        return false;
    }
    return true;
}

void idletime_resource_make_uplink(IdletimeResource *res)
{
    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        if (setting_info[i].uplink && !res->given[i]) {
            qatomic_set(&res->setting[i], setting_info[i].uplink);
        }
    }
    qatomic_set(&res->uplink, true);
    QEMU_LOCK_GUARD(&res->lock);
    g_free(g_steal_pointer(&res->learner));
}

void idletime_resource_served(IdletimeResource *res, uint32_t bytes,
                              uint32_t n, int64_t took_ns)
{
    idletime_uplink_note(&res->packets, bytes, n, took_ns);
    qatomic_set(&res->uplink_interval_ns,
                idletime_uplink_interval(&res->packets, 0));
}

/* What was before, perhaps under other settings, teaches nothing. */
static void learn_from_now(IdletimeResource *res)
{
    IdletimeLearner *learner = g_new(IdletimeLearner, 1);

    idletime_learner_init(learner, res->complete ? idletime_now_ns() :
                                                   INT64_MIN);
    QEMU_LOCK_GUARD(&res->lock);
    g_free(res->learner);
    res->learner = learner;
}

void idletime_resource_set(IdletimeResource *res, IdletimeSetting setting,
                           int64_t value)
{
    IdletimeDevice *dev;

    bool learned = idletime_resource_learns(res);

    qatomic_set(&res->setting[setting], value);
    qatomic_set(&res->given[setting], true);
    if (!learned && idletime_resource_learns(res)) {
        learn_from_now(res);
    }
    if (!res->complete) {
        return;
    }
    trace_idletime_resource_set(idletime_resource_id(res),
                                setting_info[setting].name, value);
    QTAILQ_FOREACH(dev, &res->devices, next) {
        idletime_device_kick(dev);
    }
}

/* QOM's types differ, the table's do not. */
static bool setting_visit(Visitor *v, const char *name,
                          const SettingInfo *info, int64_t *value,
                          Error **errp)
{
    bool on = *value;

    if (!info->is_bool) {
        return visit_type_int64(v, name, value, errp);
    }
    if (!visit_type_bool(v, name, &on, errp)) {
        return false;
    }
    *value = on;
    return true;
}

static void setting_get(Object *obj, Visitor *v, const char *name,
                        void *opaque, Error **errp)
{
    const SettingInfo *info = opaque;
    int64_t value = idletime_resource_get(IDLETIME_RESOURCE(obj),
                                          info - setting_info);

    setting_visit(v, name, info, &value, errp);
}

static void setting_set(Object *obj, Visitor *v, const char *name,
                        void *opaque, Error **errp)
{
    const SettingInfo *info = opaque;
    IdletimeSetting setting = info - setting_info;
    int64_t value = 0;

    if (setting_visit(v, name, info, &value, errp) &&
        idletime_setting_check(setting, value, errp)) {
        idletime_resource_set(IDLETIME_RESOURCE(obj), setting, value);
    }
}

/* ---- boards */

IdletimeBoards *idletime_boards_new(void)
{
    IdletimeBoards *boards = g_new0(IdletimeBoards, 1);

    boards->fg_write.fd = boards->fg_read.fd = boards->bg.fd = -1;
    boards->fg_write.guard = boards->fg_read.guard = boards->bg.guard = -1;
    return boards;
}

void idletime_boards_free(IdletimeBoards *boards)
{
    if (boards) {
        idletime_board_close(&boards->fg_write);
        idletime_board_close(&boards->fg_read);
        idletime_board_close(&boards->bg);
        g_free(boards);
    }
}

IdletimeBoard *idletime_boards_map(const IdletimeResource *res,
                                   IdletimeBoards *boards,
                                   IdletimeBoardKind kind, bool writable,
                                   Error **errp)
{
    IdletimeBoard *board = kind == IDLETIME_BOARD_BACKGROUND ? &boards->bg :
                           writable ? &boards->fg_write : &boards->fg_read;
    IdletimeError err;

    if (!board->map &&
        !idletime_board_open(board, res->path, kind, writable, &err)) {
        error_setg(errp, "idletime-resource '%s': %s",
                   idletime_resource_id(res), err.text);
        return NULL;
    }
    return board;
}

IdletimeBoard *idletime_resource_board(IdletimeResource *res,
                                       IdletimeBoardKind kind, bool writable,
                                       Error **errp)
{
    return idletime_boards_map(res, res->boards, kind, writable, errp);
}

/*
 * Boards are told apart by their file, which has the same number for every
 * path that leads to it.
 */
static bool same_arena(const IdletimeResource *a, const IdletimeResource *b)
{
    return a->boards->fg_read.inode == b->boards->fg_read.inode &&
           a->boards->fg_read.device == b->boards->fg_read.device;
}

static bool check_unique(IdletimeResource *res, Error **errp)
{
    IdletimeResource *other;

    QTAILQ_FOREACH(other, &resources, next) {
        if (same_arena(res, other)) {
            error_setg(errp, "idletime-resource property 'path': '%s' is "
                       "already used by '%s'; use one object per path",
                       res->path, idletime_resource_id(other));
            return false;
        }
    }
    return true;
}

static void idletime_resource_complete(UserCreatable *uc, Error **errp)
{
    IdletimeResource *res = IDLETIME_RESOURCE(uc);
    IdletimeError err;

    if (!res->path || !*res->path) {
        error_setg(errp, "idletime-resource needs the property 'path': the "
                   "directory of the arena, such as /run/idletime/sda");
        return;
    }
    if (!idletime_arena_create(res->path, &err)) {
        error_setg(errp, "idletime-resource '%s': %s",
                   idletime_resource_id(res), err.text);
        return;
    }
    /* Early: a bad board is an error here, not at the first device. */
    if (!idletime_resource_board(res, IDLETIME_BOARD_FOREGROUND, false, errp) ||
        !check_unique(res, errp)) {
        return;
    }
    QTAILQ_INSERT_TAIL(&resources, res, next);
    res->complete = true;
}

IdletimeResource *idletime_resource_find(const char *id, const char *property,
                                         Error **errp)
{
    Object *obj = object_resolve_path_component(object_get_objects_root(), id);
    Object *res = obj ? object_dynamic_cast(obj, TYPE_IDLETIME_RESOURCE) : NULL;

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

    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        res->setting[i] = setting_info[i].standard;
    }
    res->boards = idletime_boards_new();
    QTAILQ_INIT(&res->devices);
    qemu_mutex_init(&res->lock);
}

static void idletime_resource_finalize(Object *obj)
{
    IdletimeResource *res = IDLETIME_RESOURCE(obj);

    if (res->complete) {
        idletime_resource_unwatch(res);
        QTAILQ_REMOVE(&resources, res, next);
    }
    idletime_boards_free(res->old_boards);
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
        object_class_property_add(oc, setting_info[i].name,
                                  setting_info[i].is_bool ? "bool" : "int",
                                  setting_get, setting_set, NULL,
                                  (void *)&setting_info[i]);
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
