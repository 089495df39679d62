/*
 * idletime-resource: the table of its numeric properties.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-visit-idletime.h"
#include "qapi/qobject-input-visitor.h"
#include "qapi/qobject-output-visitor.h"
#include "qobject/qdict.h"
#include "idletime/arena/arena.h"
#include "idletime/resource/settings.h"

#define BOTH(value) { (value), (value) }

const IdletimeSettingInfo idletime_setting_info[IDLETIME_SETTING__MAX] = {
    /* On until somebody names an interval (resource/rule.c) */
    [IDLETIME_AUTO] = { "auto", BOTH(1), 0, 1, 1, .is_bool = true },
    /*
     * Disk, 20 ms: above the gaps within a burst on rotating disks (9-15 ms).
     * Uplink, 5 ms: four packets of 10 Mbit/s (uplink/interval.c).
     */
    [IDLETIME_INTERVAL_US] = {
        "interval-us", { 20000, 5000 }, 0, 3600000000LL, 1
    },
    /* An uplink would idle while we are told that a packet has left. */
    [IDLETIME_MAX_INFLIGHT] = {
        "max-inflight", { 1, 2 }, 1, IDLETIME_TOKENS, 1
    },
    /* 128 KiB: about one positioning time of transfer on a rotating disk */
    [IDLETIME_MAX_REQUEST_BYTES] = {
        "max-request-bytes", BOTH(131072), 4096, 1 << 30, 4096
    },
    /* 5 s: far below the 60 s of Windows and 120 s of Linux's hung tasks */
    [IDLETIME_MAX_HOLD_MS] = { "max-hold-ms", BOTH(5000), 0, 3600000, 1 },
    [IDLETIME_WEIGHT] = { "weight", BOTH(100), 1, 10000, 1 },
    /* 3 %: less than what the peers cost; 1000 is a foreground of a tenth */
    [IDLETIME_BUDGET_PERCENT] = { "budget-percent", BOTH(3), 0, 1000, 1 },
    [IDLETIME_SHADOW] = { "shadow", BOTH(0), 0, 1, 1, .is_bool = true },
    [IDLETIME_RATE_BPS] = { "rate-bps", BOTH(0), 0, 1000000000000LL, 1 },
};

bool idletime_setting_check(IdletimeSetting setting, int64_t value,
                            Error **errp)
{
    const IdletimeSettingInfo *info = &idletime_setting_info[setting];

    if (value < info->min || value > info->max || value % info->multiple) {
        error_setg(errp, "idletime-resource property '%s' is %" PRId64
                   ", must be %" PRId64 " to %" PRId64 "%s",
                   info->name, value, info->min, info->max,
                   info->multiple > 1 ? " and a multiple of 4096" : "");
        return false;
    }
    return true;
}

bool idletime_setting_visit(Visitor *v, IdletimeSetting setting,
                            int64_t *value, Error **errp)
{
    const IdletimeSettingInfo *info = &idletime_setting_info[setting];
    bool on = *value;

    if (!info->is_bool) {
        return visit_type_int64(v, info->name, value, errp);
    }
    if (!visit_type_bool(v, info->name, &on, errp)) {
        return false;
    }
    *value = on;
    return true;
}

/* ---- QAPI's structure, by the names in the table */

void idletime_settings_from_qapi(IdletimeSettings *qapi,
                                 IdletimeSettingValues *values)
{
    QObject *object;
    Visitor *v = qobject_output_visitor_new(&object);
    QDict *dict;

    *values = (IdletimeSettingValues) { 0 };
    visit_type_IdletimeSettings(v, NULL, &qapi, &error_abort);
    visit_complete(v, &object);
    visit_free(v);
    dict = qobject_to(QDict, object);
    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        const char *name = idletime_setting_info[i].name;

        values->given[i] = qdict_haskey(dict, name);
        if (values->given[i]) {
            values->value[i] = idletime_setting_info[i].is_bool ?
                               qdict_get_bool(dict, name) :
                               qdict_get_int(dict, name);
        }
    }
    qobject_unref(dict);
}

void idletime_settings_to_qapi(const IdletimeSettingValues *values,
                               IdletimeSettings *qapi)
{
    QDict *dict = qdict_new();
    IdletimeSettings *copy;
    Visitor *v;

    for (int i = 0; i < IDLETIME_SETTING__MAX; i++) {
        const char *name = idletime_setting_info[i].name;

        if (!values->given[i]) {
            continue;
        }
        if (idletime_setting_info[i].is_bool) {
            qdict_put_bool(dict, name, values->value[i]);
        } else {
            qdict_put_int(dict, name, values->value[i]);
        }
    }
    v = qobject_input_visitor_new(QOBJECT(dict));
    visit_type_IdletimeSettings(v, NULL, &copy, &error_abort);
    visit_free(v);
    qobject_unref(dict);
    *qapi = *copy;      /* numbers only */
    qapi_free_IdletimeSettings(copy);
}
