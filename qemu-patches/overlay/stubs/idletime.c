/*
 * Programs that share the QAPI schema of objects but have no devices.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-idletime.h"
#include "idletime/work/export.h"
#include "idletime/work/job.h"
#include "idletime/work/mark.h"

IdletimeResourceInfoList *qmp_query_idletime(Error **errp)
{
    return NULL;
}

void qmp_idletime_set(IdletimeChange *change, Error **errp)
{
    error_setg(errp, "this program has no devices");
}

void qmp_idletime_attach(IdletimeAttachment *attachment, Error **errp)
{
    error_setg(errp, "this program has no devices");
}

void qmp_idletime_detach(const char *device, const char *job,
                         const char *export, bool has_migration,
                         bool migration, Error **errp)
{
    error_setg(errp, "this program has no devices");
}

/* ---- no job and no export is attached to anything */

bool coroutine_fn idletime_job_ask_slow(Job *job, uint64_t bytes,
                                        IdletimeChunk **chunk)
{
    g_assert_not_reached();
}

void coroutine_fn idletime_job_wait(Job *job)
{
    g_assert_not_reached();
}

void coroutine_fn idletime_job_sleep(Job *job, QemuCoSleep *sleep)
{
    g_assert_not_reached();
}

int64_t idletime_job_limit_slow(Job *job, int64_t bytes)
{
    g_assert_not_reached();
}

void idletime_mark_follow_slow(IdletimeMark *mark, QIOChannel *ioc)
{
    g_assert_not_reached();
}

void idletime_job_moved_slow(Job *job)
{
    g_assert_not_reached();
}

void idletime_job_ended_slow(Job *job)
{
    g_assert_not_reached();
}

IdletimeChunk *idletime_chunk_ref_slow(IdletimeChunk *chunk)
{
    g_assert_not_reached();
}

void idletime_chunk_unref_slow(IdletimeChunk *chunk)
{
    g_assert_not_reached();
}

void idletime_chunk_resize_slow(IdletimeChunk *chunk, uint64_t bytes)
{
    g_assert_not_reached();
}

int coroutine_fn idletime_export_pread_slow(BlockExport *exp,
                                            IdletimeClient *client,
                                            int64_t from, int64_t bytes,
                                            void *data)
{
    g_assert_not_reached();
}

int coroutine_fn idletime_export_pwrite_slow(BlockExport *exp,
                                             IdletimeClient *client,
                                             int64_t from, int64_t bytes,
                                             const void *data,
                                             BdrvRequestFlags flags)
{
    g_assert_not_reached();
}

int coroutine_fn idletime_export_zero_slow(BlockExport *exp,
                                           IdletimeClient *client,
                                           int64_t from, int64_t bytes,
                                           BdrvRequestFlags flags)
{
    g_assert_not_reached();
}

int coroutine_fn idletime_export_discard_slow(BlockExport *exp,
                                              IdletimeClient *client,
                                              int64_t from, int64_t bytes)
{
    g_assert_not_reached();
}

int coroutine_fn idletime_export_prefetch_slow(BlockExport *exp,
                                               IdletimeClient *client,
                                               int64_t from, int64_t bytes)
{
    g_assert_not_reached();
}

void idletime_export_kick_slow(BlockExport *exp)
{
    g_assert_not_reached();
}

void idletime_export_moved_slow(BlockExport *exp)
{
    g_assert_not_reached();
}

void idletime_export_shut_slow(BlockExport *exp)
{
    g_assert_not_reached();
}

void idletime_export_ended_slow(BlockExport *exp)
{
    g_assert_not_reached();
}
