/*
 * The simulation in figures.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim-impl.h"

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void summarise_latency(Sim *s, SimResult *r)
{
    double sum = 0;

    qsort(s->latency_ns, s->latencies, sizeof(int64_t), by_value);
    for (size_t i = 0; i < s->latencies; i++) {
        sum += s->latency_ns[i];
    }
    if (s->latencies) {
        r->fg_mean_ns = sum / s->latencies;
        r->fg_p99_ns = s->latency_ns[s->latencies * 99 / 100];
        r->fg_p999_ns = s->latency_ns[s->latencies * 999 / 1000];
    }
}

SimResult sim_summarise(Sim *s, int64_t end_ns)
{
    double seconds = (end_ns - MAX(s->from_ns, s->p.warm_up_ns)) / 1e9;
    SimResult r = { .fg_rate = s->fg_done / seconds,
                    .bg_rate = s->bg_done / seconds,
                    .bg_bytes = s->bg_bytes / seconds,
                    .promoted = s->promoted, .steps = s->steps };

    summarise_latency(s, &r);
    for (int i = 0; i < s->p.participants; i++) {
        for (int n = 0; n < IDLETIME_STATE__MAX * IDLETIME_EVENT__MAX; n++) {
            r.count[n / 4][n % 4] += s->part[i].core.count[n / 4][n % 4];
        }
    }
    if (s->p.policy.kind == SIM_AUTO && s->p.participants) {
        const IdletimeLearner *l = &s->part[0].learner;

        r.predicted = idletime_budget_slowdown(&l->budget);
        r.factor = idletime_learner_factor(l);
        r.changes = l->changes;
        r.limit = l->channels.limit;
        r.ceiling = l->channels.ceiling;
    }
    return r;
}
