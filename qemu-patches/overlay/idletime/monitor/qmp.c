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
#include "idletime/device/device.h"
#include "idletime/monitor/qmp-impl.h"

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

static IdletimeHold *hold_info(const IdletimeDevice *dev)
{
    IdletimeHold *hold = g_new0(IdletimeHold, 1);
    uint64List **bound = &hold->boundaries_us;
    uint64List **bin = &hold->bins;

    for (unsigned b = 0; b < IDLETIME_HOLD_BINS; b++) {
        uint64_t sum = 0;

        for (unsigned i = 0; i < dev->num_gates; i++) {
            sum += stat_read(&dev->gate[i]->stats.hold_bins[b]);
        }
        QAPI_LIST_APPEND(bin, sum);
        if (b < IDLETIME_HOLD_BINS - 1) {
            QAPI_LIST_APPEND(bound, (IDLETIME_HOLD_FIRST_NS << b) / SCALE_US);
        }
    }
    for (unsigned i = 0; i < dev->num_gates; i++) {
        hold->max_us = MAX(hold->max_us,
                           stat_read(&dev->gate[i]->stats.hold_max_ns) /
                           SCALE_US);
    }
    hold->drained_us = dev->drained_ns / SCALE_US;
    return hold;
}

static IdletimeDeviceInfo *device_info(const IdletimeDevice *dev)
{
    IdletimeDeviceInfo *info = g_new0(IdletimeDeviceInfo, 1);

    info->device = idletime_device_name(dev);
    info->q_class = dev->class;
    info->service = dev->service;
    info->background_queues = g_strdup(dev->queues);
    info->foreground = g_new0(IdletimeTraffic, 1);
    info->background = g_new0(IdletimeTraffic, 1);
    info->promotions = g_new0(IdletimePromotions, 1);
    info->waits = g_new0(IdletimeWaits, 1);
    for (unsigned i = 0; i < dev->num_gates; i++) {
        add_gate_traffic(info, dev->gate[i]);
        add_gate_promotions(info->promotions, dev->gate[i]->stats.promotions);
        add_gate_waits(info->waits, dev->gate[i]->stats.waits);
    }
    info->hold = hold_info(dev);
    return info;
}

/* ---- resources */

/* The first gate that looks at the boards, or NULL. */
static IdletimeGate *looking_gate(const IdletimeResource *res)
{
    IdletimeDevice *dev;

    QTAILQ_FOREACH(dev, &res->devices, next) {
        for (unsigned i = 0; i < dev->num_gates; i++) {
            if (dev->gate[i]->bg_ready) {
                return dev->gate[i];
            }
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

/* Look once more, so that the state is of now. */
static void add_state(IdletimeResourceInfo *info, IdletimeResource *res,
                      IdletimeGate *gate)
{
    IdletimeRule rule = idletime_resource_rule(res);
    /* A copy: the gate's own is its thread's. */
    IdletimeScan scan = {
        .fg = gate->scan.fg, .bg = gate->scan.bg, .self = gate->scan.self,
    };
    int64_t now_ns = idletime_now_ns();
    IdletimeView view;

    idletime_guard_thread();
    QEMU_LOCK_GUARD(&res->lock);
    view = idletime_scan(&scan, &rule, now_ns);
    view.blind |= qatomic_read(&res->blind);
    idletime_core_observe(&res->core, &rule, &view, now_ns);
    info->state = view.blind ? IDLETIME_RESOURCE_STATE_LOST :
                  qapi_state[res->core.state];
    info->counters = g_new0(IdletimeCounters, 1);
    info->counters->idle =
        event_counts(res->core.count[IDLETIME_STATE_IDLE]);
    info->counters->foreground =
        event_counts(res->core.count[IDLETIME_STATE_FOREGROUND]);
    info->counters->preemption =
        event_counts(res->core.count[IDLETIME_STATE_PREEMPTION]);
    info->counters->background =
        event_counts(res->core.count[IDLETIME_STATE_BACKGROUND]);
    info->collisions = info->counters->background->foreground;
    info->collision_cost_us = res->collision_ns / SCALE_US;
}

static void add_devices(IdletimeResourceInfo *info, IdletimeResource *res)
{
    IdletimeDeviceInfoList **tail = &info->devices;
    IdletimeDevice *dev;

    QTAILQ_FOREACH(dev, &res->devices, next) {
        IdletimeDeviceInfo *d = device_info(dev);

        info->foreground->requests += d->foreground->requests;
        info->foreground->bytes += d->foreground->bytes;
        info->background->requests += d->background->requests;
        info->background->bytes += d->background->bytes;
        info->held += d->held;
        QAPI_LIST_APPEND(tail, d);
    }
}

static void add_resource(IdletimeResource *res, void *opaque)
{
    IdletimeResourceInfoList ***tail = opaque;
    IdletimeResourceInfo *info = g_new0(IdletimeResourceInfo, 1);
    IdletimeGate *gate = looking_gate(res);

    info->id = g_strdup(idletime_resource_id(res));
    info->path = g_strdup(res->path);
    info->interval_us = idletime_resource_rule(res).interval_ns / SCALE_US;
    info->max_inflight = idletime_resource_get(res, IDLETIME_MAX_INFLIGHT);
    info->max_request_bytes =
        idletime_resource_get(res, IDLETIME_MAX_REQUEST_BYTES);
    info->max_hold_ms = idletime_resource_get(res, IDLETIME_MAX_HOLD_MS);
    info->weight = idletime_resource_get(res, IDLETIME_WEIGHT);
    info->q_auto = idletime_resource_get(res, IDLETIME_AUTO);
    info->budget_percent = idletime_resource_get(res,
                                                 IDLETIME_BUDGET_PERCENT);
    info->shadow = idletime_resource_get(res, IDLETIME_SHADOW);
    info->rate_bps = idletime_resource_get(res, IDLETIME_RATE_BPS);
    info->foreground = g_new0(IdletimeTraffic, 1);
    info->background = g_new0(IdletimeTraffic, 1);
    info->state = IDLETIME_RESOURCE_STATE_UNKNOWN;
    if (gate) {
        add_state(info, res, gate);
        idletime_learned_add(info, res);
    }
    add_devices(info, res);
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

typedef struct NewSetting {
    bool given;
    int64_t value;
} NewSetting;

static bool settings_check(const NewSetting *new, const char *resource,
                           Error **errp)
{
    bool any = false;

    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        any |= new[i].given;
        if (new[i].given && !idletime_setting_check(i, new[i].value, errp)) {
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

void qmp_idletime_set(const char *device, bool has_class, IdletimeClass class,
                      const char *background_queues, const char *resource,
                      bool has_interval_us, int64_t interval_us,
                      bool has_max_inflight, int64_t max_inflight,
                      bool has_max_request_bytes, int64_t max_request_bytes,
                      bool has_max_hold_ms, int64_t max_hold_ms,
                      bool has_weight, int64_t weight,
                      bool has_auto, bool q_auto,
                      bool has_budget_percent, int64_t budget_percent,
                      bool has_shadow, bool shadow,
                      bool has_rate_bps, int64_t rate_bps, Error **errp)
{
    const NewSetting new[IDLETIME_SETTING__MAX] = {
        [IDLETIME_INTERVAL_US] = { has_interval_us, interval_us },
        [IDLETIME_MAX_INFLIGHT] = { has_max_inflight, max_inflight },
        [IDLETIME_MAX_REQUEST_BYTES] = {
            has_max_request_bytes, max_request_bytes
        },
        [IDLETIME_MAX_HOLD_MS] = { has_max_hold_ms, max_hold_ms },
        [IDLETIME_WEIGHT] = { has_weight, weight },
        [IDLETIME_AUTO] = { has_auto, q_auto },
        [IDLETIME_BUDGET_PERCENT] = { has_budget_percent, budget_percent },
        [IDLETIME_SHADOW] = { has_shadow, shadow },
        [IDLETIME_RATE_BPS] = { has_rate_bps, rate_bps },
    };
    IdletimeResource *res = NULL;
    IdletimeDevice *dev = NULL;

    if ((has_class || background_queues) && !device) {
        error_setg(errp, "idletime-set changes the class of a device: add "
                   "'device', its id");
        return;
    }
    if (!settings_check(new, resource, errp)) {
        return;
    }
    if (resource) {
        res = idletime_resource_find(resource, "resource", errp);
        if (!res) {
            return;
        }
    }
    if (device) {
        dev = idletime_device_find(device, errp);
        if (!dev || !idletime_device_set(dev, has_class ? &class : NULL,
                                         background_queues, errp)) {
            return;
        }
    }
    for (int i = 0; res && i < IDLETIME_SETTING__MAX; i++) {
        if (new[i].given) {
            idletime_resource_set(res, i, new[i].value);
        }
    }
}
