/*
 * Idletime learner: the interval that sets itself.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * One for each resource and process that has background participants there.
 * Facts go in (what a look at the boards saw, own starts and completions),
 * an admission comes out.  Pure: no clock, lock, timer, allocation or I/O.
 */
#ifndef IDLETIME_LEARNER_H
#define IDLETIME_LEARNER_H

#include "idletime/learner/budget.h"
#include "idletime/learner/channels.h"
#include "idletime/learner/cost.h"
#include "idletime/learner/cycle.h"
#include "idletime/learner/gaps.h"
#include "idletime/learner/observed.h"
#include "idletime/learner/plan.h"
#include "idletime/learner/scale.h"
#include "idletime/learner/service.h"
#include "idletime/learner/spare.h"
#include "idletime/learner/seek.h"

/* Fewer are no distribution. */
#define IDLETIME_READY_GAPS 24

/* What the operator wants. */
typedef struct IdletimeGoal {
    double share;               /* the budget: 0.05 is 5 % */
    int64_t interval_ns;        /* in force until enough is known */
} IdletimeGoal;

/* What a start costs that is beyond the windows; taken when it starts. */
typedef struct IdletimeFee {
    bool probe;                 /* to see how long it takes */
    double owed_ns;             /* of foreground time */
    double purse_ns;            /* of what there is for probes */
} IdletimeFee;

typedef struct IdletimeAdmission {
    bool learned;               /* else the goal's interval is in force */
    int64_t interval_ns;        /* age at which background may start first */
    int64_t closed_until_ns;    /* no start before; INT64_MIN: open */
    bool beside;                /* start although foreground is in service */
    uint32_t max_inflight;      /* background in service at most */
    IdletimeFee fee;
} IdletimeAdmission;

/*
 * Background was in service when the foreground arrived, or had been before,
 * on a disk with an arm.
 */
typedef struct IdletimeCollision {
    bool open;                  /* the foreground has not been idle since */
    int64_t arrival_ns;
    int64_t start_ns;           /* own start that it is of */
    double delay_ns;            /* until the background's end, as reckoned */
    double seek_ns;             /* and for the arm's way back */
    double share;               /* our part of that */
    double part;                /* our part of both */
} IdletimeCollision;

/*
 * What one look does at most; 100 us is the time that it may take.  Units of
 * work of a plan, 15 to 30 ns each: 15 to 30 us.
 */
#define IDLETIME_LOOK_WORK  1024
/* Gaps that it learns from, half a us each: all that one ring has. */
#define IDLETIME_LOOK_GAPS  128
/* With more than so many, a plan has to wait for the next look. */
#define IDLETIME_LOOK_FEW   32

/* Which windows are being planned? */
typedef enum IdletimePlanning {
    IDLETIME_PLANNING_NOTHING,
    IDLETIME_PLANNING_WINDOWS,  /* by the age of a gap */
    IDLETIME_PLANNING_CYCLE,    /* by the time since a burst began */
} IdletimePlanning;

typedef struct IdletimeLearner {
    IdletimeGaps gaps;
    IdletimeObservedTime observed;
    IdletimeHistogram slow, fast;
    double doubt;               /* evidence that slow is out of date, nats */
    int64_t gap_ns;             /* when the last gap ended */
    uint64_t gap_count, changes;
    double request_ns, request_gaps;    /* foreground time a gap, decaying */
    int64_t busy_ns, look_ns;   /* of the gaps, at the last look */

    IdletimeServiceTimes services;
    bool served_alone;          /* they are of requests that were not mixed */

    IdletimeWindows windows;
    IdletimeCycle cycle;
    uint64_t built_gaps;        /* gap_count of the windows; 0: none yet */
    int64_t built_ns;
    IdletimePlanning planning;
    IdletimePlan plan;          /* of that */
    uint64_t planned_gaps;      /* gap_count when it began */
    int64_t planned_ns;

    IdletimeBudget budget;
    IdletimeCost cost;
    IdletimeCollision collision;        /* the last one */
    IdletimeScale scale;        /* of what that is reckoned to be */
    IdletimeSeek seek;
    uint64_t bg_started;        /* at the last look */
    uint32_t own_started;       /* since then */
    double owed_ns;             /* probes: not published yet */
    double collided_ns;         /* since the last look: a collision's delay */
    int64_t worked_ns;          /* busy until the last event, at that look */
    double said_ns;             /* by us, at the last look */
    IdletimeChannels channels;
    bool probed;                /* one was started to see how long it takes */
    IdletimeSpare spare;
    int64_t start_ns;           /* own last start */
    int64_t done_ns;            /* own last completion, not yet asked after */
    int64_t arrival_ns;         /* first foreground arrival after it */
} IdletimeLearner;

/** idletime_learner_init: what happened before @since_ns teaches nothing. */
void idletime_learner_init(IdletimeLearner *l, int64_t since_ns);

/**
 * idletime_learner_look: learn from rings and sums of the same moment.
 * @fg: the board; @slots: of it in use; l->gaps.observed: set by the caller
 * Returns what collisions, returns of the foreground and probes have cost, in
 * ns, as far as that can be told by now: to be published on the background
 * board before the next look, as this one has counted it.
 */
uint64_t idletime_learner_look(IdletimeLearner *l, const IdletimeGoal *goal,
                               const IdletimeFgBoard *fg, uint32_t slots,
                               const IdletimeTotals *totals, int64_t now_ns);

/* What admission is asked for. */
typedef struct IdletimeQuestion {
    uint32_t bytes;             /* of the request */
    uint32_t fg_requests;       /* foreground requests in service */
    uint32_t bg_in_service;
    int64_t fg_last_ns;         /* last foreground event */
    int64_t now_ns;
} IdletimeQuestion;

/** idletime_learner_admit: may a request start now?  Takes nothing for it. */
IdletimeAdmission idletime_learner_admit(IdletimeLearner *l,
                                       const IdletimeGoal *goal,
                                       const IdletimeQuestion *q);

/**
 * idletime_learner_again: who is not admitted looks again at @again_ns; sooner,
 * while a plan is being made, and while a collision goes on: looks are what
 * makes the one, and what measures the other.
 */
int64_t idletime_learner_again(const IdletimeLearner *l, int64_t again_ns,
                               int64_t now_ns);

/**
 * idletime_learner_started: an own request was issued.
 * @fee: of its admission; of one that was promoted: none
 */
void idletime_learner_started(IdletimeLearner *l, IdletimeFee fee,
                              int64_t now_ns);

/* An own request that has completed. */
typedef struct IdletimeServed {
    uint32_t bytes;
    uint32_t beside;            /* others in service when it started */
    bool fg_idle;               /* no foreground among these */
    bool mixed;                 /* other resources served it as well */
    int64_t since_ns;
} IdletimeServed;

/** idletime_learner_done: an own one completed; before it, a look then. */
void idletime_learner_done(IdletimeLearner *l, const IdletimeServed *served,
                           int64_t now_ns);

/** idletime_learner_interval: in force; @safe_ns until enough is known. */
int64_t idletime_learner_interval(const IdletimeLearner *l, int64_t safe_ns);

/**
 * idletime_learner_factor: ns of foreground time per ns of the first one's
 * delay, as it is reckoned.
 */
double idletime_learner_factor(const IdletimeLearner *l);

/**
 * idletime_learner_collision: what one costs at most, in ns of foreground time.
 * While no service time is known, what own requests have taken; 0: no idea.
 */
double idletime_learner_collision(const IdletimeLearner *l);

/** idletime_learner_ready: is enough known? */
bool idletime_learner_ready(const IdletimeLearner *l);

#endif
