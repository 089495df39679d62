/*
 * Idletime: notice that the observer of an arena came, died or was refused.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "idletime/gate/gate.h"
#include "system/qtest.h"
#include "trace.h"

static void say_came(IdletimeResource *res)
{
    trace_idletime_observer_came(idletime_resource_id(res));
    info_report("idletime-resource '%s': an observer of '%.*s' shows what "
                "passes by QEMU", idletime_resource_id(res),
                IDLETIME_OBSERVED_LABEL, res->observer.page->label);
    res->observer_why.text[0] = '\0';
}

static void say_died(IdletimeResource *res)
{
    trace_idletime_observer_died(idletime_resource_id(res));
    warn_report("idletime-resource '%s': the observer of '%s' ended; until it "
                "is back, %s", idletime_resource_id(res), res->path,
                qatomic_read(&res->observer.declared) ?
                "background requests are released after max-hold-ms only" :
                "foreground that passes by QEMU is not seen");
}

/* Each second, but said once. */
static void say_refused(IdletimeResource *res)
{
    if (strcmp(res->observer_why.text, res->observer.why.text) != 0) {
        res->observer_why = res->observer.why;
        warn_report("idletime-resource '%s': the observer of '%s' is not "
                    "used: %s", idletime_resource_id(res), res->path,
                    res->observer_why.text);
    }
}

void idletime_gate_watch_observer(IdletimeResource *res)
{
    GLOBAL_STATE_CODE();
    res->observer.any_file = qtest_enabled();
    switch (idletime_observer_watch(&res->observer)) {
    case IDLETIME_OBSERVER_CAME:
        say_came(res);
        break;
    case IDLETIME_OBSERVER_DIED:
        say_died(res);
        break;
    case IDLETIME_OBSERVER_REFUSED:
        say_refused(res);
        return;
    default:
        return;
    }
    notifier_list_notify(&res->changed, NULL);
}
