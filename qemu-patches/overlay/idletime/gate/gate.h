/*
 * Idletime gate: one participant, that is one device in one thread.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Joins the pure core with the arena, a clock and timers.  A device that is
 * served by several threads has a gate in each: threads are to each other
 * what processes are, and share through the arena alone.
 */
#ifndef IDLETIME_GATE_H
#define IDLETIME_GATE_H

#include "block/aio-wait.h"
#include "idletime/arena/foreground.h"
#include "idletime/arena/look.h"
#include "idletime/arena/slot.h"
#include "idletime/arena/tokens.h"
#include "idletime/arena/turns.h"
#include "idletime/learner/learner.h"
#include "idletime/resource/resource.h"
#include "idletime/gate/sigbus.h"
#include "idletime/gate/waker.h"

typedef enum IdletimePromotion {
    IDLETIME_PROMOTION_DEADLINE,
    IDLETIME_PROMOTION_FLUSH,
    IDLETIME_PROMOTION_JOURNAL,
    IDLETIME_PROMOTION_RING,
    IDLETIME_PROMOTION_CLASS_CHANGE,
    IDLETIME_PROMOTION_FLOW,
    IDLETIME_PROMOTION_STOP,
    IDLETIME_PROMOTION__MAX,
} IdletimePromotion;

/* Hold times: 2^i * 100 us, the last bin is open (above 52 s). */
#define IDLETIME_HOLD_BINS      20
#define IDLETIME_HOLD_FIRST_NS  (100 * 1000LL)

/* Written by the gate's thread, read by monitors (qatomic). */
typedef struct IdletimeGateStats {
    uint64_t bg_requests;
    uint64_t bg_bytes;
    uint64_t passed;
    uint64_t dropped;
    uint64_t pieces;
    uint64_t held;              /* now */
    uint64_t in_service;        /* now */
    uint64_t promotions[IDLETIME_PROMOTION__MAX];
    uint64_t waits[IDLETIME_VERDICT__MAX];
    uint64_t hold_bins[IDLETIME_HOLD_BINS];
    uint64_t hold_max_ns;
} IdletimeGateStats;

/** idletime_stat_add: Context: the thread of the gate that has the counter. */
static inline void idletime_stat_add(uint64_t *counter, int64_t n)
{
    qatomic_set(counter, *counter + n);
}

/* Slots on one set of boards. */
typedef struct IdletimeGateSlots {
    IdletimeBoards *boards;
    IdletimeSlot fg;
    IdletimeSlot bg;
} IdletimeGateSlots;

struct IdletimeGate {
    /* Hot: foreground. */
    IdletimeFgWriter fg;
    bool fg_ready;

    bool bg_ready;
    bool waiting;               /* announced on the background board */
    IdletimeGrant kept;         /* while other gates are waited for; or 0 */
    int64_t kept_since_ns;      /* 0: was not, for what is held now */
    IdletimeVerdictKind verdict;        /* of the last look */
    IdletimeResource *res;
    AioContext *ctx;
    char *label;
    int64_t hold_max_ns;        /* deadlines of its kind; 0: as the resource */
    IdletimeGateSlots slots;
    IdletimeScan scan;

    /*
     * Moving to another arena: the BQL's holder claims next_slots and sets
     * move; the gate's thread exchanges the two and clears it.
     */
    IdletimeGateSlots next_slots;
    bool move;                  /* qatomic */
    IdletimeGateStats stats;

    /* The slot whose turn we let pass, and since when. */
    int yielded_to;
    uint64_t yielded_started;
    int64_t yielded_since_ns;
    /* In force when we asked last; learned with 'auto'. */
    int64_t interval_ns;

    /*
     * One who has no event loop asks for itself (work/chunk.h): nobody else
     * touches the gate meanwhile, and whoever ends that pumps.
     */
    bool lent;                  /* qatomic */

    /* Called in ctx when held requests may be able to start. */
    void (*pump)(void *opaque);
    void *opaque;
    QEMUBH *bh;
    QEMUTimer *timer;
    IdletimeWaker waker;

    Notifier changed;           /* of the resource's settings */
    QTAILQ_ENTRY(IdletimeGate) next;    /* of the resource's */
};

/* The right to one background request in service. */
typedef struct IdletimeLease {
    IdletimeGrant grant;        /* value 0: without a token (arena lost) */
    int64_t since_ns;
    uint32_t bytes;
    uint32_t beside;            /* in service when it started, both classes */
    bool fg_idle;               /* no foreground among these */
    bool promoted;              /* at its deadline */
    bool mixed;                 /* other resources served it as well */
    IdletimeFee fee;            /* the learner's, when it starts */
} IdletimeLease;

/**
 * idletime_gate_new: a participant without a slot yet.
 * @label: for people, VM and device
 * The caller sets pump and opaque before it joins.  Context: BQL.
 */
IdletimeGate *idletime_gate_new(IdletimeResource *res, AioContext *ctx,
                                const char *label);
/** idletime_gate_free: nothing may be held or in service.  Context: BQL. */
void idletime_gate_free(IdletimeGate *gate);

/**
 * idletime_gate_join: claim the slots that a class needs.
 * Foreground posts on the foreground board; background reads it and claims a
 * slot on the background board.  Context: BQL.
 */
bool idletime_gate_join(IdletimeGate *gate, bool foreground, bool background,
                        Error **errp);

/**
 * idletime_gate_move: claim slots on @boards and go there, soon.
 * Context: BQL; no move may be under way.
 */
bool idletime_gate_move(IdletimeGate *gate, IdletimeBoards *boards,
                        Error **errp);
/**
 * idletime_gate_moved: has it arrived?  Then its old slots are given back.
 * Context: BQL.
 */
bool idletime_gate_moved(IdletimeGate *gate);

/* An entry that belongs to the gate's thread, or to who has borrowed it. */
static inline void idletime_gate_code(const IdletimeGate *gate)
{
    assert(in_aio_context_home_thread(gate->ctx) != qatomic_read(&gate->lent));
}

/* On the foreground's path it costs too much for a build that is used. */
static inline void idletime_gate_code_debug(const IdletimeGate *gate)
{
#ifdef QEMU_SANITIZE_ADDRESS
    idletime_gate_code(gate);
#endif
}

/**
 * idletime_gate_begin, _end: foreground requests.
 * Context: @gate's ctx; a build with sanitizers asserts that.
 */
static inline void idletime_gate_begin(IdletimeGate *gate, int64_t now_ns,
                                       uint64_t bytes)
{
    idletime_gate_code_debug(gate);
    idletime_guard_thread();
    idletime_fg_begin(&gate->fg, now_ns, bytes);
}

static inline void idletime_gate_end(IdletimeGate *gate, int64_t now_ns)
{
    idletime_gate_code_debug(gate);
    idletime_guard_thread();
    idletime_fg_end(&gate->fg, now_ns);
}

/**
 * idletime_gate_ask: may one background request start now?
 * @held_since_ns: when the guest submitted it
 * @bytes: of it, for the books
 * Returns true with @lease filled: issue it now.  Returns false: @pump will
 * be called when it is worth asking again.  Context: @gate's ctx.
 */
bool idletime_gate_ask(IdletimeGate *gate, int64_t held_since_ns,
                       uint64_t bytes, IdletimeLease *lease);

/**
 * idletime_gate_done: a background request completed.
 * @more: another one is held and will be asked for right now
 * Context: @gate's ctx.
 */
void idletime_gate_done(IdletimeGate *gate, const IdletimeLease *lease,
                        bool more);

/**
 * idletime_gate_reserve: the same of one that needs several gates.  It waits
 * for this one no more, and is on no book until idletime_gate_issue(); or it is
 * given back by _withdraw(), or kept: right after the others' answers.
 */
bool idletime_gate_reserve(IdletimeGate *gate, int64_t held_since_ns,
                           uint64_t bytes, IdletimeLease *lease);
void idletime_gate_issue(IdletimeGate *gate, const IdletimeLease *lease,
                         int64_t held_since_ns);
void idletime_gate_withdraw(IdletimeGate *gate, const IdletimeLease *lease);
/**
 * idletime_gate_keep: it has this place of the cap, and so others have it not,
 * while another gate is waited for.  It is given back before the next question,
 * and by idletime_gate_rest(); @pump is called in 20 ms to do either.  When it
 * is over, it is charged as service.
 */
void idletime_gate_keep(IdletimeGate *gate, const IdletimeLease *lease);
/**
 * idletime_gate_give_back: what is kept, for now.  Context: @gate's ctx.
 * Returns whether something was.
 */
bool idletime_gate_give_back(IdletimeGate *gate);

/** idletime_gate_pass: it waits elsewhere; others' turn.  Context: the same. */
void idletime_gate_pass(IdletimeGate *gate);
/** idletime_gate_rest: nothing is to be asked for.  Context: @gate's ctx. */
void idletime_gate_rest(IdletimeGate *gate);

/**
 * idletime_gate_watch: look every second whether the arena is still the one
 * that others see; if not, go blind and move to the new one.  From the first
 * gate on: -object is too early to know the clock.  Idempotent.
 * Context: BQL; part of idletime_gate_new().
 */
void idletime_gate_watch(IdletimeResource *res);

/**
 * idletime_gate_watch_observer: has the observer come, or died?  Says so.
 * Part of that watch.
 */
void idletime_gate_watch_observer(IdletimeResource *res);

/** idletime_gate_pump: Context: @opaque's (a gate's) ctx; not while lent. */
void idletime_gate_pump(void *opaque);
/** idletime_gate_follow_move: part of idletime_gate_pump(). */
void idletime_gate_follow_move(IdletimeGate *gate);

/** idletime_gate_kick: have @pump called in its context.  Any thread. */
void idletime_gate_kick(IdletimeGate *gate);

/**
 * idletime_gate_run: call @fn in @gate's context and wait for it.
 * Context: BQL.
 */
void idletime_gate_run(IdletimeGate *gate, void (*fn)(void *opaque),
                       void *opaque);

/**
 * idletime_gate_set_context: the device's queues are served in @ctx from now
 * on.  Nothing of the gate is in service.  Context: BQL.
 */
void idletime_gate_set_context(IdletimeGate *gate, AioContext *ctx);

/**
 * idletime_gate_learn: have the learner see what a look saw, and ask it.
 * @rule, @view: the permit is entered here
 * Returns what a start costs beyond it.
 * Context: @gate's ctx, res->lock held; there is a learner.
 */
IdletimeFee idletime_gate_learn(IdletimeGate *gate, IdletimeRule *rule,
                                IdletimeView *view, uint64_t bytes,
                                int64_t now_ns);
/**
 * idletime_gate_learn_again: by when to look again, @again_ns at the latest:
 * sooner while the learner has more to do than one look takes.
 * Context: res->lock held.
 */
int64_t idletime_gate_learn_again(const IdletimeGate *gate, int64_t again_ns,
                                  int64_t now_ns);
/**
 * idletime_gate_learn_done: an own request completed at @done_ns; @view is
 * of @now_ns, after it.
 * Context: @gate's ctx, res->lock held; there is a learner.
 */
void idletime_gate_learn_done(IdletimeGate *gate, const IdletimeLease *lease,
                              const IdletimeView *view, int64_t done_ns,
                              int64_t now_ns);

/** idletime_gate_note_promotion: a held request left early, for @cause. */
void idletime_gate_note_promotion(IdletimeGate *gate, IdletimePromotion cause);
/** idletime_gate_note_hold: a request was held for @held_ns. */
void idletime_gate_note_hold(IdletimeGate *gate, int64_t held_ns);

#endif
