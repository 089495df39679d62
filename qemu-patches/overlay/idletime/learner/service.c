/*
 * Idletime service: how long background requests take, by size.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A size that was never seen takes as long as the next larger one that was.
 * Of each time is believed what the device may have taken: what lies far above
 * the mean is a stall of the host.
 */
#include "qemu/osdep.h"
#include "idletime/core/recent.h"
#include "idletime/core/root.h"
#include "idletime/learner/service.h"

/* Less is no mean. */
#define KNOWN               3
/*
 * Standard deviations.  A device that becomes slower is believed nevertheless:
 * each such time makes the deviation larger, 20 of them twice the mean.
 */
#define OUTLIER             4
/* So much of the mean is believed in any case: few samples are much alike. */
#define OUTLIER_LEAST       0.25
/* Memory of service times, requests. */
#define MEMORY              64
/* Below any device's: divisions stay finite. */
#define SERVICE_MIN_NS      1000

static unsigned class_of(uint32_t bytes)
{
    uint32_t pages = bytes / IDLETIME_SIZE_MIN;
    unsigned size = pages > 1 ? 32 - __builtin_clz(pages - 1) : 0;

    return MIN(size, IDLETIME_SIZES - 1);
}

/* What of @ns is the device's doing, and not a stall of the host. */
static double believed(const IdletimeServiceClass *c, double ns)
{
    double over_ns = MAX(OUTLIER * idletime_root(c->square),
                         OUTLIER_LEAST * c->mean_ns);

    return c->count < KNOWN ? ns : MIN(ns, c->mean_ns + over_ns);
}

static void note(IdletimeServiceClass *c, double ns)
{
    double seen_ns = believed(c, ns);

    c->count = MIN(c->count + 1, MEMORY);
    idletime_recent_note(&c->mean_ns, &c->square, seen_ns, 1 / c->count);
}

static IdletimeService service_of(const IdletimeServiceTimes *s,
                                  const IdletimeServiceClass *c)
{
    return (IdletimeService) { MAX(c->mean_ns, SERVICE_MIN_NS),
                               idletime_root(c->square), s->turnaround_ns };
}

void idletime_service_note(IdletimeServiceTimes *s, uint32_t bytes, double ns)
{
    note(&s->size[class_of(bytes)], ns);
    note(&s->any, ns);
}

/* Who takes longer than a request takes is not back to back any more. */
void idletime_service_turnaround(IdletimeServiceTimes *s, double ns)
{
    double seen_ns = MIN(ns, s->any.mean_ns);

    s->turnaround_ns += (seen_ns - s->turnaround_ns) / MEMORY;
}

bool idletime_service_known(const IdletimeServiceTimes *s)
{
    return s->any.count >= KNOWN;
}

IdletimeService idletime_service_any(const IdletimeServiceTimes *s)
{
    return service_of(s, &s->any);
}

IdletimeService idletime_service_expected(const IdletimeServiceTimes *s,
                                          uint32_t bytes)
{
    unsigned size = class_of(bytes);

    /* Never seen: the next larger one that was, else any. */
    while (size < IDLETIME_SIZES && s->size[size].count < KNOWN) {
        size++;
    }
    return service_of(s, size < IDLETIME_SIZES ? &s->size[size] : &s->any);
}

double idletime_service_believed(const IdletimeServiceTimes *s,
                                 uint32_t bytes, double ns)
{
    return believed(&s->size[class_of(bytes)], ns);
}
