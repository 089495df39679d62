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

void idletime_blk_pieces_forget(VirtIOBlockReq *req)
{
    if (req->idletime.pieces) {
        iov_discard_undo(&req->inhdr_undo);
        iov_discard_undo(&req->outhdr_undo);
        g_free(req->idletime.pieces);
        req->idletime.pieces = NULL;
    }
}

static void pieces_finish(VirtIOBlockReq *req, int ret)
{
    g_free(req->idletime.pieces);
    req->idletime.pieces = NULL;
    virtio_blk_rw_complete(req, ret);
}

/* Its class may have changed while its piece was in service. */
static void release_reclassified(IdletimeBlkPart *part)
{
    VirtIOBlockReq *req = QSIMPLEQ_FIRST(&part->held);

    if (req && req->idletime.pieces && !idletime_blk_blocked(part->owner) &&
        idletime_blk_class(req) == IDLETIME_CLASS_FOREGROUND) {
        idletime_blk_held_remove(part, req);
        idletime_blk_promote(part, req, IDLETIME_PROMOTION_CLASS_CHANGE);
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
    IdletimeBlkPart *part = idletime_blk_part(req);
    IdletimeLease lease = req->idletime.lease;
    bool leased = req->idletime.state == IDLETIME_BLK_BACKGROUND;

    qemu_iovec_destroy(&pieces->qiov);
    pieces->done_bytes += pieces->piece_bytes;
    if (ret < 0 && !pieces->ignored && is_ignored(req, ret)) {
        pieces->ignored = ret;
    }
    if ((ret < 0 && !pieces->ignored) ||
        pieces->done_bytes == req->qiov.size) {
        /* The lease, or the foreground's end, goes with the completion. */
        pieces_finish(req, pieces->ignored ?: ret);
        return;
    }
    if (qatomic_read(&part->owner->parked)) {
        idletime_blk_join_rq(req);
    } else {
        idletime_blk_held_first(part, req);
    }
    if (leased) {
        idletime_gate_done(part->gate, &lease, !QSIMPLEQ_EMPTY(&part->held));
    }
    release_reclassified(part);
    idletime_blk_pump(part);
}

void idletime_blk_issue_piece(VirtIOBlockReq *req)
{
    IdletimeBlkPieces *pieces = req->idletime.pieces;
    IdletimeBlkPart *part = idletime_blk_part(req);
    VirtIOBlock *s = req->dev;
    uint64_t left = idletime_blk_pieces_left(req);
    bool whole = req->idletime.state != IDLETIME_BLK_BACKGROUND;
    int64_t offset = (req->sector_num << BDRV_SECTOR_BITS) +
                     pieces->done_bytes;
    BdrvRequestFlags flags = blk_ram_registrar_ok(&s->blk_ram_registrar) ?
                             BDRV_REQ_REGISTERED_BUF : 0;

    pieces->piece_bytes = whole ? left : MIN(left, idletime_blk_piece_limit(s));
    qemu_iovec_init_slice(&pieces->qiov, &req->qiov, pieces->done_bytes,
                          pieces->piece_bytes);
    idletime_stat_add(&part->gate->stats.pieces, 1);
    if (whole) {
        idletime_blk_begin_slow(req, left, idletime_now_ns());
    }
    if (pieces->is_write) {
        blk_aio_pwritev(s->blk, offset, &pieces->qiov, flags,
                        piece_complete, req);
    } else {
        blk_aio_preadv(s->blk, offset, &pieces->qiov, flags,
                       piece_complete, req);
    }
}

bool idletime_blk_split_slow(VirtIOBlockReq *req, bool is_write)
{
    if (req->qiov.size <= idletime_blk_piece_limit(req->dev)) {
        return false;
    }
    req->idletime.pieces = g_new0(IdletimeBlkPieces, 1);
    req->idletime.pieces->is_write = is_write;
    idletime_blk_issue_piece(req);
    return true;
}
