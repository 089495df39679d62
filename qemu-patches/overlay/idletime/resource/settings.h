/*
 * idletime-resource: the table of its numeric properties.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The only place in C that knows their names, standards and bounds: QOM, QMP
 * and the monitors go through it.  Wherever a value is passed it is an
 * int64_t, also of a switch (0 or 1).
 */
#ifndef IDLETIME_SETTINGS_H
#define IDLETIME_SETTINGS_H

#include "qapi/qapi-types-idletime.h"

typedef enum IdletimeSetting {
    IDLETIME_AUTO,              /* first: an interval given beside it stays */
    IDLETIME_INTERVAL_US,
    IDLETIME_MAX_INFLIGHT,
    IDLETIME_MAX_REQUEST_BYTES,
    IDLETIME_MAX_HOLD_MS,
    IDLETIME_WEIGHT,
    IDLETIME_BUDGET_PERCENT,
    IDLETIME_SHADOW,
    IDLETIME_RATE_BPS,
    IDLETIME_SETTING__MAX,
} IdletimeSetting;

/* What a resource is; its first device says so. */
typedef enum IdletimeResourceKind {
    IDLETIME_KIND_DISK,
    IDLETIME_KIND_UPLINK,
    IDLETIME_KIND__MAX,
} IdletimeResourceKind;

typedef struct IdletimeSettingInfo {
    const char *name;
    int64_t standard[IDLETIME_KIND__MAX];
    int64_t min;
    int64_t max;
    int64_t multiple;
    bool is_bool;
} IdletimeSettingInfo;

extern const IdletimeSettingInfo idletime_setting_info[IDLETIME_SETTING__MAX];

/**
 * idletime_setting_check: is @value in range?  The error names the property,
 * the value and the range.  Context: any thread.
 */
bool idletime_setting_check(IdletimeSetting setting, int64_t value,
                            Error **errp);

/** idletime_setting_visit: as a property, of the type that it has in QAPI. */
bool idletime_setting_visit(Visitor *v, IdletimeSetting setting,
                            int64_t *value, Error **errp);

/* Some of the settings, or all. */
typedef struct IdletimeSettingValues {
    bool given[IDLETIME_SETTING__MAX];
    int64_t value[IDLETIME_SETTING__MAX];
} IdletimeSettingValues;

/** idletime_settings_from_qapi: those that are given. */
void idletime_settings_from_qapi(IdletimeSettings *qapi,
                                 IdletimeSettingValues *values);

/** idletime_settings_to_qapi: those that are given. */
void idletime_settings_to_qapi(const IdletimeSettingValues *values,
                               IdletimeSettings *qapi);

#endif
