/*
 * idletime-sim: one device, a bursty foreground, a greedy background.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_SIM_H
#define IDLETIME_SIM_H

#include "qemu/osdep.h"
#include "idletime/core.h"

#define SIM_PARTICIPANTS_MAX    16
#define SIM_OUTSTANDING_MAX     64
#define SIM_QUEUE               (SIM_PARTICIPANTS_MAX * SIM_OUTSTANDING_MAX + 1)
#define SIM_UNCONTROLLED        (-1)    /* interval: no scheduler at all */

typedef struct SimParams {
    uint64_t seed;
    int64_t duration_ns, quantum_ns, service_ns;
    int64_t fg_think_ns, bg_think_ns;
    double intensity;           /* of each quantum, 0 to 1 */
    double jitter;              /* of the gap, 0 to 1 */
    bool exponential;           /* gaps between bursts */
    int participants, outstanding;
    IdletimeRule rule;
} SimParams;

typedef struct SimResult {
    double fg_rate, bg_rate;    /* operations a second */
    double fg_mean_ns, fg_p99_ns;
    uint64_t promoted;
    uint64_t count[IDLETIME_STATE__MAX][IDLETIME_EVENT__MAX];
} SimResult;

/* Same parameters, same result. */
SimResult sim_run(const SimParams *params);

#endif
