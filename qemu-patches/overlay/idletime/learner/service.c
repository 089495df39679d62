/*
 * Idletime size: how long background requests take, by size, and which size
 * their pieces should have.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A large piece moves many bytes for one positioning; a small one is sooner
 * out of the way.  A collision costs half a service time on average, and as
 * long as a piece needs before the foreground returns must be left idle.  So
 * for each size whose service time is known the plan of window.c is
 * made once more, and the size with most bytes a gap is taken.  A size that
 * nobody asked for has no service time: the neighbours of the best one are
 * tried until they have.
 */
#include "qemu/osdep.h"
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
/* Pieces are chosen anew so often; a neighbour is known much sooner. */
#define CHOOSE_NS           (1000 * 1000 * 1000LL)
/* Below any device's: divisions stay finite. */
#define SERVICE_MIN_NS      1000
/* A change has to bring this much more. */
#define BETTER              1.05

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
    double off = seen_ns - c->mean_ns, part;

    c->count = MIN(c->count + 1, MEMORY);
    part = 1 / c->count;
    c->mean_ns += part * off;
    c->square += part * (off * (seen_ns - c->mean_ns) - c->square);
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

IdletimeService idletime_service_service(const IdletimeServiceTimes *s, uint32_t bytes)
{
    unsigned size = class_of(bytes);

    /* Never seen: the next larger one that was, else any. */
    while (size < IDLETIME_SIZES && s->size[size].count < KNOWN) {
        size++;
    }
    return service_of(s, size < IDLETIME_SIZES ? &s->size[size] : &s->any);
}

double idletime_service_believed(const IdletimeServiceTimes *s, uint32_t bytes,
                               double ns)
{
    return believed(&s->size[class_of(bytes)], ns);
}

/* ---- pieces */

static unsigned largest(uint64_t max_bytes)
{
    unsigned size = 0;

    while (size + 1 < IDLETIME_SIZES &&
           (uint64_t)IDLETIME_SIZE_MIN << (size + 1) <= max_bytes) {
        size++;
    }
    return size;
}

static double bytes_a_gap(const IdletimeServiceTimes *s, const IdletimeWindows *w,
                          unsigned size, const IdletimeTerms *terms)
{
    return idletime_windows_starts(w, service_of(s, &s->size[size]), terms) *
           (double)(IDLETIME_SIZE_MIN << size);
}

static unsigned best_size(const IdletimeServiceTimes *s, const IdletimeWindows *w,
                          unsigned max, const IdletimeTerms *terms)
{
    unsigned best = MIN(s->piece, max);
    double most = 0;

    if (s->size[best].count >= KNOWN) {
        most = BETTER * bytes_a_gap(s, w, best, terms);
    }
    for (unsigned i = 0; i <= max; i++) {
        double bytes = s->size[i].count < KNOWN ? 0 :
                       bytes_a_gap(s, w, i, terms);

        if (bytes > most) {
            best = i;
            most = bytes;
        }
    }
    return best;
}

void idletime_service_choose(IdletimeServiceTimes *s, const IdletimeWindows *w,
                           uint64_t max_bytes, const IdletimeTerms *terms,
                           int64_t now_ns)
{
    unsigned max = largest(max_bytes), best;

    if (s->chosen_ns && now_ns - s->chosen_ns < CHOOSE_NS) {
        return;
    }
    if (!s->chosen_ns) {
        s->piece = max;
    }
    s->chosen_ns = now_ns;
    best = best_size(s, w, max, terms);
    /* Only of sizes that are cut there is a choice. */
    if (s->size[best].count >= KNOWN && best > 0 &&
        s->size[best - 1].count < KNOWN) {
        best--;
    } else if (s->size[best].count >= KNOWN && best < max &&
               s->size[best + 1].count < KNOWN) {
        best++;
    }
    s->piece = best;
}

uint64_t idletime_service_piece(const IdletimeServiceTimes *s, uint64_t max_bytes)
{
    return s->chosen_ns ? MIN((uint64_t)IDLETIME_SIZE_MIN << s->piece,
                              max_bytes) : max_bytes;
}
