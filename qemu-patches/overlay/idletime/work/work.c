/*
 * Idletime work: what QEMU does of itself, as background.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-events-idletime.h"
#include "qemu/main-loop.h"
#include "idletime/work/work.h"
#include "system/replay.h"
#include "system/system.h"
#include "trace.h"

static QTAILQ_HEAD(, IdletimeWork) works = QTAILQ_HEAD_INITIALIZER(works);

static const char *const kind_name[IDLETIME_WORK__MAX] = {
    [IDLETIME_WORK_JOB] = "job",
    [IDLETIME_WORK_EXPORT] = "export",
    [IDLETIME_WORK_MIGRATION] = "migration",
};

const char *idletime_work_kind(const IdletimeWork *work)
{
    return kind_name[work->ops->kind];
}

/* ---- leaving */

/* Of a job on several, the last one says it. */
static bool others_leave(const IdletimeWork *work)
{
    IdletimeWork *other;

    QTAILQ_FOREACH(other, &works, next) {
        if (other->detaching && other->ops == work->ops &&
            g_str_equal(other->id, work->id)) {
            return true;
        }
    }
    return false;
}

static void send_detached(const IdletimeWork *work)
{
    IdletimeWorkKind kind = work->ops->kind;
    bool migration = kind == IDLETIME_WORK_MIGRATION;

    qapi_event_send_idletime_detached(
        NULL, NULL, kind == IDLETIME_WORK_JOB ? work->id : NULL,
        kind == IDLETIME_WORK_EXPORT ? work->id : NULL, migration, migration);
}

static void work_free(IdletimeWork *work)
{
    GLOBAL_STATE_CODE();
    QTAILQ_REMOVE(&works, work, next);
    qemu_bh_delete(work->serve_bh);
    qemu_bh_delete(work->left_bh);
    idletime_gate_free(work->gate);
    idletime_resource_leave(work->res);
    if (work->detaching) {
        trace_idletime_work_detached(idletime_work_kind(work), work->id);
        if (!others_leave(work)) {
            send_detached(work);
        }
    }
    idletime_queue_destroy(&work->queue);
    g_free(work->id);
    g_free(work);
}

/* Not in nested event loops: those who wait there may use it. */
static void work_left(void *opaque)
{
    IdletimeWork *work = opaque;

    GLOBAL_STATE_CODE();
    if (work->owner) {
        work->ops->left(work);
    }
    /* The gate waits for its own thread: it is the one that sees the work. */
    idletime_work_follow(work);
    work_free(work);
}

void idletime_work_detach(IdletimeWork *work)
{
    GLOBAL_STATE_CODE();
    if (work->detaching) {
        return;
    }
    trace_idletime_work_detach(idletime_work_kind(work), work->id);
    work->detaching = true;
    qatomic_store_release(&work->leaving, true);
    idletime_gate_kick(work->gate);
}

void idletime_work_ended(IdletimeWork *work)
{
    GLOBAL_STATE_CODE();
    assert(!work->chunks);
    work->owner = NULL;
    qatomic_store_release(&work->leaving, true);
    qemu_bh_schedule(work->left_bh);
}

/* ---- waiting */

void idletime_work_held(IdletimeWork *work, unsigned n)
{
    IO_CODE();
    qatomic_set(&work->gate->stats.held, n);
}

bool idletime_work_is_here(const IdletimeWork *work)
{
    IO_CODE();
    return qatomic_load_acquire(&work->ctx) == qemu_get_current_aio_context();
}

void idletime_work_pass(IdletimeWork *work)
{
    IO_CODE();
    idletime_work_held(work, 0);
    if (idletime_work_is_here(work)) {
        idletime_gate_pass(work->gate);
    }
}

static void leave_line(IdletimeWork *work)
{
    idletime_work_held(work, 0);
    if (idletime_work_is_here(work)) {
        idletime_gate_rest(work->gate);
    }
}

void idletime_work_rest(IdletimeWork *work)
{
    IO_CODE();
    work->held_since_ns = 0;
    leave_line(work);
}

/* Nothing begins in what leaves: what is idle there stays so. */
static void leave(IdletimeWork *work)
{
    if (!work->chunks && !work->ops->waits(work)) {
        idletime_work_rest(work);
        qemu_bh_schedule(work->left_bh);
    }
}

static void pump(void *opaque)
{
    IdletimeWork *work = opaque;

    if (!idletime_work_is_here(work)) {
        return;
    }
    if (work->ops->waits(work)) {
        work->ops->wake(work);
    } else if (work->woken) {
        /* It is about to ask anew, and has waited since then. */
        leave_line(work);
    } else {
        idletime_work_rest(work);
    }
    if (unlikely(qatomic_load_acquire(&work->leaving))) {
        leave(work);
    }
}

/* ---- life */

/* A job reads and writes disks; what has an uplink already is one. */
static IdletimeResourceKind kind_of(const IdletimeResource *res,
                                    IdletimeWorkKind kind)
{
    bool sends = kind == IDLETIME_WORK_MIGRATION ||
                 (kind == IDLETIME_WORK_JOB && res->users &&
                  idletime_resource_is_uplink(res));

    return sends ? IDLETIME_KIND_UPLINK : IDLETIME_KIND_DISK;
}

static IdletimeResource *find_resource(const char *resource,
                                       IdletimeWorkKind kind, const char *id,
                                       Error **errp)
{
    IdletimeResource *res = idletime_resource_find(resource, "resource", errp);

    if (res && replay_mode != REPLAY_MODE_NONE) {
        error_setg(errp, "%s '%s' cannot be held while execution is recorded "
                   "or replayed: use no 'rr' in -icount", kind_name[kind], id);
        return NULL;
    }
    return res && idletime_resource_join(res, kind_of(res, kind), errp) ?
           res : NULL;
}

static void serve(void *opaque)
{
    IdletimeWork *work = opaque;
    AioContext *ctx = work->next_ctx;

    GLOBAL_STATE_CODE();
    idletime_gate_set_context(work->gate, ctx);
    qatomic_store_release(&work->ctx, ctx);
    idletime_gate_kick(work->gate);
}

void idletime_work_serve(IdletimeWork *work, AioContext *ctx)
{
    GLOBAL_STATE_CODE();
    assert(!work->chunks);
    qatomic_set(&work->ctx, NULL);
    work->next_ctx = ctx;
    qemu_bh_schedule(work->serve_bh);
}

void idletime_work_follow(IdletimeWork *work)
{
    GLOBAL_STATE_CODE();
    if (!qatomic_read(&work->ctx)) {
        qemu_bh_cancel(work->serve_bh);
        serve(work);
    }
}

bool idletime_work_check_none(const IdletimeWork *work, Error **errp)
{
    GLOBAL_STATE_CODE();
    if (work && work->detaching) {
        error_setg(errp, "%s '%s' is being detached from idletime-resource "
                   "'%s': wait for the event IDLETIME_DETACHED",
                   idletime_work_kind(work), work->id,
                   idletime_resource_id(work->res));
    } else if (work) {
        error_setg(errp, "%s '%s' is attached to idletime-resource '%s': use "
                   "idletime-detach first", idletime_work_kind(work), work->id,
                   idletime_resource_id(work->res));
    }
    return !work;
}

IdletimeWork *idletime_work_new(const char *resource, const char *id,
                                AioContext *ctx, void *owner,
                                const IdletimeWorkOps *ops, Error **errp)
{
    const char *kind = kind_name[ops->kind];
    IdletimeResource *res = find_resource(resource, ops->kind, id, errp);
    g_autofree char *label = g_strdup_printf("%s/%s %s",
                                             qemu_get_vm_name() ?: "qemu",
                                             kind, id);
    AioContext *main_loop = iohandler_get_aio_context();
    IdletimeWork *work;

    GLOBAL_STATE_CODE();
    if (!res) {
        return NULL;
    }
    work = g_new0(IdletimeWork, 1);
    work->ops = ops;
    work->owner = owner;
    work->id = g_strdup(id);
    work->res = res;
    work->ctx = work->next_ctx = ctx;
    idletime_queue_init(&work->queue);
    work->serve_bh = aio_bh_new(main_loop, serve, work);
    work->left_bh = aio_bh_new(main_loop, work_left, work);
    work->gate = idletime_gate_new(res, ctx, label);
    work->gate->pump = pump;
    work->gate->opaque = work;
    QTAILQ_INSERT_TAIL(&works, work, next);
    if (!idletime_gate_join(work->gate, false, true, errp)) {
        work_free(work);
        return NULL;
    }
    trace_idletime_work_attach(kind, work->id, idletime_resource_id(res));
    return work;
}

void idletime_work_foreach(const IdletimeResource *res,
                           void (*fn)(IdletimeWork *work, void *opaque),
                           void *opaque)
{
    IdletimeWork *work;

    GLOBAL_STATE_CODE();
    QTAILQ_FOREACH(work, &works, next) {
        if (work->res == res) {
            fn(work, opaque);
        }
    }
}
