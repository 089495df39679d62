/*
 * Programs that share the QAPI schema of objects but have no devices.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-idletime.h"

IdletimeResourceInfoList *qmp_query_idletime(Error **errp)
{
    return NULL;
}

void qmp_idletime_set(const char *device, bool has_class,
                      IdletimeClass class, const char *background_queues,
                      const char *resource, bool has_interval_us,
                      int64_t interval_us, bool has_max_inflight,
                      int64_t max_inflight, bool has_max_request_bytes,
                      int64_t max_request_bytes, bool has_max_hold_ms,
                      int64_t max_hold_ms, bool has_weight, int64_t weight,
                      bool has_auto, bool q_auto, bool has_budget_percent,
                      int64_t budget_percent, bool has_shadow, bool shadow,
                      bool has_rate_bps, int64_t rate_bps, Error **errp)
{
    error_setg(errp, "this program has no devices");
}
