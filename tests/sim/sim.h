/*
 * idletime-sim: one device, foregrounds of several kinds, a greedy background.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The core, the learner and the foreground's writer are the product's own,
 * unchanged; the device, the boards and time are modelled.
 */
#ifndef IDLETIME_SIM_H
#define IDLETIME_SIM_H

#include "qemu/osdep.h"
#include "idletime/arena/foreground.h"
#include "idletime/core/core.h"
#include "idletime/learner/learner.h"

#define SIM_PARTICIPANTS_MAX    16
#define SIM_OUTSTANDING_MAX     64
#define SIM_FOREGROUNDS_MAX     16
#define SIM_CHANNELS_MAX        64
#define SIM_AHEAD               64      /* arrivals known to the clairvoyant */
#define SIM_QUEUE               65536
#define SIM_MOVING              256     /* requests on a path at a time */
#define SIM_PIECE_BYTES         131072u

typedef enum SimPolicyKind {
    SIM_ALONE,                  /* no background at all */
    SIM_UNCONTROLLED,           /* no scheduler at all */
    SIM_INTERVAL,
    SIM_AUTO,
    SIM_CLAIRVOYANT,            /* knows when the foreground comes next */
    SIM_VARIANT,                /* dissertation, Fig. 5.5: the other three */
    SIM_AIMD,                   /* dissertation, 7.2.2: B[f] as TCP's loss */
} SimPolicyKind;

typedef struct SimPolicy {
    SimPolicyKind kind;
    int64_t interval_ns;        /* fixed; SIM_AUTO, SIM_AIMD: the first */
    int variant;                /* SIM_VARIANT: 2 to 4, in the figure's order */
    double shrink;              /* SIM_AIMD: of the interval, ns each ns */
    double budget;              /* SIM_AUTO: share, 0.05 is 5 % */
} SimPolicy;

typedef enum SimGaps {
    SIM_GAPS_EVEN,              /* between bursts, with jitter */
    SIM_GAPS_EXPONENTIAL,
    SIM_POISSON,                /* no bursts: arrivals on their own */
    SIM_TRACE,                  /* a recording, over and over again */
} SimGaps;

typedef struct SimLoad {
    SimGaps gaps;
    int64_t quantum_ns;
    double intensity;           /* of each quantum, or of the device; 0 to 1 */
    double jitter;              /* of the gap, 0 to 1 */
} SimLoad;

/* Arrivals, ns since its begin, in order; it takes @span_ns. */
typedef struct SimTrace {
    int64_t *at_ns;
    int length;
    int64_t span_ns;
} SimTrace;

typedef struct SimResult {
    double fg_rate, bg_rate;    /* operations a second */
    double bg_bytes;            /* a second */
    double fg_mean_ns, fg_p99_ns, fg_p999_ns;
    double predicted;           /* SIM_AUTO: slowdown as the learner saw it */
    double factor;
    uint32_t limit, ceiling;    /* SIM_AUTO: of channels.c */
    uint64_t promoted, changes, steps;
    uint64_t count[IDLETIME_STATE__MAX][IDLETIME_EVENT__MAX];
} SimResult;

/* The result of a time, and when it began. */
typedef void SimEach(const SimResult *result, int64_t begin_ns, void *opaque);

typedef struct SimParams {
    uint64_t seed;
    int64_t duration_ns;
    int64_t warm_up_ns;         /* not in the results */
    int64_t each_ns;            /* a result for each such time; 0: one */
    SimEach *each;              /* takes those before the last one */
    void *opaque;
    int channels;
    int64_t service_ns;
    double spread;              /* of service times: uniform, +- this share */
    int64_t noise_ns;           /* a busy host: added to service times, mean */
    int64_t fg_noise_ns;        /* and to fg_think_ns */
    int64_t path_ns;            /* to the device, and back: each, mean */
    double stalls;              /* of so many of these the host was elsewhere */
    int64_t switch_ns;          /* more if the last one was of the others */
    int64_t transfer_ns;        /* of SIM_PIECE_BYTES of background data */
    uint32_t piece_bytes;       /* of background requests, at most */
    SimLoad load;
    SimTrace trace;             /* SIM_TRACE */
    int depth;                  /* bursts, trace: in service at most */
    int64_t change_ns;          /* then the load becomes: (0: never) */
    SimLoad after;
    int64_t fg_think_ns, bg_think_ns;
    int foregrounds, participants, outstanding;
    IdletimeRule rule;
    SimPolicy policy;
} SimParams;

/* Same parameters, same result; with @each_ns, of the last such time. */
SimResult sim_run(const SimParams *params);

/* ---- device.c: some channels behind one queue, first come, first served */

typedef struct SimRequest {
    int owner;                  /* participant, or ~foreground */
    uint32_t bytes;
    int64_t issued_ns;
    int64_t service_ns;
    int64_t done_ns;            /* once in service */
    uint32_t beside;            /* others at the device when it was issued */
    bool fg_idle;               /* no foreground among these */
} SimRequest;

typedef struct SimDevice {
    int channels, busy, head, length;
    int64_t switch_ns;          /* from foreground to background, and back */
    bool at_background;         /* the last one to be served */
    SimRequest serving[SIM_CHANNELS_MAX];
    SimRequest queue[SIM_QUEUE];
} SimDevice;

void sim_device_issue(SimDevice *d, SimRequest request, int64_t now_ns);
int64_t sim_device_next_ns(const SimDevice *d);
/* The request that is done at @now_ns, if there is one. */
bool sim_device_done(SimDevice *d, int64_t now_ns, SimRequest *request);

/* ---- path.c: one way between the participants and the device */

typedef struct SimPath {
    int moving;
    SimRequest request[SIM_MOVING];
    int64_t arrival_ns[SIM_MOVING];
} SimPath;

void sim_path_send(SimPath *p, SimRequest request, int64_t arrival_ns);
int64_t sim_path_next_ns(const SimPath *p);
/* The request that has arrived at @now_ns, if there is one. */
bool sim_path_arrived(SimPath *p, int64_t now_ns, SimRequest *request);

/* ---- load.c: one foreground */

typedef struct SimForeground {
    SimLoad load;
    uint64_t random, noise;
    int64_t next_ns;            /* its next request; INT64_MAX: not known yet */
    int64_t burst_ns;           /* begin of the present burst */
    int64_t ahead[SIM_AHEAD];   /* Poisson: arrivals after next_ns */
    int64_t issued;             /* of a trace */
    int in_service, ready;      /* bursts: to be sent at next_ns */
    IdletimeFgWriter writer;
} SimForeground;

void sim_load_begin(SimForeground *f, const SimParams *p, int64_t now_ns,
                    int index);
void sim_load_issued(SimForeground *f, const SimParams *p);
void sim_load_done(SimForeground *f, const SimParams *p, int64_t now_ns);
/* Arrival number @index from now on, as far as it is determined. */
int64_t sim_load_ahead(const SimForeground *f, const SimParams *p, int index);

/* Times of a file in the format of the MSR Cambridge traces. */
SimTrace sim_trace_read(const char *path);

/* 0 <= x < 1 */
double sim_uniform(uint64_t *random);
/* Exponential, of this mean. */
int64_t sim_exponential(uint64_t *random, double mean_ns);

#endif
