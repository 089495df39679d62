/*
 * idletime-resource: what its settings mean now, and how they change.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "idletime/resource/resource.h"
#include "trace.h"

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
           !idletime_resource_is_uplink(res) &&
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

void idletime_resource_served(IdletimeResource *res, uint32_t bytes,
                              uint32_t n, int64_t took_ns)
{
    idletime_uplink_note(&res->packets, bytes, n, took_ns);
    qatomic_set(&res->uplink_interval_ns,
                idletime_uplink_interval(&res->packets, 0));
}

/* ---- the learner */

/* When @setting is @value, and the others are as they are. */
static bool learns_with(const IdletimeResource *res, IdletimeSetting setting,
                        int64_t value)
{
    bool auto_on = setting == IDLETIME_AUTO ? value :
                   idletime_resource_get(res, IDLETIME_AUTO);
    bool shadow_on = setting == IDLETIME_SHADOW ? value :
                     idletime_resource_get(res, IDLETIME_SHADOW);

    return (auto_on || shadow_on) && !idletime_resource_is_uplink(res);
}

/*
 * Gates look for it under the lock, and nowhere else: it is complete before
 * they can see it, and nobody is in it when it goes.  Each one begins with
 * nothing: what was before, perhaps under other settings, teaches nothing.
 */
static void learner_switch(IdletimeResource *res, bool on)
{
    IdletimeLearner *learner = NULL, *old = NULL;

    if (on == !!res->learner) {
        return;
    }
    if (on) {
        learner = g_new(IdletimeLearner, 1);
        idletime_learner_init(learner, res->complete ? idletime_now_ns() :
                                                       INT64_MIN);
    }
    WITH_QEMU_LOCK_GUARD(&res->lock) {
        old = res->learner;
        res->learner = learner;
    }
    g_free(old);
}

/* ---- changes */

static void put(IdletimeResource *res, IdletimeSetting setting, int64_t value)
{
    bool on = learns_with(res, setting, value);

    if (on) {
        learner_switch(res, true);      /* before what relies on it */
    }
    qatomic_set(&res->setting[setting], value);
    if (!on) {
        learner_switch(res, false);
    }
}

/* What nobody set.  Who names an interval means that one. */
static int64_t standard_of(const IdletimeResource *res, IdletimeSetting setting)
{
    return setting == IDLETIME_AUTO && res->given[IDLETIME_INTERVAL_US] ? 0 :
           idletime_setting_info[setting].standard[res->kind];
}

void idletime_resource_set(IdletimeResource *res, IdletimeSetting setting,
                           int64_t value)
{
    GLOBAL_STATE_CODE();
    qatomic_set(&res->given[setting], true);
    if (!res->given[IDLETIME_AUTO]) {
        put(res, IDLETIME_AUTO, standard_of(res, IDLETIME_AUTO));
    }
    put(res, setting, value);
    if (res->complete) {
        trace_idletime_resource_set(idletime_resource_id(res),
                                    idletime_setting_info[setting].name,
                                    value);
        notifier_list_notify(&res->changed, NULL);
    }
}

void idletime_resource_become(IdletimeResource *res, IdletimeResourceKind kind)
{
    GLOBAL_STATE_CODE();
    assert(!res->users);
    qatomic_set(&res->kind, kind);
    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        if (!res->given[i]) {
            qatomic_set(&res->setting[i], standard_of(res, i));
        }
    }
    res->packets = (IdletimeUplinkPackets) { 0 };
    qatomic_set(&res->uplink_interval_ns, 0);
    learner_switch(res, learns_with(res, IDLETIME_AUTO,
                                    idletime_resource_get(res,
                                                          IDLETIME_AUTO)));
}
