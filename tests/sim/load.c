/*
 * The simulated foregrounds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Bursts: for the first part of each quantum one request after the other, or
 * some at a time, and a moment of thinking in between; then nothing until the
 * next burst.  Poisson:
 * requests on their own schedule, however long the ones before take.  Trace:
 * the same at recorded times, as long as fewer than so many are in service.
 */
#include "sim.h"
#include <math.h>

/* splitmix64, public domain algorithm by S. Vigna */
double sim_uniform(uint64_t *random)
{
    uint64_t z = *random += 0x9e3779b97f4a7c15ULL;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

int64_t sim_exponential(uint64_t *random, double mean_ns)
{
    return -log(1.0 - sim_uniform(random)) * mean_ns;
}

static int64_t busy_ns(const SimForeground *f)
{
    return f->load.intensity * f->load.quantum_ns;
}

static int64_t pause_ns(SimForeground *f)
{
    double gap_ns = f->load.quantum_ns - busy_ns(f);

    if (f->load.gaps == SIM_GAPS_EXPONENTIAL) {
        return sim_exponential(&f->random, gap_ns);
    }
    return gap_ns * (1.0 + f->load.jitter *
                           (2.0 * sim_uniform(&f->random) - 1.0));
}

enum { TRACE_TICK_NS = 100 };
/* Stamps from here on, three years, are dates; they begin with the first. */
#define TRACE_DATES_TICKS INT64_C(1000000000000000)

/* When the recording has request number @number, from 0 on. */
static int64_t recorded_ns(const SimTrace *t, int64_t number)
{
    return number / t->length * t->span_ns + t->at_ns[number % t->length];
}

static double mean_arrival_ns(const SimForeground *f, const SimParams *p)
{
    return p->service_ns / (f->load.intensity * p->channels) * p->foregrounds;
}

void sim_load_begin(SimForeground *f, const SimParams *p, int64_t now_ns,
                    int index)
{
    f->load = now_ns < p->change_ns || !p->change_ns ? p->load : p->after;
    f->ready = p->depth - f->in_service;
    f->burst_ns = now_ns + f->load.quantum_ns * index / p->foregrounds;
    f->next_ns = f->load.intensity > 0 ? f->burst_ns : INT64_MAX;
    if (f->load.gaps == SIM_TRACE) {
        f->next_ns = recorded_ns(&p->trace, f->issued);
    }
    if (f->load.gaps == SIM_POISSON && f->load.intensity > 0) {
        int64_t at_ns = f->next_ns = now_ns +
                        sim_exponential(&f->random, mean_arrival_ns(f, p));

        for (int i = 0; i < SIM_AHEAD; i++) {
            at_ns += sim_exponential(&f->random, mean_arrival_ns(f, p));
            f->ahead[i] = at_ns;
        }
    }
}

void sim_load_issued(SimForeground *f, const SimParams *p)
{
    if (f->load.gaps == SIM_TRACE) {
        f->issued++;
        f->next_ns = ++f->in_service < p->depth ?
                     recorded_ns(&p->trace, f->issued) : INT64_MAX;
        return;
    }
    if (f->load.gaps != SIM_POISSON) {
        f->next_ns = ++f->in_service < p->depth && f->ready > 1 ? f->next_ns :
                     INT64_MAX;
        f->ready--;
        return;
    }
    f->next_ns = f->ahead[0];
    memmove(f->ahead, f->ahead + 1, sizeof(f->ahead) - sizeof(f->ahead[0]));
    f->ahead[SIM_AHEAD - 1] =
        f->ahead[SIM_AHEAD - 2] + sim_exponential(&f->random,
                                                  mean_arrival_ns(f, p));
}

void sim_load_done(SimForeground *f, const SimParams *p, int64_t now_ns)
{
    if (f->load.gaps == SIM_TRACE) {
        f->in_service--;
        f->next_ns = MAX(recorded_ns(&p->trace, f->issued), now_ns);
    }
    if (f->load.gaps == SIM_POISSON || f->load.gaps == SIM_TRACE) {
        return;
    }
    f->in_service--;
    f->ready++;
    f->next_ns = now_ns + p->fg_think_ns;
    if (p->fg_noise_ns) {
        f->next_ns += sim_exponential(&f->noise, p->fg_noise_ns);
    }
    if (f->next_ns < f->burst_ns + busy_ns(f)) {
        return;
    }
    f->next_ns = INT64_MAX;
    if (!f->in_service) {
        f->burst_ns = MAX(f->burst_ns + busy_ns(f) + pause_ns(f), now_ns);
        f->next_ns = f->burst_ns;
    }
}

int64_t sim_load_ahead(const SimForeground *f, const SimParams *p, int index)
{
    if (index == 0) {
        return f->next_ns;
    }
    if (f->load.gaps == SIM_TRACE) {
        return recorded_ns(&p->trace, f->issued + index);
    }
    return f->load.gaps == SIM_POISSON && index <= SIM_AHEAD ?
           f->ahead[index - 1] : INT64_MAX;
}

SimTrace sim_trace_read(const char *path)
{
    FILE *file = fopen(path, "r");
    SimTrace t = { 0 };
    long long ticks, begin = 0;

    while (file && fscanf(file, "%lld,%*[^\n]", &ticks) == 1) {
        if (!t.length && ticks >= TRACE_DATES_TICKS) {
            begin = ticks;
        }
        ticks -= begin;
        if (t.length % 1024 == 0) {
            t.at_ns = realloc(t.at_ns, (t.length + 1024) * sizeof(int64_t));
        }
        t.at_ns[t.length++] = ticks * TRACE_TICK_NS;
        t.span_ns = MAX(t.span_ns, ticks * TRACE_TICK_NS + 1);
    }
    if (!t.length) {
        fprintf(stderr, "idletime-sim: --trace: no requests in '%s'\n", path);
        exit(2);
    }
    fclose(file);
    return t;
}
