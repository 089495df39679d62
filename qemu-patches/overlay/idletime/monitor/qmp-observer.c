/*
 * Idletime: query-idletime, what the observer of a resource shows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/gate/sigbus.h"
#include "idletime/monitor/qmp-impl.h"

static const IdletimeObserverPresence presence[] = {
    [IDLETIME_OBSERVER_ABSENT] = IDLETIME_OBSERVER_PRESENCE_ABSENT,
    [IDLETIME_OBSERVER_SEEN] = IDLETIME_OBSERVER_PRESENCE_SEEN,
    [IDLETIME_OBSERVER_LOST] = IDLETIME_OBSERVER_PRESENCE_LOST,
};

static void add_page(IdletimeObserverInfo *info, const IdletimeObserved *page)
{
    info->label = g_strndup(page->label, sizeof(page->label));
    info->foreground->requests = qatomic_read(&page->started);
    info->foreground->bytes = qatomic_read(&page->bytes);
    info->in_service = idletime_observed_in_service(page);
    info->requeued = qatomic_read(&page->requeued);
    info->unpaired = qatomic_read(&page->unpaired);
    info->healed = qatomic_read(&page->healed);
    info->missed = qatomic_read(&page->missed);
}

IdletimeObserverInfo *idletime_observer_info(IdletimeResource *res)
{
    const IdletimeObserver *observer = &res->observer;
    IdletimeObserverState state;
    IdletimeObserverInfo *info = g_new0(IdletimeObserverInfo, 1);

    idletime_guard_thread();
    state = idletime_observer_state(observer);
    info->state = presence[state];
    info->declared = qatomic_read(&observer->declared);
    info->foreground = g_new0(IdletimeTraffic, 1);
    if (state == IDLETIME_OBSERVER_SEEN) {
        add_page(info, observer->page);
    }
    info->came = observer->came;
    info->died = observer->died;
    info->refused = observer->refused;
    return info;
}
