/*
 * The simulation's state, and what its parts ask of each other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef SIM_IMPL_H
#define SIM_IMPL_H

#include "sim.h"

typedef struct Part {
    IdletimeCore core;
    IdletimeLearner learner;
    int held;                           /* requests, all alike */
    int64_t since_ns[SIM_OUTSTANDING_MAX];
    int64_t back_ns[SIM_OUTSTANDING_MAX];   /* when the next one is held */
    int64_t timer_ns, vtime_ns;
} Part;

typedef struct Sim {
    SimParams p;
    uint64_t random, path_random;
    int64_t now_ns, from_ns;            /* from_ns: of the present result */
    SimPath to, from;
    SimDevice device;
    SimForeground fg[SIM_FOREGROUNDS_MAX];
    IdletimeFgBoard *board;
    int64_t fg_last_ns, change_ns;
    uint64_t fg_started, fg_done, bg_started, bg_done, promoted;
    uint64_t bg_cost_ns, bg_bytes, steps;
    uint32_t fg_in_service, bg_in_service;
    int64_t bg_service_ns;              /* of the next one */
    int64_t bg_last_ns;                 /* SIM_VARIANT: an interval after it */
    int64_t interval_ns, interval_at_ns;        /* SIM_AIMD: then, when */
    uint64_t collisions;                /* SIM_AIMD: that it knows of */
    int64_t *latency_ns;
    size_t latencies, latencies_max;
    Part part[SIM_PARTICIPANTS_MAX];
} Sim;

/* ---- sim.c: time, the ways to the device and back, the foreground */

/* Of the next request. */
int64_t sim_service_ns(Sim *s);
void sim_issue(Sim *s, SimRequest request);

/* ---- background.c: who may start, and what is learned from it */

/* What moving the data of a background request adds. */
int64_t sim_transfer_ns(const Sim *s, uint32_t bytes);
void sim_background_done(Sim *s, const SimRequest *request);
void sim_background_step(Sim *s, Part *part);

/* ---- clairvoyant.c */

/* Will a channel be free for each foreground request while this one runs? */
bool sim_foreseen_free(const Sim *s);

/* ---- result.c */

/* What has happened since from_ns, at @end_ns. */
SimResult sim_summarise(Sim *s, int64_t end_ns);

#endif
