/*
 * Idletime job: a block job whose chunks start when its resource is idle.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "block/blockjob_int.h"
#include "qemu/main-loop.h"
#include "qemu/units.h"
#include "idletime/work/job.h"
#include "idletime/work/work.h"

/* A cluster of most formats, and what a backup copies at least. */
#define CHUNK_ALIGN (64 * KiB)

/* ---- waiting */

/* A paused one goes on when it is resumed, and asks anew then. */
static bool is_running(Job *job)
{
    return !job->paused;
}

static bool job_waits(const IdletimeWork *work)
{
    Job *job = work->owner;

    return work->sleeper || (work->waiting && !job_is_paused(job));
}

static void job_wake(IdletimeWork *work)
{
    work->woken = true;
    if (work->sleeper) {
        qemu_co_sleep_wake(work->sleeper);
    } else {
        JOB_LOCK_GUARD();
        job_enter_cond_locked(work->owner, is_running);
    }
}

static void job_left(IdletimeWork *work)
{
    Job *job = work->owner;

    qatomic_set(&job->idletime, NULL);
}

static const IdletimeWorkOps job_ops = {
    .kind = IDLETIME_WORK_JOB,
    .waits = job_waits,
    .wake = job_wake,
    .left = job_left,
};

/* Paused, cancelled or entered otherwise: nothing waits for now. */
static void waited(IdletimeWork *work)
{
    work->waiting = false;
    work->sleeper = NULL;
    if (!work->woken) {
        idletime_work_rest(work);
    }
    if (unlikely(qatomic_read(&work->leaving))) {
        idletime_gate_kick(work->gate);
    }
}

void coroutine_fn idletime_job_wait(Job *job)
{
    IdletimeWork *work = qatomic_rcu_read(&job->idletime);

    work->woken = false;
    work->waiting = true;
    job_yield(job);
    /* Paused, it may have been detached meanwhile, and even attached again. */
    work = qatomic_rcu_read(&job->idletime);
    if (work) {
        waited(work);
    }
}

void coroutine_fn idletime_job_sleep(Job *job, QemuCoSleep *sleep)
{
    IdletimeWork *work = qatomic_rcu_read(&job->idletime);

    work->woken = false;
    work->sleeper = sleep;
    qemu_co_sleep(sleep);
    waited(work);
}

bool coroutine_fn idletime_job_ask_slow(Job *job, uint64_t bytes,
                                        IdletimeChunk **chunk)
{
    IdletimeWork *work = qatomic_rcu_read(&job->idletime);
    int64_t now_ns = idletime_now_ns();
    int64_t since_ns;

    if (!work) {
        return true;
    }
    since_ns = work->held_since_ns ?: now_ns;
    if (!idletime_work_ask(work, since_ns, bytes, chunk)) {
        work->held_since_ns = since_ns;
        idletime_work_held(work, 1);
        return false;
    }
    if (*chunk) {
        idletime_gate_note_hold(work->gate, now_ns - since_ns);
    }
    idletime_work_rest(work);
    return true;
}

int64_t idletime_job_limit_slow(Job *job, int64_t bytes)
{
    const IdletimeWork *work = qatomic_rcu_read(&job->idletime);
    int64_t limit;

    if (!work) {
        return bytes;
    }
    limit = idletime_resource_get(work->res, IDLETIME_MAX_REQUEST_BYTES);
    return MIN(bytes, QEMU_ALIGN_UP(limit, CHUNK_ALIGN));
}

/* ---- what becomes of the job */

void idletime_job_moved_slow(Job *job)
{
    idletime_work_serve(job->idletime, job->aio_context);
}

void idletime_job_ended_slow(Job *job)
{
    IdletimeWork *work = job->idletime;

    GLOBAL_STATE_CODE();
    qatomic_set(&job->idletime, NULL);
    idletime_work_ended(work);
}

/* ---- attach and detach */

static Job *find_job(const char *id, Error **errp)
{
    Job *job;

    JOB_LOCK_GUARD();
    job = job_get_locked(id);
    if (!job) {
        error_setg(errp, "no job has the id '%s'; query-jobs lists those that "
                   "there are", id);
    } else if (!block_job_get_locked(id)) {
        error_setg(errp, "job '%s' is of type '%s', which cannot be attached "
                   "to an idletime-resource; served are: backup, commit, "
                   "mirror, stream", id, job_type_str(job));
        return NULL;
    }
    return job;
}

static bool check_running(Job *job, Error **errp)
{
    JOB_LOCK_GUARD();
    if (!job->co || job->deferred_to_main_loop ||
        job_is_completed_locked(job)) {
        error_setg(errp, "job '%s' is in state '%s': only one that runs can be "
                   "attached", job->id, JobStatus_str(job->status));
        return false;
    }
    return true;
}

bool idletime_job_attach(const char *id, const char *resource, Error **errp)
{
    Job *job = find_job(id, errp);
    IdletimeWork *work;

    GLOBAL_STATE_CODE();
    if (!job || !check_running(job, errp) ||
        !idletime_work_check_none(job->idletime, errp)) {
        return false;
    }
    work = idletime_work_new(resource, id, job->aio_context, job, &job_ops,
                             errp);
    if (!work) {
        return false;
    }
    qatomic_store_release(&job->idletime, work);
    return true;
}

bool idletime_job_detach(const char *id, Error **errp)
{
    Job *job = find_job(id, errp);

    GLOBAL_STATE_CODE();
    if (!job) {
        return false;
    }
    if (!job->idletime) {
        error_setg(errp, "job '%s' is attached to no idletime-resource; "
                   "query-idletime lists those that are", id);
        return false;
    }
    idletime_work_detach(job->idletime);
    return true;
}
