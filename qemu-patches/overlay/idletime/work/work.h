/*
 * Idletime work: what QEMU does of itself, as background.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A block job is a piece of work, and so is all that the clients of an export
 * ask for, and a migration.  It goes on by chunks: some data are read, written,
 * copied or sent.  Before each chunk it asks the gate of its resource.
 *
 *   ask --no---> nothing is claimed, in flight or locked; wait, ask again
 *    |
 *   yes: a chunk is in service until the last reference to it is gone
 *
 *   attached --detach or its end--> leaving --> left, freed
 *
 * The owner's pointer to its work appears and goes under the BQL while the
 * owner runs.  Who sees it finds in it what to do, until the owner's thread is
 * back in its event loop: there the gate waits for it before it is freed.
 */
#ifndef IDLETIME_WORK_H
#define IDLETIME_WORK_H

#include "idletime/gate/gate.h"
#include "idletime/work/chunk.h"
#include "idletime/work/queue.h"
#include "qemu/coroutine.h"

typedef enum IdletimeWorkKind {
    IDLETIME_WORK_JOB,
    IDLETIME_WORK_EXPORT,
    IDLETIME_WORK_MIGRATION,
    IDLETIME_WORK__MAX,
} IdletimeWorkKind;

typedef struct IdletimeWorkOps {
    IdletimeWorkKind kind;
    /** waits: is there anybody to wake?  Context: the thread of ctx. */
    bool (*waits)(const IdletimeWork *work);
    /** wake: who waits asks again.  Context: as waits. */
    void (*wake)(IdletimeWork *work);
    /** left: clear the pointer to it.  Context: BQL. */
    void (*left)(IdletimeWork *work);
} IdletimeWorkOps;

struct IdletimeWork {
    const IdletimeWorkOps *ops;
    void *owner;                /* BQL; NULL: it has ended */
    char *id;                   /* of the owner */
    IdletimeResource *res;
    IdletimeGate *gate;
    bool detaching;             /* BQL; idletime-detach was given */
    bool leaving;               /* qatomic: nothing is asked any more */
    AioContext *ctx;            /* qatomic; NULL: on its way to another */
    AioContext *next_ctx;       /* BQL */
    QEMUBH *serve_bh;           /* main loop: next_ctx has changed */
    QEMUBH *left_bh;            /* main loop: nothing is left of it */

    /* The thread of ctx. */
    unsigned chunks;            /* in service */

    /* A job.  The same thread. */
    IdletimeWork *also;         /* qatomic, BQL; it, on another resource */
    int64_t held_since_ns;      /* of what waits; 0: nothing does */
    bool waiting;               /* in idletime_job_wait() */
    QemuCoSleep *sleeper;       /* the same in idletime_job_sleep() */
    bool woken;                 /* by us */

    IdletimeQueue queue;        /* of an export */

    QTAILQ_ENTRY(IdletimeWork) next;
};

/** idletime_work_kind: for people: "job" */
const char *idletime_work_kind(const IdletimeWork *work);

/**
 * idletime_work_new: background on @resource from now on.
 * @id: of @owner, for people and the monitor
 * @ctx: where it runs
 * Returns NULL with @errp set.  Context: BQL.
 */
IdletimeWork *idletime_work_new(const char *resource, const char *id,
                                AioContext *ctx, void *owner,
                                const IdletimeWorkOps *ops, Error **errp);

/** idletime_work_check_none: sets @errp if there is @work.  Context: BQL. */
bool idletime_work_check_none(const IdletimeWork *work, Error **errp);

/**
 * idletime_work_detach: it leaves when nothing waits or is in service.  Told
 * once more, it changes nothing.  BQL.
 */
void idletime_work_detach(IdletimeWork *work);
/** idletime_work_ended: nothing is in service, nor will be.  Context: BQL. */
void idletime_work_ended(IdletimeWork *work);
/**
 * idletime_work_serve: it runs in @ctx from now on.  Nothing is in service;
 * until its gate has followed, all is held.  Context: BQL.
 */
void idletime_work_serve(IdletimeWork *work, AioContext *ctx);
/**
 * idletime_work_follow: it has followed when this returns, where the main loop
 * may not come to it.  Context: BQL.
 */
void idletime_work_follow(IdletimeWork *work);

/** idletime_work_is_here: in the thread of ctx; false on its way to another. */
bool idletime_work_is_here(const IdletimeWork *work);
/**
 * idletime_work_ask: may a chunk of @bytes start?  It has been waited for
 * since @since_ns.
 * Returns true with @chunk set, which is NULL where nobody counts it (it is
 * leaving).  Returns false: ops->wake() will be called.
 * Context: the thread of ctx.
 */
bool idletime_work_ask(IdletimeWork *work, int64_t since_ns, uint64_t bytes,
                       IdletimeChunk **chunk);
/**
 * idletime_work_reserve: the same of a job, which asks all of its works.  What
 * is permitted is put before @chunk, which is what the others have permitted,
 * or NULL; it is issued, or withdrawn, right after.
 */
bool idletime_work_reserve(IdletimeWork *work, int64_t since_ns,
                           uint64_t bytes, IdletimeChunk **chunk);
/** idletime_work_issue: @chunk, which may be NULL, starts.  Context: as ask. */
void idletime_work_issue(IdletimeChunk *chunk, int64_t since_ns);
/** idletime_work_withdraw: @chunk, which may be NULL, does not.  Likewise. */
void idletime_work_withdraw(IdletimeChunk *chunk);
/**
 * idletime_work_keep: nor does it, for now; until the next question, or until
 * nothing waits any more, its places stay taken.  Likewise.
 */
void idletime_work_keep(IdletimeChunk *chunk);
/** idletime_work_is_taken: all places were, at the last question.  Likewise. */
bool idletime_work_is_taken(const IdletimeWork *work);
/**
 * idletime_work_expel: a chunk that waited starts now, as foreground: work
 * leaves.  Context: as ask.
 */
IdletimeChunk *idletime_work_expel(IdletimeWork *work);
/** idletime_work_held: @n wait now; for the books.  Any thread. */
void idletime_work_held(IdletimeWork *work, unsigned n);
/** idletime_work_pass: its job waits for another work.  Context: as ask. */
void idletime_work_pass(IdletimeWork *work);
/** idletime_work_rest: nothing waits any more.  Context: as ask. */
void idletime_work_rest(IdletimeWork *work);

/** idletime_work_foreach: those of @res, in order of creation.  BQL. */
void idletime_work_foreach(const IdletimeResource *res,
                           void (*fn)(IdletimeWork *work, void *opaque),
                           void *opaque);

#endif
