/*
 * Idletime export: an NBD export that is read and written in idle time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Reads, writes, zeroes, discards and prefetches of its clients wait before
 * they come to the block layer.  Flushes and questions (which blocks hold
 * data) pass: they cost the disk little, and clients go by their answers.
 *
 * An export that is attached to nothing pays one test of a pointer.
 */
#ifndef IDLETIME_EXPORT_H
#define IDLETIME_EXPORT_H

#include "block/export.h"
#include "idletime/work/client.h"
#include "qemu/atomic.h"
#include "system/block-backend.h"

/* Slow paths; use the inline functions below. */
int coroutine_fn idletime_export_pread_slow(BlockExport *exp,
                                            IdletimeClient *client,
                                            int64_t from, int64_t bytes,
                                            void *data);
int coroutine_fn idletime_export_pwrite_slow(BlockExport *exp,
                                             IdletimeClient *client,
                                             int64_t from, int64_t bytes,
                                             const void *data,
                                             BdrvRequestFlags flags);
int coroutine_fn idletime_export_zero_slow(BlockExport *exp,
                                           IdletimeClient *client,
                                           int64_t from, int64_t bytes,
                                           BdrvRequestFlags flags);
int coroutine_fn idletime_export_discard_slow(BlockExport *exp,
                                              IdletimeClient *client,
                                              int64_t from, int64_t bytes);
int coroutine_fn idletime_export_prefetch_slow(BlockExport *exp,
                                               IdletimeClient *client,
                                               int64_t from, int64_t bytes);
void idletime_export_kick_slow(BlockExport *exp);
void idletime_export_moved_slow(BlockExport *exp);
void idletime_export_shut_slow(BlockExport *exp);
void idletime_export_ended_slow(BlockExport *exp);

/**
 * idletime_export_pread and the four below: what blk_co_pread() and its like
 * do, with @exp's block backend, when the resource is idle.
 * Returns -ECANCELED where @client has gone meanwhile, -EPERM where the node
 * has become inactive.
 * Context: a request's coroutine, in the thread of @exp.
 */
static inline int coroutine_fn
idletime_export_pread(BlockExport *exp, IdletimeClient *client, int64_t from,
                      int64_t bytes, void *data)
{
    return likely(!qatomic_read(&exp->idletime)) ?
           blk_co_pread(exp->blk, from, bytes, data, 0) :
           idletime_export_pread_slow(exp, client, from, bytes, data);
}

static inline int coroutine_fn
idletime_export_pwrite(BlockExport *exp, IdletimeClient *client, int64_t from,
                       int64_t bytes, const void *data, BdrvRequestFlags flags)
{
    return likely(!qatomic_read(&exp->idletime)) ?
           blk_co_pwrite(exp->blk, from, bytes, data, flags) :
           idletime_export_pwrite_slow(exp, client, from, bytes, data, flags);
}

static inline int coroutine_fn
idletime_export_zero(BlockExport *exp, IdletimeClient *client, int64_t from,
                     int64_t bytes, BdrvRequestFlags flags)
{
    return likely(!qatomic_read(&exp->idletime)) ?
           blk_co_pwrite_zeroes(exp->blk, from, bytes, flags) :
           idletime_export_zero_slow(exp, client, from, bytes, flags);
}

static inline int coroutine_fn
idletime_export_discard(BlockExport *exp, IdletimeClient *client, int64_t from,
                        int64_t bytes)
{
    return likely(!qatomic_read(&exp->idletime)) ?
           blk_co_pdiscard(exp->blk, from, bytes, 0) :
           idletime_export_discard_slow(exp, client, from, bytes);
}

static inline int coroutine_fn
idletime_export_prefetch(BlockExport *exp, IdletimeClient *client, int64_t from,
                         int64_t bytes)
{
    return likely(!qatomic_read(&exp->idletime)) ?
           blk_co_preadv(exp->blk, from, bytes, NULL,
                         BDRV_REQ_COPY_ON_READ | BDRV_REQ_PREFETCH) :
           idletime_export_prefetch_slow(exp, client, from, bytes);
}

/**
 * idletime_export_kick: the export's drained section has ended, or a client's
 * connection was cut.  Context: BQL; no client's lock is held.
 */
static inline void idletime_export_kick(BlockExport *exp)
{
    if (unlikely(exp->idletime)) {
        idletime_export_kick_slow(exp);
    }
}

/** idletime_export_moved: it is drained; ctx has changed.  Context: BQL. */
static inline void idletime_export_moved(BlockExport *exp)
{
    if (unlikely(exp->idletime)) {
        idletime_export_moved_slow(exp);
    }
}

/** idletime_export_shut: it is being removed, its clients are cut.  BQL. */
static inline void idletime_export_shut(BlockExport *exp)
{
    if (unlikely(exp->idletime)) {
        idletime_export_shut_slow(exp);
    }
}

/** idletime_export_ended: it has no clients any more.  Context: BQL. */
static inline void idletime_export_ended(BlockExport *exp)
{
    if (unlikely(exp->idletime)) {
        idletime_export_ended_slow(exp);
    }
}

/** idletime_export_attach: to @resource, as background.  Context: BQL. */
bool idletime_export_attach(const char *id, const char *resource, Error **errp);
/**
 * idletime_export_attach_configured: as the export's options say; NULL is to
 * nothing.  No client has connected yet.  Context: BQL.
 */
bool idletime_export_attach_configured(BlockExport *exp, const char *resource,
                                       Error **errp);
/** idletime_export_detach: it goes on as a stock one.  Context: BQL. */
bool idletime_export_detach(const char *id, Error **errp);

#endif
