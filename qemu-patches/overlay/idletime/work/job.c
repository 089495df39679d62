/*
 * Idletime job: a block job whose chunks start when its resources are idle.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "block/block_int.h"
#include "block/blockjob_int.h"
#include "block/nbd.h"
#include "qemu/main-loop.h"
#include "qemu/units.h"
#include "idletime/work/job.h"
#include "idletime/work/mark.h"
#include "idletime/work/work.h"

/* A cluster of most formats, and what a backup copies at least. */
#define CHUNK_ALIGN (64 * KiB)
#define KEEP_PERIOD_NS  (1000 * SCALE_MS)

/* ---- waiting */

/*
 * A paused one goes on when it is resumed, and asks anew then.  One that is
 * about to pause may have been entered, and waits for its I/O.
 */
static bool is_running(Job *job)
{
    return !job->paused && !job->busy;
}

static bool job_waits(const IdletimeWork *work)
{
    Job *job = work->owner;

    if (work->sleeper || !work->waiting) {
        return work->sleeper;
    }
    JOB_LOCK_GUARD();
    return is_running(job);
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

static IdletimeWork *first_of(Job *job)
{
    return qatomic_rcu_read(&job->idletime);
}

static IdletimeWork *next_of(IdletimeWork *work)
{
    return qatomic_rcu_read(&work->also);
}

/* ---- the connection by which it sends what it writes */

static void mark_below(BlockDriverState *bs, bool background)
{
    GLOBAL_STATE_CODE();
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    for (; bs; bs = bdrv_primary_bs(bs)) {
        IdletimeMark *mark = nbd_client_mark(bs);

        if (mark) {
            idletime_mark_want(mark, background);
        }
    }
}

/* Nobody else uses that; after a mirror it may be the VM's disk. */
static void mark_target(Job *job, bool background)
{
    BlockJob *block_job = container_of(job, BlockJob, job);
    JobType type = job_type(job);
    GSList *node;

    if (type != JOB_TYPE_MIRROR && type != JOB_TYPE_BACKUP) {
        return;
    }
    for (node = block_job->nodes; node; node = node->next) {
        BdrvChild *child = node->data;

        if (g_str_equal(child->name, "target")) {
            mark_below(child->bs, background);
        }
    }
}

/* Who walks there still finds what follows it. */
static void job_left(IdletimeWork *work)
{
    Job *job = work->owner;
    IdletimeWork **link = &job->idletime;

    GLOBAL_STATE_CODE();
    while (*link != work) {
        link = &(*link)->also;
    }
    qatomic_set(link, work->also);
    if (idletime_resource_is_uplink(work->res)) {
        mark_target(job, false);
    }
}

static const IdletimeWorkOps job_ops = {
    .kind = IDLETIME_WORK_JOB,
    .waits = job_waits,
    .wake = job_wake,
    .left = job_left,
};

/* In idletime_job_wait(); in idletime_job_sleep(), if there is a sleeper. */
static void begin_wait(Job *job, QemuCoSleep *sleeper)
{
    IdletimeWork *work;

    for (work = first_of(job); work; work = next_of(work)) {
        work->woken = false;
        work->waiting = !sleeper;
        work->sleeper = sleeper;
    }
}

/*
 * Paused, cancelled or entered otherwise: nothing waits for now.  Some may
 * have been detached meanwhile, and even attached again.
 */
static void end_wait(Job *job)
{
    IdletimeWork *work;
    bool woken = false;

    for (work = first_of(job); work; work = next_of(work)) {
        woken |= work->woken;
        work->waiting = false;
        work->sleeper = NULL;
    }
    for (work = first_of(job); work; work = next_of(work)) {
        if (!woken) {
            idletime_work_rest(work);
        }
        /* On its way to another thread the gate is kicked at its end. */
        if (unlikely(qatomic_read(&work->leaving)) &&
            idletime_work_is_here(work)) {
            idletime_gate_kick(work->gate);
        }
    }
}

void coroutine_fn idletime_job_wait(Job *job)
{
    begin_wait(job, NULL);
    job_yield(job);
    end_wait(job);
}

/* A gate's pump has found meanwhile that nobody waits; or all have left. */
static bool is_forgotten(Job *job)
{
    IdletimeWork *work = first_of(job);
    bool found = !work;

    for (; work; work = next_of(work)) {
        found |= !work->held_since_ns;
    }
    return found;
}

/* From the refusal to here the coroutine may have waited for a lock. */
void coroutine_fn idletime_job_sleep(Job *job, QemuCoSleep *sleep)
{
    if (is_forgotten(job)) {
        return;
    }
    begin_wait(job, sleep);
    qemu_co_sleep(sleep);
    end_wait(job);
}

/* The chunk that waits has waited since then, for whichever of them. */
static int64_t held_since(Job *job)
{
    IdletimeWork *work = first_of(job);

    while (work && !work->held_since_ns) {
        work = next_of(work);
    }
    return work ? work->held_since_ns : idletime_now_ns();
}

/*
 * Is what @refuser's predecessors have permitted kept until it permits, too?
 * If only background of others is in its way: greedy ones on two resources
 * are hardly ever between two requests at the same time.  It counts as the
 * job's time.  A disk that has stopped costs those who would have had it half
 * of the time at most.
 */
static bool may_keep(const IdletimeWork *refuser, int64_t since_ns)
{
    int64_t waited_ns = idletime_now_ns() - since_ns;

    return !refuser->chunks && idletime_work_is_taken(refuser) &&
           waited_ns % KEEP_PERIOD_NS < KEEP_PERIOD_NS / 2;
}

/* But for those before it that are kept, it is in nobody's way elsewhere. */
static void wait_for(Job *job, IdletimeWork *refuser, bool keeps,
                     int64_t since_ns)
{
    IdletimeWork *work;
    bool before = true;

    for (work = first_of(job); work; work = next_of(work)) {
        if (work == refuser) {
            before = false;
        } else if (before && keeps) {
            idletime_work_held(work, 0);
        } else {
            idletime_work_pass(work);
        }
        work->held_since_ns = since_ns;
    }
    idletime_work_held(refuser, 1);
}

static void refused(Job *job, IdletimeWork *refuser, IdletimeChunk *chunk,
                    int64_t since_ns)
{
    bool keeps = may_keep(refuser, since_ns);

    if (keeps) {
        idletime_work_keep(chunk);
    } else {
        idletime_work_withdraw(chunk);
    }
    wait_for(job, refuser, keeps, since_ns);
}

/* All are to be idle at a time.  All jobs of a host ask in the same order. */
bool coroutine_fn idletime_job_ask_slow(Job *job, uint64_t bytes,
                                        IdletimeChunk **chunk)
{
    int64_t since_ns = held_since(job);
    IdletimeWork *work;

    for (work = first_of(job); work; work = next_of(work)) {
        work->woken = false;
    }
    for (work = first_of(job); work; work = next_of(work)) {
        if (!idletime_work_reserve(work, since_ns, bytes, chunk)) {
            refused(job, work, *chunk, since_ns);
            *chunk = NULL;
            return false;
        }
    }
    idletime_work_issue(*chunk, since_ns);
    for (work = first_of(job); work; work = next_of(work)) {
        idletime_work_rest(work);
    }
    return true;
}

int64_t idletime_job_limit_slow(Job *job, int64_t bytes)
{
    IdletimeWork *work;
    int64_t limit;

    for (work = first_of(job); work; work = next_of(work)) {
        limit = idletime_resource_is_uplink(work->res) ? CHUNK_ALIGN :
                idletime_resource_get(work->res, IDLETIME_MAX_REQUEST_BYTES);
        bytes = MIN(bytes, QEMU_ALIGN_UP(limit, CHUNK_ALIGN));
    }
    return bytes;
}

/* ---- what becomes of the job */

void idletime_job_moved_slow(Job *job)
{
    IdletimeWork *work;

    for (work = job->idletime; work; work = work->also) {
        idletime_work_serve(work, job->aio_context);
    }
}

void idletime_job_ended_slow(Job *job)
{
    IdletimeWork *work = job->idletime;

    GLOBAL_STATE_CODE();
    qatomic_set(&job->idletime, NULL);
    for (; work; work = work->also) {
        if (idletime_resource_is_uplink(work->res)) {
            mark_target(job, false);
        }
        idletime_work_ended(work);
    }
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

/*
 * The order in which all jobs of a host ask: disks first, for what is kept of
 * an uplink would count in the time of others' packets; then by the paths.
 */
static bool asks_before(const IdletimeResource *a, const IdletimeResource *b)
{
    bool a_sends = idletime_resource_is_uplink(a);
    bool b_sends = idletime_resource_is_uplink(b);

    return a_sends != b_sends ? b_sends : strcmp(a->path, b->path) <= 0;
}

/* Who walks there does not meet one twice. */
static void insert(Job *job, IdletimeWork *work)
{
    IdletimeWork **link = &job->idletime;

    while (*link && asks_before((*link)->res, work->res)) {
        link = &(*link)->also;
    }
    work->also = *link;
    qatomic_store_release(link, work);
}

/* What keeps it from being attached to @resource. */
static IdletimeWork *in_the_way(Job *job, const char *resource)
{
    IdletimeWork *work = job->idletime;

    while (work && !work->detaching &&
           !g_str_equal(idletime_resource_id(work->res), resource)) {
        work = work->also;
    }
    return work;
}

bool idletime_job_attach(const char *id, const char *resource, Error **errp)
{
    Job *job = find_job(id, errp);
    IdletimeWork *work;

    GLOBAL_STATE_CODE();
    if (!job || !check_running(job, errp) ||
        !idletime_work_check_none(in_the_way(job, resource), errp)) {
        return false;
    }
    work = idletime_work_new(resource, id, job->aio_context, job, &job_ops,
                             errp);
    if (!work) {
        return false;
    }
    insert(job, work);
    if (idletime_resource_is_uplink(work->res)) {
        mark_target(job, true);
    }
    return true;
}

bool idletime_job_detach(const char *id, Error **errp)
{
    Job *job = find_job(id, errp);
    IdletimeWork *work;

    GLOBAL_STATE_CODE();
    if (!job) {
        return false;
    }
    if (!job->idletime) {
        error_setg(errp, "job '%s' is attached to no idletime-resource; "
                   "query-idletime lists those that are", id);
        return false;
    }
    for (work = job->idletime; work; work = work->also) {
        idletime_work_detach(work);
    }
    return true;
}
