/*
 * Idletime export: an NBD export that is read and written in idle time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-types-block-export.h"
#include "idletime/work/export.h"
#include "idletime/work/work.h"

/* ---- waiting */

static bool export_waits(const IdletimeWork *work)
{
    return !idletime_queue_is_empty(work);
}

static void export_left(IdletimeWork *work)
{
    BlockExport *exp = work->owner;

    qatomic_set(&exp->idletime, NULL);
}

static const IdletimeWorkOps export_ops = {
    .kind = IDLETIME_WORK_EXPORT,
    .waits = export_waits,
    .wake = idletime_queue_ask_again,
    .left = export_left,
};

/* ---- what becomes of the export */

void idletime_export_kick_slow(BlockExport *exp)
{
    GLOBAL_STATE_CODE();
    idletime_gate_kick(exp->idletime->gate);
}

void idletime_export_moved_slow(BlockExport *exp)
{
    GLOBAL_STATE_CODE();
    idletime_work_serve(exp->idletime, exp->ctx);
}

/* Who removes it may wait in a nested event loop for its clients to go. */
void idletime_export_shut_slow(BlockExport *exp)
{
    GLOBAL_STATE_CODE();
    idletime_work_follow(exp->idletime);
    idletime_gate_kick(exp->idletime->gate);
}

void idletime_export_ended_slow(BlockExport *exp)
{
    IdletimeWork *work = exp->idletime;

    GLOBAL_STATE_CODE();
    qatomic_set(&exp->idletime, NULL);
    idletime_work_ended(work);
}

/* ---- attach and detach */

static BlockExport *find_export(const char *id, Error **errp)
{
    BlockExport *exp = blk_exp_find(id);

    if (!exp) {
        error_setg(errp, "no block export has the id '%s'; "
                   "query-block-exports lists those that there are", id);
    }
    return exp;
}

static bool check_type(const BlockExport *exp, Error **errp)
{
    BlockExportType type = exp->drv->type;

    if (type != BLOCK_EXPORT_TYPE_NBD) {
        error_setg(errp, "export '%s' is of type '%s', which cannot be "
                   "attached to an idletime-resource; served is: nbd", exp->id,
                   BlockExportType_str(type));
    }
    return type == BLOCK_EXPORT_TYPE_NBD;
}

static bool check_serving(const BlockExport *exp, Error **errp)
{
    if (!exp->user_owned) {
        error_setg(errp, "export '%s' is shutting down: only one that serves "
                   "clients can be attached", exp->id);
    }
    return exp->user_owned;
}

static bool attach(BlockExport *exp, const char *resource, Error **errp)
{
    IdletimeWork *work;

    if (!check_type(exp, errp) || !check_serving(exp, errp) ||
        !idletime_work_check_none(exp->idletime, errp)) {
        return false;
    }
    work = idletime_work_new(resource, exp->id, exp->ctx, exp, &export_ops,
                             errp);
    if (!work) {
        return false;
    }
    qatomic_store_release(&exp->idletime, work);
    return true;
}

bool idletime_export_attach(const char *id, const char *resource, Error **errp)
{
    BlockExport *exp = find_export(id, errp);

    GLOBAL_STATE_CODE();
    return exp && attach(exp, resource, errp);
}

bool idletime_export_attach_configured(BlockExport *exp, const char *resource,
                                       Error **errp)
{
    GLOBAL_STATE_CODE();
    return !resource || attach(exp, resource, errp);
}

bool idletime_export_detach(const char *id, Error **errp)
{
    BlockExport *exp = find_export(id, errp);

    GLOBAL_STATE_CODE();
    if (!exp) {
        return false;
    }
    if (!exp->idletime) {
        error_setg(errp, "export '%s' is attached to no idletime-resource; "
                   "query-idletime lists those that are", id);
        return false;
    }
    idletime_work_detach(exp->idletime);
    return true;
}
