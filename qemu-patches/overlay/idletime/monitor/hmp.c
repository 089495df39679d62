/*
 * Idletime: "info idletime" of the human monitor.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-idletime.h"

static void print_events(Monitor *mon, const char *state,
                         const IdletimeEventCounts *n)
{
    monitor_printf(mon, "    %-11s %12" PRIu64 " %12" PRIu64 " %12" PRIu64
                   " %12" PRIu64 "\n", state, n->foreground, n->background,
                   n->timer, n->empty);
}

static void print_counters(Monitor *mon, const IdletimeCounters *c)
{
    monitor_printf(mon, "    %-11s %12s %12s %12s %12s\n", "state",
                   "foreground", "background", "timer", "empty");
    print_events(mon, "idle", c->idle);
    print_events(mon, "foreground", c->foreground);
    print_events(mon, "preemption", c->preemption);
    print_events(mon, "background", c->background);
}

static void print_device(Monitor *mon, const IdletimeDeviceInfo *d)
{
    const IdletimePromotions *p = d->promotions;

    monitor_printf(mon, "  device %s: class %s%s%s%s%s\n", d->device,
                   IdletimeClass_str(d->q_class),
                   *d->background_queues ? ", background queues " : "",
                   d->background_queues, d->detaching ? ", detaching" : "",
                   d->seen ? "" : ", not seen");
    monitor_printf(mon, "    foreground %" PRIu64 " requests, background %"
                   PRIu64 " (%" PRIu64 " of them pieces), held %" PRIu64
                   ", longest hold %" PRIu64 " ms\n",
                   d->foreground->requests, d->background->requests,
                   d->pieces, d->held, d->hold->max_us / 1000);
    monitor_printf(mon, "    promoted: deadline %" PRIu64 ", flush %" PRIu64
                   ", journal %" PRIu64 ", ring %" PRIu64 ", class change %"
                   PRIu64 ", flow %" PRIu64 ", stop %" PRIu64 "\n",
                   p->deadline, p->flush, p->journal, p->ring,
                   p->class_change, p->flow, p->stop);
}

static void print_work(Monitor *mon, const char *kind,
                       const IdletimeWorkInfo *w)
{
    monitor_printf(mon, "  %s %s: %" PRIu64 " chunks, held %" PRIu64
                   ", longest hold %" PRIu64 " ms, promoted %" PRIu64 "%s\n",
                   kind, w->id, w->background->requests, w->held,
                   w->hold->max_us / 1000, w->promotions->deadline,
                   w->detaching ? ", detaching" : "");
}

static void print_learned(Monitor *mon, const IdletimeResourceInfo *r)
{
    const IdletimeLearned *l = r->learned;

    monitor_printf(mon, "  auto %s, budget %" PRId64 " %%, slowdown %.2f %%, "
                   "credit %" PRId64 " of %" PRIu64 " us, channels %" PRIu32
                   "%s\n", r->q_auto ? "on" : "off", r->budget_percent,
                   l->slowdown_percent, l->credit_us, l->credit_max_us,
                   l->channels, l->ready ? "" : ", not ready");
    for (IdletimeWindowInfoList *w = l->windows; w; w = w->next) {
        monitor_printf(mon, "    window from %" PRIu64 " us",
                       w->value->begin_us);
        if (w->value->has_end_us) {
            monitor_printf(mon, " to %" PRIu64 " us", w->value->end_us);
        }
        monitor_printf(mon, "\n");
    }
}

static void print_generations(Monitor *mon, const IdletimeResourceInfo *r)
{
    const uint32List *other;

    for (other = r->other_generations; other; other = other->next) {
        monitor_printf(mon, "  generation %" PRIu32 " beside ours (%" PRIu32
                       "): neither sees the other\n", other->value,
                       r->generation);
    }
}

static void print_observer(Monitor *mon, const IdletimeObserverInfo *o)
{
    if (o->state == IDLETIME_OBSERVER_PRESENCE_SEEN) {
        monitor_printf(mon, "  observer of %s: %" PRIu64 " requests, %" PRIu32
                       " in service\n", o->label, o->foreground->requests,
                       o->in_service);
    } else if (o->state == IDLETIME_OBSERVER_PRESENCE_LOST) {
        monitor_printf(mon, "  observer lost: released by deadline only\n");
    }
}

static void print_resource(Monitor *mon, const IdletimeResourceInfo *r)
{
    monitor_printf(mon, "%s: %s, interval %" PRId64 " us, path %s\n", r->id,
                   IdletimeResourceState_str(r->state), r->interval_us,
                   r->path);
    monitor_printf(mon, "  max-inflight %" PRId64 ", max-request-bytes %"
                   PRId64 ", max-hold-ms %" PRId64 ", weight %" PRId64 "\n",
                   r->max_inflight, r->max_request_bytes, r->max_hold_ms,
                   r->weight);
    print_generations(mon, r);
    print_observer(mon, r->observer);
    if (r->learned) {
        print_learned(mon, r);
    }
    if (r->counters) {
        monitor_printf(mon, "  collisions %" PRIu64 ", cost %" PRIu64 " us\n",
                       r->collisions, r->collision_cost_us);
        print_counters(mon, r->counters);
    }
    for (IdletimeDeviceInfoList *d = r->devices; d; d = d->next) {
        print_device(mon, d->value);
    }
    for (IdletimeWorkInfoList *w = r->jobs; w; w = w->next) {
        print_work(mon, "job", w->value);
    }
    for (IdletimeWorkInfoList *w = r->exports; w; w = w->next) {
        print_work(mon, "export", w->value);
    }
    for (IdletimeMigrationInfoList *w = r->migrations; w; w = w->next) {
        print_work(mon, "migration",
                   qapi_IdletimeMigrationInfo_base(w->value));
    }
}

void hmp_info_idletime(Monitor *mon, const QDict *qdict)
{
    IdletimeResourceInfoList *list = qmp_query_idletime(NULL);

    if (!list) {
        monitor_printf(mon, "no idletime-resource object\n");
    }
    for (IdletimeResourceInfoList *r = list; r; r = r->next) {
        print_resource(mon, r->value);
    }
    qapi_free_IdletimeResourceInfoList(list);
}
