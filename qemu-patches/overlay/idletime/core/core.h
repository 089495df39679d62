/*
 * Idletime core: when may a background request start?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The core is pure: no clock, lock, timer, allocation or I/O.  The caller
 * hands in facts (an IdletimeView and the time) and gets a verdict.  The same
 * file is compiled into QEMU, the unit tests and the simulator.
 */
#ifndef IDLETIME_CORE_H
#define IDLETIME_CORE_H

/* States of the resource, dissertation section 5.1, variant 1. */
typedef enum IdletimeState {
    IDLETIME_STATE_IDLE,
    IDLETIME_STATE_FOREGROUND,
    IDLETIME_STATE_PREEMPTION,
    IDLETIME_STATE_BACKGROUND,
    IDLETIME_STATE__MAX,
} IdletimeState;

typedef enum IdletimeEvent {
    IDLETIME_EVENT_FOREGROUND,      /* f: foreground request at the head */
    IDLETIME_EVENT_BACKGROUND,      /* b: background request at the head */
    IDLETIME_EVENT_TIMER,           /* t: the preemption interval expired */
    IDLETIME_EVENT_EMPTY,           /* i: the queue is empty */
    IDLETIME_EVENT__MAX,
} IdletimeEvent;

/* What the observer in the kernel shows; all zero without one. */
typedef struct IdletimeObservedFacts {
    uint64_t started;           /* requests so far, total */
    uint64_t request_ns;        /* in service so far: may be off, even far */
    uint32_t in_service;
} IdletimeObservedFacts;

/* What one look at the boards saw. */
typedef struct IdletimeView {
    uint64_t fg_started;        /* foreground requests started so far, total */
    uint32_t fg_in_service;     /* foreground participants in service now */
    uint32_t fg_requests;       /* requests of these */
    uint64_t fg_request_ns;     /* their times in service so far, total */
    int64_t fg_last_ns;         /* last foreground event; INT64_MIN: none yet */
    uint32_t bg_in_service;     /* background in service, all participants */
    bool others_first;          /* it is another participant's turn */
    bool overdue_first;         /* another one's deadline passed earlier */
    bool blind;                 /* the arena is lost: nothing above is known */
    bool unseen;                /* no observer where one is to be: there may */
                                /* be foreground that is not in this view */
    IdletimeObservedFacts observed;     /* requests are in the sums above, */
                                        /* their time is not */
    int64_t closed_until_ns;    /* the budget allows no start before; 0: open */
    bool beside;                /* the foreground leaves room for one more */
} IdletimeView;

/* What the operator wants. */
typedef struct IdletimeRule {
    int64_t interval_ns;        /* preemption interval; 0: priority queue */
    int64_t max_hold_ns;        /* deadline of a held request; 0: never */
    uint32_t max_inflight;      /* background in service at most; at least 1 */
} IdletimeRule;

typedef enum IdletimeVerdictKind {
    IDLETIME_START,             /* start one background request now */
    IDLETIME_PROMOTE,           /* start it although it is not its time */
    IDLETIME_WAIT_FOREGROUND,   /* foreground is in service */
    IDLETIME_WAIT_INTERVAL,     /* the preemption interval runs */
    IDLETIME_WAIT_BUDGET,       /* the budget allows no start at this time */
    IDLETIME_WAIT_INFLIGHT,     /* the in-flight cap is reached */
    IDLETIME_WAIT_TURN,         /* another background participant's turn */
    IDLETIME_WAIT_ARENA,        /* blind or unseen: deadlines only */
    IDLETIME_VERDICT__MAX,
} IdletimeVerdictKind;

typedef struct IdletimeVerdict {
    IdletimeVerdictKind kind;
    int64_t again_ns;           /* WAIT_*: ask again then at the latest */
    bool alone;                 /* PROMOTE: without a token if there is none */
} IdletimeVerdict;

typedef struct IdletimeCore {
    IdletimeState state;
    uint32_t own_in_service;    /* background requests that we started */
    uint64_t fg_started;        /* of the last view */
    int64_t fg_last_ns;         /* of the last view */
    bool blind;                 /* the last view was that, or unseen */
    int64_t kept_since_ns;      /* others let nothing of ours go, though it */
    int64_t kept_ns;            /* is overdue; INT64_MIN: they do */
    uint64_t count[IDLETIME_STATE__MAX][IDLETIME_EVENT__MAX];
} IdletimeCore;

/*
 * While foreground is in service nobody tells us when it ends, so we look
 * again.  The earliest start is one interval after that end, so looking once
 * an interval loses nothing; below this floor it would only burn processor.
 */
#define IDLETIME_LOOK_MIN_NS        (200 * 1000LL)
/* Backstop for a token whose owner died: nobody wakes us then. */
#define IDLETIME_LOOK_INFLIGHT_NS   (10 * 1000 * 1000LL)
/*
 * How long another participant is given to take its turn before we start.
 * One that is well takes it within 100 us; on a host whose processors are all
 * busy a scheduler's time slice may pass first (3 to 4 ms on Linux).
 */
#define IDLETIME_GRACE_NS           (5000 * 1000LL)
/* How often a lost arena is looked for. */
#define IDLETIME_LOOK_ARENA_NS      (100 * 1000 * 1000LL)
/* The lease at least: no disk that works takes longer for one request. */
#define IDLETIME_LEASE_NS           (5 * 1000 * 1000 * 1000LL)
/* What others keep for a lease too long leaves one by one, so far apart. */
#define IDLETIME_KEPT_NS            (500 * 1000 * 1000LL)

/**
 * idletime_lease_ns: how long the token of a living owner is respected, and
 * for how long others may keep what is overdue: the deadline of held requests,
 * at least IDLETIME_LEASE_NS.
 */
int64_t idletime_lease_ns(const IdletimeRule *rule);

/**
 * idletime_core_init: state idle, all counters zero.
 * @view: the first look; foreground requests before it are not counted.
 */
void idletime_core_init(IdletimeCore *core, const IdletimeView *view);

/**
 * idletime_core_event: one step of the state machine, counted.
 * Returns the new state.  Never fails: an event that means nothing in a state
 * (a late timer, say) is counted and changes nothing.
 */
IdletimeState idletime_core_event(IdletimeCore *core, IdletimeEvent event);

/**
 * idletime_core_observe: catch up with what the foreground did.
 * @now_ns: on the clock of the view's timestamps
 *
 * Turns the difference to the last view into events f, i and t.
 */
void idletime_core_observe(IdletimeCore *core, const IdletimeRule *rule,
                           const IdletimeView *view, int64_t now_ns);

/**
 * idletime_core_due_ns: the deadline; INT64_MAX if there is none.
 */
int64_t idletime_core_due_ns(const IdletimeRule *rule, int64_t held_since_ns);

/**
 * idletime_core_ask: may the background request at the head start?
 * @held_since_ns: when the guest submitted it
 *
 * Observes, then decides, and remembers since when others keep what is
 * overdue.  Changes nothing else: after IDLETIME_START or IDLETIME_PROMOTE the
 * caller tells by idletime_core_started() that it did.
 */
IdletimeVerdict idletime_core_ask(IdletimeCore *core, const IdletimeRule *rule,
                                  const IdletimeView *view, int64_t now_ns,
                                  int64_t held_since_ns);

/** idletime_core_started: a background request was issued (event b). */
void idletime_core_started(IdletimeCore *core);

/**
 * idletime_core_done: one of our background requests completed.
 * @more: another own one is held and will be asked for right now
 */
void idletime_core_done(IdletimeCore *core, const IdletimeRule *rule,
                        const IdletimeView *view, int64_t now_ns, bool more);

/** idletime_state_name, idletime_event_name: one lower-case word each. */
const char *idletime_state_name(IdletimeState state);
const char *idletime_event_name(IdletimeEvent event);

#endif
