/*
 * Idletime: idletime-attach and idletime-detach.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "idletime/device/attach.h"
#include "idletime/work/export.h"
#include "idletime/work/job.h"
#include "idletime/work/migration.h"
#include "qapi/qapi-commands-idletime.h"

static bool check_subject(const char *device, const char *job,
                          const char *export, bool migration, Error **errp)
{
    bool is_one = !!device + !!job + !!export + migration == 1;

    if (!is_one) {
        error_setg(errp, "exactly one of 'device', 'job', 'export' and "
                   "'migration' must be given");
    }
    return is_one;
}

static void attach_device(const IdletimeAttachment *attachment, Error **errp)
{
    g_autofree char *class = attachment->has_q_class ?
        g_strdup(IdletimeClass_str(attachment->q_class)) : NULL;
    const IdletimeConf conf = {
        .resource = attachment->resource,
        .class = class,
        .queues = attachment->background_queues,
        .dscp = attachment->dscp,
    };
    Object *obj = idletime_attachable_find(attachment->device, errp);

    if (obj) {
        idletime_attach(obj, &conf, errp);
    }
}

/* Work of QEMU itself has no queues, and one class. */
static bool check_work(const IdletimeAttachment *attachment, Error **errp)
{
    const char *what = attachment->job ? "a job" :
                       attachment->export ? "an export" : "migration";

    if (attachment->has_q_class &&
        attachment->q_class != IDLETIME_CLASS_BACKGROUND) {
        error_setg(errp, "'class' is '%s', but %s can only be 'background': "
                   "detached, it is foreground",
                   IdletimeClass_str(attachment->q_class), what);
        return false;
    }
    if (attachment->background_queues || attachment->dscp) {
        error_setg(errp, "'%s' is '%s', but %s has no queues and no "
                   "packets: leave it out", attachment->background_queues ?
                   "background-queues" : "dscp",
                   attachment->background_queues ?: attachment->dscp, what);
        return false;
    }
    return true;
}

void qmp_idletime_attach(IdletimeAttachment *attachment, Error **errp)
{
    if (!check_subject(attachment->device, attachment->job,
                       attachment->export, attachment->migration, errp)) {
        return;
    }
    if (attachment->device) {
        attach_device(attachment, errp);
    } else if (!check_work(attachment, errp)) {
        return;
    } else if (attachment->job) {
        idletime_job_attach(attachment->job, attachment->resource, errp);
    } else if (attachment->export) {
        idletime_export_attach(attachment->export, attachment->resource, errp);
    } else {
        idletime_migration_attach(attachment->resource, errp);
    }
}

static void detach_device(const char *device, Error **errp)
{
    Object *obj = idletime_attachable_find(device, errp);

    if (obj) {
        idletime_detach(obj, errp);
    }
}

void qmp_idletime_detach(const char *device, const char *job,
                         const char *export, bool has_migration,
                         bool migration, Error **errp)
{
    if (!check_subject(device, job, export, migration, errp)) {
        return;
    }
    if (device) {
        detach_device(device, errp);
    } else if (job) {
        idletime_job_detach(job, errp);
    } else if (export) {
        idletime_export_detach(export, errp);
    } else {
        idletime_migration_detach(errp);
    }
}
