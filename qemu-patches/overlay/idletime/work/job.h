/*
 * Idletime job: a block job whose chunks start when its resources are idle.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Backup, mirror, stream and commit ask before they claim what they copy: so
 * a request of the guest, which waits for claims, never waits for the gate.
 * Copy-before-write and active mirror writes ask nobody.
 *
 * A job that is attached to nothing pays one test of a pointer.
 */
#ifndef IDLETIME_JOB_H
#define IDLETIME_JOB_H

#include "qemu/atomic.h"
#include "qemu/job.h"
#include "idletime/work/chunk.h"

/* Slow paths; use the inline functions below. */
bool coroutine_fn idletime_job_ask_slow(Job *job, uint64_t bytes,
                                        IdletimeChunk **chunk);
int64_t idletime_job_limit_slow(Job *job, int64_t bytes);
void idletime_job_moved_slow(Job *job);
void idletime_job_ended_slow(Job *job);

/**
 * idletime_job_ask: may @job copy @bytes now?
 * Returns true with @chunk set, which the caller releases when it is done;
 * NULL: nobody counts it.  Returns false: nothing may be claimed; wait, look
 * anew at what there is to do, and ask again.
 * Context: the job's coroutines.
 */
static inline bool coroutine_fn idletime_job_ask(Job *job, uint64_t bytes,
                                                 IdletimeChunk **chunk)
{
    *chunk = NULL;
    return likely(!qatomic_read(&job->idletime)) ||
           idletime_job_ask_slow(job, bytes, chunk);
}

/**
 * idletime_job_wait: after a refusal, until asking is worth it, or the job is
 * entered for another reason.  Is a pause point.
 * Context: the job's main coroutine.
 */
void coroutine_fn idletime_job_wait(Job *job);
/**
 * idletime_job_sleep: the same in another coroutine of the job.
 * @sleep: who cancels or pauses the coroutine wakes it there
 */
void coroutine_fn idletime_job_sleep(Job *job, QemuCoSleep *sleep);

/** idletime_job_limit: of @bytes, how many go into one chunk.  Likewise. */
static inline int64_t idletime_job_limit(Job *job, int64_t bytes)
{
    return likely(!qatomic_read(&job->idletime)) ? bytes :
           idletime_job_limit_slow(job, bytes);
}

/** idletime_job_moved: it is paused; aio_context has changed.  BQL. */
static inline void idletime_job_moved(Job *job)
{
    if (unlikely(job->idletime)) {
        idletime_job_moved_slow(job);
    }
}

/** idletime_job_ended: its coroutine has ended.  Context: BQL. */
static inline void idletime_job_ended(Job *job)
{
    if (unlikely(job->idletime)) {
        idletime_job_ended_slow(job);
    }
}

/**
 * idletime_job_attach: to @resource, as background, and to those to which it
 * is attached already: that of what it reads, and that of what it writes.  The
 * job has been started and has not ended.  Context: BQL.
 */
bool idletime_job_attach(const char *id, const char *resource, Error **errp);
/** idletime_job_detach: from all; it goes on as a stock one.  Context: BQL. */
bool idletime_job_detach(const char *id, Error **errp);

#endif
