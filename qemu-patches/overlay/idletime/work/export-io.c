/*
 * Idletime export: the requests of its clients.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Reads, writes and prefetches are carried out in pieces of max-request-bytes,
 * each with a lease of its own: NBD promises no order and no atomicity that a
 * cut could break.  Zeroes and discards carry a range and no data, so their
 * size says little about their time: they are never cut.
 */
#include "qemu/osdep.h"
#include "block/block_int.h"
#include "idletime/work/export.h"
#include "idletime/work/work.h"

typedef struct ExportIO ExportIO;

struct ExportIO {
    int coroutine_fn (*issue)(const ExportIO *io, int64_t done, int64_t bytes);
    BlockBackend *blk;
    int64_t from;
    int64_t bytes;
    void *data;
    BdrvRequestFlags flags;
    bool is_cut;
    bool is_read;
};

/* ---- before a piece */

/*
 * A new one is in nobody's way where the export leaves: then there is nothing
 * to ask.  What waited leaves with it, max-inflight at a time.
 */
static bool ask(IdletimeWork *work, IdletimeWaiter *waiter, uint64_t bytes,
                IdletimeChunk **chunk)
{
    bool leaving = qatomic_load_acquire(&work->leaving);

    if (leaving && !waiter->awake) {
        return true;
    }
    if (!idletime_queue_turn(&work->queue, waiter)) {
        return false;
    }
    if (!leaving) {
        if (idletime_work_ask(work, waiter->since_ns, bytes, chunk)) {
            return true;
        }
    } else if (idletime_work_is_here(work) &&
               work->chunks < idletime_resource_get(work->res,
                                                    IDLETIME_MAX_INFLIGHT)) {
        *chunk = idletime_work_expel(work);
        return true;
    }
    idletime_queue_refused(&work->queue);
    return false;
}

/* True: go on, with @chunk, which may be NULL.  False: drop it. */
static bool coroutine_fn begin(BlockExport *exp, IdletimeWaiter *waiter,
                               uint64_t bytes, IdletimeChunk **chunk)
{
    int64_t asked_ns = idletime_now_ns();
    IdletimeWork *work;
    bool held;

    *chunk = NULL;
    while ((work = qatomic_rcu_read(&exp->idletime))) {
        if (ask(work, waiter, bytes, chunk)) {
            if (*chunk) {
                idletime_gate_note_hold(work->gate,
                                        idletime_now_ns() - asked_ns);
            }
            idletime_queue_wake(work);
            return true;
        }
        held = idletime_queue_hold(work, waiter);
        /* It may be the turn of an older one. */
        idletime_queue_wake(work);
        if (held) {
            qemu_coroutine_yield();
        }
        if (waiter->dropped) {
            return false;
        }
    }
    return true;
}

/* Up to the next multiple of max-request-bytes, so that blocks are whole. */
static int64_t piece_bytes(BlockExport *exp, int64_t from, int64_t bytes)
{
    const IdletimeWork *work = qatomic_rcu_read(&exp->idletime);
    int64_t limit;

    if (!work || qatomic_load_acquire(&work->leaving)) {
        return bytes;
    }
    limit = idletime_resource_get(work->res, IDLETIME_MAX_REQUEST_BYTES);
    return MIN(bytes, limit - from % limit);
}

/*
 * A node may become inactive while a request waits, as a migration ends: only
 * reads are allowed then, and the block layer takes for granted that others do
 * not come.
 */
static int coroutine_fn check_active(const ExportIO *io)
{
    GRAPH_RDLOCK_GUARD();
    return io->is_read || !bdrv_is_inactive(blk_bs(io->blk)) ? 0 : -EPERM;
}

static int coroutine_fn run(BlockExport *exp, IdletimeClient *client,
                            const ExportIO *io)
{
    IdletimeWaiter waiter = {
        .client = client,
        .since_ns = idletime_now_ns(),
    };
    IdletimeChunk *chunk;
    int64_t done = 0, n;
    int ret;

    IO_CODE();
    do {
        n = io->bytes - done;
        if (io->is_cut) {
            n = piece_bytes(exp, io->from + done, n);
        }
        if ((done && idletime_client_is_gone(client)) ||
            !begin(exp, &waiter, n, &chunk)) {
            return -ECANCELED;
        }
        ret = check_active(io);
        if (ret == 0) {
            ret = io->issue(io, done, n);
        }
        idletime_chunk_unref(chunk);
        done += n;
    } while (ret >= 0 && done < io->bytes);
    return MIN(ret, 0);
}

/* ---- kinds of requests */

static int coroutine_fn issue_pread(const ExportIO *io, int64_t done,
                                    int64_t bytes)
{
    return blk_co_pread(io->blk, io->from + done, bytes,
                        (uint8_t *)io->data + done, io->flags);
}

int coroutine_fn idletime_export_pread_slow(BlockExport *exp,
                                            IdletimeClient *client,
                                            int64_t from, int64_t bytes,
                                            void *data)
{
    const ExportIO io = {
        .issue = issue_pread, .blk = exp->blk, .from = from, .bytes = bytes,
        .data = data, .is_cut = true, .is_read = true,
    };

    return run(exp, client, &io);
}

static int coroutine_fn issue_pwrite(const ExportIO *io, int64_t done,
                                     int64_t bytes)
{
    return blk_co_pwrite(io->blk, io->from + done, bytes,
                         (uint8_t *)io->data + done, io->flags);
}

int coroutine_fn idletime_export_pwrite_slow(BlockExport *exp,
                                             IdletimeClient *client,
                                             int64_t from, int64_t bytes,
                                             const void *data,
                                             BdrvRequestFlags flags)
{
    const ExportIO io = {
        .issue = issue_pwrite, .blk = exp->blk, .from = from, .bytes = bytes,
        .data = (void *)data, .flags = flags, .is_cut = true,
    };

    return run(exp, client, &io);
}

static int coroutine_fn issue_zero(const ExportIO *io, int64_t done,
                                   int64_t bytes)
{
    return blk_co_pwrite_zeroes(io->blk, io->from, bytes, io->flags);
}

int coroutine_fn idletime_export_zero_slow(BlockExport *exp,
                                           IdletimeClient *client,
                                           int64_t from, int64_t bytes,
                                           BdrvRequestFlags flags)
{
    const ExportIO io = {
        .issue = issue_zero, .blk = exp->blk, .from = from, .bytes = bytes,
        .flags = flags,
    };

    return run(exp, client, &io);
}

static int coroutine_fn issue_discard(const ExportIO *io, int64_t done,
                                      int64_t bytes)
{
    return blk_co_pdiscard(io->blk, io->from, bytes, 0);
}

int coroutine_fn idletime_export_discard_slow(BlockExport *exp,
                                              IdletimeClient *client,
                                              int64_t from, int64_t bytes)
{
    const ExportIO io = {
        .issue = issue_discard, .blk = exp->blk, .from = from, .bytes = bytes,
    };

    return run(exp, client, &io);
}

static int coroutine_fn issue_prefetch(const ExportIO *io, int64_t done,
                                       int64_t bytes)
{
    return blk_co_preadv(io->blk, io->from + done, bytes, NULL, io->flags);
}

int coroutine_fn idletime_export_prefetch_slow(BlockExport *exp,
                                               IdletimeClient *client,
                                               int64_t from, int64_t bytes)
{
    const ExportIO io = {
        .issue = issue_prefetch, .blk = exp->blk, .from = from, .bytes = bytes,
        .flags = BDRV_REQ_COPY_ON_READ | BDRV_REQ_PREFETCH, .is_cut = true,
    };

    return run(exp, client, &io);
}
