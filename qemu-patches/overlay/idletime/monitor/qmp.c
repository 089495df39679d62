/*
 * Idletime: query-idletime and idletime-set.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context: BQL.  Counters of other threads are read as they are.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-idletime.h"
#include "qapi/util.h"
#include "qemu/lockable.h"
#include "idletime/arena/generation.h"
#include "idletime/device/device.h"
#include "idletime/monitor/qmp-impl.h"
#include "idletime/work/divergence.h"
#include "idletime/work/migration.h"
#include "idletime/work/work.h"

static uint64_t stat_read(const uint64_t *counter)
{
    return qatomic_read(counter);
}

/* ---- devices */

static void add_gate_traffic(IdletimeDeviceInfo *info,
                             const IdletimeGate *gate)
{
    const IdletimeGateStats *stats = &gate->stats;

    info->participants += gate->fg_ready + gate->bg_ready;
    info->foreground->requests += stat_read(&gate->fg.started);
    info->foreground->bytes += stat_read(&gate->fg.bytes);
    info->background->requests += stat_read(&stats->bg_requests);
    info->background->bytes += stat_read(&stats->bg_bytes);
    info->passed += stat_read(&stats->passed);
    info->dropped += stat_read(&stats->dropped);
    info->held += stat_read(&stats->held);
    info->in_service += stat_read(&stats->in_service);
    info->pieces += stat_read(&stats->pieces);
}

static void add_gate_promotions(IdletimePromotions *sum, const uint64_t *n)
{
    sum->deadline += stat_read(&n[IDLETIME_PROMOTION_DEADLINE]);
    sum->flush += stat_read(&n[IDLETIME_PROMOTION_FLUSH]);
    sum->journal += stat_read(&n[IDLETIME_PROMOTION_JOURNAL]);
    sum->ring += stat_read(&n[IDLETIME_PROMOTION_RING]);
    sum->class_change += stat_read(&n[IDLETIME_PROMOTION_CLASS_CHANGE]);
    sum->flow += stat_read(&n[IDLETIME_PROMOTION_FLOW]);
    sum->stop += stat_read(&n[IDLETIME_PROMOTION_STOP]);
}

static void add_gate_waits(IdletimeWaits *sum, const uint64_t *n)
{
    sum->foreground += stat_read(&n[IDLETIME_WAIT_FOREGROUND]);
    sum->interval += stat_read(&n[IDLETIME_WAIT_INTERVAL]);
    sum->budget += stat_read(&n[IDLETIME_WAIT_BUDGET]);
    sum->inflight += stat_read(&n[IDLETIME_WAIT_INFLIGHT]);
    sum->turn += stat_read(&n[IDLETIME_WAIT_TURN]);
    sum->arena += stat_read(&n[IDLETIME_WAIT_ARENA]);
}

static IdletimeHold *hold_info(IdletimeGate *const *gate, unsigned num_gates)
{
    IdletimeHold *hold = g_new0(IdletimeHold, 1);
    uint64List **bound = &hold->boundaries_us;
    uint64List **bin = &hold->bins;

    for (unsigned b = 0; b < IDLETIME_HOLD_BINS; b++) {
        uint64_t sum = 0;

        for (unsigned i = 0; i < num_gates; i++) {
            sum += stat_read(&gate[i]->stats.hold_bins[b]);
        }
        QAPI_LIST_APPEND(bin, sum);
        if (b < IDLETIME_HOLD_BINS - 1) {
            QAPI_LIST_APPEND(bound, (IDLETIME_HOLD_FIRST_NS << b) / SCALE_US);
        }
    }
    for (unsigned i = 0; i < num_gates; i++) {
        hold->max_us = MAX(hold->max_us,
                           stat_read(&gate[i]->stats.hold_max_ns) / SCALE_US);
    }
    return hold;
}

/* As idletime-dscp is written: 1,8,10-12. */
static char *code_points(uint64_t set)
{
    GString *text = g_string_new(NULL);

    for (unsigned first = 0, last; first < 64; first = last + 1) {
        last = first;
        if (!(set >> first & 1)) {
            continue;
        }
        while (last < 63 && set >> (last + 1) & 1) {
            last++;
        }
        g_string_append_printf(text, "%s%u", text->len ? "," : "", first);
        if (last > first) {
            g_string_append_printf(text, "-%u", last);
        }
    }
    return g_string_free(text, false);
}

static IdletimeDeviceInfo *device_info(const IdletimeDevice *dev)
{
    IdletimeDeviceInfo *info = g_new0(IdletimeDeviceInfo, 1);

    info->device = idletime_device_name(dev);
    info->q_class = dev->class;
    info->service = dev->service;
    info->detaching = dev->detaching;
    info->seen = !dev->ops->is_seen || dev->ops->is_seen(dev);
    info->background_queues = g_strdup(dev->queues);
    info->dscp = dev->ops->dscp ? code_points(dev->ops->dscp(dev)) : NULL;
    info->foreground = g_new0(IdletimeTraffic, 1);
    info->background = g_new0(IdletimeTraffic, 1);
    info->promotions = g_new0(IdletimePromotions, 1);
    info->waits = g_new0(IdletimeWaits, 1);
    for (unsigned i = 0; i < dev->num_gates; i++) {
        add_gate_traffic(info, dev->gate[i]);
        add_gate_promotions(info->promotions, dev->gate[i]->stats.promotions);
        add_gate_waits(info->waits, dev->gate[i]->stats.waits);
    }
    info->hold = hold_info(dev->gate, dev->num_gates);
    info->hold->drained_us = dev->drained_ns / SCALE_US;
    return info;
}

/* ---- jobs, exports, migration */

static IdletimeWorkInfo *work_info(const IdletimeWork *work)
{
    const IdletimeGateStats *stats = &work->gate->stats;
    IdletimeWorkInfo *info = g_new0(IdletimeWorkInfo, 1);

    info->id = g_strdup(work->id);
    info->detaching = work->detaching;
    info->background = g_new0(IdletimeTraffic, 1);
    info->background->requests = stat_read(&stats->bg_requests);
    info->background->bytes = stat_read(&stats->bg_bytes);
    info->held = stat_read(&stats->held);
    info->in_service = stat_read(&stats->in_service);
    info->promotions = g_new0(IdletimePromotions, 1);
    add_gate_promotions(info->promotions, stats->promotions);
    info->waits = g_new0(IdletimeWaits, 1);
    add_gate_waits(info->waits, stats->waits);
    info->hold = hold_info(&work->gate, 1);
    return info;
}

/* ---- resources */

/* The first gate that looks at the boards, or NULL. */
static IdletimeGate *looking_gate(const IdletimeResource *res)
{
    IdletimeGate *gate;

    QTAILQ_FOREACH(gate, &res->gates, next) {
        if (gate->bg_ready) {
            return gate;
        }
    }
    return NULL;
}

static const IdletimeResourceState qapi_state[IDLETIME_STATE__MAX] = {
    [IDLETIME_STATE_IDLE] = IDLETIME_RESOURCE_STATE_IDLE,
    [IDLETIME_STATE_FOREGROUND] = IDLETIME_RESOURCE_STATE_FOREGROUND,
    [IDLETIME_STATE_PREEMPTION] = IDLETIME_RESOURCE_STATE_PREEMPTION,
    [IDLETIME_STATE_BACKGROUND] = IDLETIME_RESOURCE_STATE_BACKGROUND,
};

static IdletimeEventCounts *event_counts(const uint64_t *n)
{
    IdletimeEventCounts *counts = g_new0(IdletimeEventCounts, 1);

    counts->foreground = n[IDLETIME_EVENT_FOREGROUND];
    counts->background = n[IDLETIME_EVENT_BACKGROUND];
    counts->timer = n[IDLETIME_EVENT_TIMER];
    counts->empty = n[IDLETIME_EVENT_EMPTY];
    return counts;
}

static IdletimeCounters *counters_info(const IdletimeCore *core)
{
    IdletimeCounters *info = g_new0(IdletimeCounters, 1);

    info->idle = event_counts(core->count[IDLETIME_STATE_IDLE]);
    info->foreground = event_counts(core->count[IDLETIME_STATE_FOREGROUND]);
    info->preemption = event_counts(core->count[IDLETIME_STATE_PREEMPTION]);
    info->background = event_counts(core->count[IDLETIME_STATE_BACKGROUND]);
    return info;
}

/*
 * Look once more, so that the state is of now; on a copy, so that who asks
 * changes nothing.
 */
static void add_state(IdletimeResourceInfo *info, IdletimeResource *res,
                      IdletimeGate *gate)
{
    IdletimeRule rule = idletime_resource_rule(res);
    IdletimeScan scan = {
        .fg = gate->scan.fg, .bg = gate->scan.bg,
        .observer = gate->scan.observer, .self = gate->scan.self,
    };
    int64_t now_ns = idletime_now_ns();
    IdletimeView view;
    IdletimeCore core;

    idletime_guard_thread();
    WITH_QEMU_LOCK_GUARD(&res->lock) {
        view = idletime_scan(&scan, &rule, now_ns);
        core = res->core;
        info->collision_cost_us = res->collision_ns / SCALE_US;
    }
    view.blind |= qatomic_read(&res->blind);
    idletime_core_observe(&core, &rule, &view, now_ns);
    info->state = view.blind || view.unseen ? IDLETIME_RESOURCE_STATE_LOST :
                  qapi_state[core.state];
    info->counters = counters_info(&core);
    info->collisions = info->counters->background->foreground;
}

typedef struct AddUser {
    IdletimeResourceInfo *info;
    IdletimeDeviceInfoList **device;
    IdletimeWorkInfoList **work[IDLETIME_WORK__MAX];
} AddUser;

static void add_device(IdletimeDevice *dev, void *opaque)
{
    AddUser *add = opaque;
    IdletimeResourceInfo *info = add->info;
    IdletimeDeviceInfo *d = device_info(dev);

    info->foreground->requests += d->foreground->requests;
    info->foreground->bytes += d->foreground->bytes;
    info->background->requests += d->background->requests;
    info->background->bytes += d->background->bytes;
    info->held += d->held;
    QAPI_LIST_APPEND(add->device, d);
}

static void add_migration(IdletimeResourceInfo *info, IdletimeWorkInfo *w)
{
    IdletimeMigrationInfo *migration = g_new0(IdletimeMigrationInfo, 1);

    *qapi_IdletimeMigrationInfo_base(migration) = *w;
    migration->bandwidth = idletime_migration_rate();
    migration->diverges = idletime_divergence_now();
    g_free(w);
    QAPI_LIST_PREPEND(info->migrations, migration);
}

static void add_work(IdletimeWork *work, void *opaque)
{
    AddUser *add = opaque;
    IdletimeResourceInfo *info = add->info;
    IdletimeWorkInfo *w = work_info(work);

    info->background->requests += w->background->requests;
    info->background->bytes += w->background->bytes;
    info->held += w->held;
    if (work->ops->kind == IDLETIME_WORK_MIGRATION) {
        add_migration(info, w);
    } else {
        QAPI_LIST_APPEND(add->work[work->ops->kind], w);
    }
}

/* With the interval in force in place of the one that is set. */
static void add_settings(IdletimeResourceInfo *info,
                         const IdletimeResource *res)
{
    IdletimeSettingValues values;

    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        values.given[i] = true;
        values.value[i] = idletime_resource_get(res, i);
    }
    values.value[IDLETIME_INTERVAL_US] =
        idletime_resource_rule(res).interval_ns / SCALE_US;
    idletime_settings_to_qapi(&values, qapi_IdletimeResourceInfo_base(info));
}

/* Those of other builds that share the path, and are not seen. */
static uint32List *other_generations(const IdletimeResource *res)
{
    uint32_t abi[IDLETIME_GENERATIONS];
    unsigned n = idletime_generation_others(&res->boards->arena, abi);
    uint32List *list = NULL, **tail = &list;

    for (unsigned i = 0; i < n; i++) {
        QAPI_LIST_APPEND(tail, abi[i]);
    }
    return list;
}

static void add_resource(IdletimeResource *res, void *opaque)
{
    IdletimeResourceInfoList ***tail = opaque;
    IdletimeResourceInfo *info = g_new0(IdletimeResourceInfo, 1);
    IdletimeGate *gate = looking_gate(res);
    AddUser add = {
        .info = info,
        .device = &info->devices,
        .work = {
            [IDLETIME_WORK_JOB] = &info->jobs,
            [IDLETIME_WORK_EXPORT] = &info->exports,
        },
    };

    info->id = g_strdup(idletime_resource_id(res));
    info->path = g_strdup(res->path);
    info->generation = IDLETIME_ARENA_ABI;
    info->other_generations = other_generations(res);
    info->observer = idletime_observer_info(res);
    add_settings(info, res);
    info->foreground = g_new0(IdletimeTraffic, 1);
    info->background = g_new0(IdletimeTraffic, 1);
    info->state = IDLETIME_RESOURCE_STATE_UNKNOWN;
    if (gate) {
        add_state(info, res, gate);
        idletime_learned_add(info, res);
    }
    idletime_device_foreach(res, add_device, &add);
    idletime_work_foreach(res, add_work, &add);
    QAPI_LIST_APPEND(*tail, info);
}

IdletimeResourceInfoList *qmp_query_idletime(Error **errp)
{
    IdletimeResourceInfoList *list = NULL;
    IdletimeResourceInfoList **tail = &list;

    idletime_resource_foreach(add_resource, &tail);
    return list;
}

/* ---- idletime-set */

static bool settings_check(const IdletimeSettingValues *new,
                           const char *resource, Error **errp)
{
    bool any = false;

    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        any |= new->given[i];
        if (new->given[i] && !idletime_setting_check(i, new->value[i], errp)) {
            return false;
        }
    }
    if (any && !resource) {
        error_setg(errp, "idletime-set changes a property of a resource: add "
                   "'resource', the id of an idletime-resource object");
        return false;
    }
    return true;
}

static bool device_set(const IdletimeChange *change, Error **errp)
{
    IdletimeDevice *dev;

    if (!change->device) {
        if (!change->has_q_class && !change->background_queues) {
            return true;
        }
        error_setg(errp, "idletime-set changes the class of a device: add "
                   "'device', its id");
        return false;
    }
    dev = idletime_device_find(change->device, errp);
    return dev && idletime_device_set(dev, change->has_q_class ?
                                           &change->q_class : NULL,
                                      change->background_queues, errp);
}

void qmp_idletime_set(IdletimeChange *change, Error **errp)
{
    IdletimeSettingValues new;
    IdletimeResource *res = NULL;

    idletime_settings_from_qapi(qapi_IdletimeChange_base(change), &new);
    if (!settings_check(&new, change->resource, errp)) {
        return;
    }
    if (change->resource) {
        res = idletime_resource_find(change->resource, "resource", errp);
        if (!res) {
            return;
        }
    }
    if (!device_set(change, errp)) {
        return;
    }
    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        if (new.given[i]) {
            idletime_resource_set(res, i, new.value[i]);
        }
    }
}
