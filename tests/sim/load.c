/*
 * The simulated foregrounds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Bursts: for the first part of each quantum one request after the other, a
 * moment of thinking in between; then nothing until the next burst.  Poisson:
 * requests on their own schedule, however long the ones before take.
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

static double mean_arrival_ns(const SimForeground *f, const SimParams *p)
{
    return p->service_ns / (f->load.intensity * p->channels) * p->foregrounds;
}

void sim_load_begin(SimForeground *f, const SimParams *p, int64_t now_ns,
                    int index)
{
    f->load = now_ns < p->change_ns || !p->change_ns ? p->load : p->after;
    f->burst_ns = now_ns + f->load.quantum_ns * index / p->foregrounds;
    f->next_ns = f->load.intensity > 0 ? f->burst_ns : INT64_MAX;
    if (f->load.gaps == SIM_POISSON && f->load.intensity > 0) {
        int64_t at_ns = f->next_ns = now_ns +
                        sim_exponential(&f->random, mean_arrival_ns(f, p));

        for (int i = 0; i < SIM_AHEAD; i++) {
            f->ahead[i] = at_ns += sim_exponential(&f->random, mean_arrival_ns(f, p));
        }
    }
}

void sim_load_issued(SimForeground *f, const SimParams *p)
{
    if (f->load.gaps != SIM_POISSON) {
        f->next_ns = INT64_MAX;
        return;
    }
    f->next_ns = f->ahead[0];
    memmove(f->ahead, f->ahead + 1, sizeof(f->ahead) - sizeof(f->ahead[0]));
    f->ahead[SIM_AHEAD - 1] = f->ahead[SIM_AHEAD - 2] +
                              sim_exponential(&f->random, mean_arrival_ns(f, p));
}

void sim_load_done(SimForeground *f, const SimParams *p, int64_t now_ns)
{
    if (f->load.gaps == SIM_POISSON) {
        return;
    }
    f->next_ns = now_ns + p->fg_think_ns;
    if (p->fg_noise_ns) {
        f->next_ns += sim_exponential(&f->noise, p->fg_noise_ns);
    }
    if (f->next_ns >= f->burst_ns + busy_ns(f)) {
        f->burst_ns = MAX(f->burst_ns + busy_ns(f) + pause_ns(f), now_ns);
        f->next_ns = f->burst_ns;
    }
}

int64_t sim_load_ahead(const SimForeground *f, int index)
{
    if (index == 0) {
        return f->next_ns;
    }
    return f->load.gaps == SIM_POISSON && index <= SIM_AHEAD ?
           f->ahead[index - 1] : INT64_MAX;
}
