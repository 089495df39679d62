/*
 * virtio-blk: large background requests, issued a piece at a time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A disk does not preempt, so a large request costs a foreground request that
 * arrives behind it all of its service time.  In pieces it costs one piece:
 * the gate is asked before each.
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "system/block-backend.h"
#include "virtio-blk-idletime-impl.h"

/* A large request on its way. */
struct IdletimeBlkPieces {
    IdletimeBlkPieceDone *done;
    QEMUIOVector qiov;          /* of the piece in service */
    uint64_t done_bytes;
    uint64_t piece_bytes;
    int ignored;                /* the first error that the policy ignores */
    bool is_write;
};

uint64_t idletime_blk_piece_limit(const VirtIOBlock *s)
{
    uint64_t block = s->conf.conf.logical_block_size;
    uint64_t limit = idletime_resource_get(s->idletime->dev.res,
                                           IDLETIME_MAX_REQUEST_BYTES);

    return MAX(QEMU_ALIGN_DOWN(limit, block), block);
}

uint64_t idletime_blk_pieces_left(const VirtIOBlockReq *req)
{
    return req->qiov.size - req->idletime.pieces->done_bytes;
}

void idletime_blk_pieces_free(VirtIOBlockReq *req)
{
    g_free(req->idletime.pieces);
    req->idletime.pieces = NULL;
}

void idletime_blk_pieces_forget(VirtIOBlockReq *req)
{
    if (req->idletime.pieces) {
        iov_discard_undo(&req->inhdr_undo);
        iov_discard_undo(&req->outhdr_undo);
        idletime_blk_pieces_free(req);
    }
}

/* With rerror or werror=ignore the next piece is as good as any. */
static bool is_ignored(const VirtIOBlockReq *req, int ret)
{
    return blk_get_error_action(req->dev->blk, !req->idletime.pieces->is_write,
                                -ret) == BLOCK_ERROR_ACTION_IGNORE;
}

static void piece_complete(void *opaque, int ret)
{
    VirtIOBlockReq *req = opaque;
    IdletimeBlkPieces *pieces = req->idletime.pieces;
    bool failed;

    qemu_iovec_destroy(&pieces->qiov);
    pieces->done_bytes += pieces->piece_bytes;
    if (ret < 0 && !pieces->ignored && is_ignored(req, ret)) {
        pieces->ignored = ret;
    }
    failed = ret < 0 && !pieces->ignored;
    pieces->done(req, failed || !idletime_blk_pieces_left(req),
                 pieces->ignored ?: ret);
}

void idletime_blk_pieces_new(VirtIOBlockReq *req, bool is_write,
                             IdletimeBlkPieceDone *done)
{
    req->idletime.pieces = g_new0(IdletimeBlkPieces, 1);
    req->idletime.pieces->is_write = is_write;
    req->idletime.pieces->done = done;
}

void idletime_blk_pieces_issue(VirtIOBlockReq *req, uint64_t bytes)
{
    IdletimeBlkPieces *pieces = req->idletime.pieces;
    VirtIOBlock *s = req->dev;
    int64_t offset = (req->sector_num << BDRV_SECTOR_BITS) +
                     pieces->done_bytes;
    BdrvRequestFlags flags = blk_ram_registrar_ok(&s->blk_ram_registrar) ?
                             BDRV_REQ_REGISTERED_BUF : 0;

    pieces->piece_bytes = bytes;
    qemu_iovec_init_slice(&pieces->qiov, &req->qiov, pieces->done_bytes,
                          bytes);
    if (pieces->is_write) {
        blk_aio_pwritev(s->blk, offset, &pieces->qiov, flags,
                        piece_complete, req);
    } else {
        blk_aio_preadv(s->blk, offset, &pieces->qiov, flags,
                       piece_complete, req);
    }
}
