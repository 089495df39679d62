/*
 * virtio-blk: large background requests, issued a piece at a time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "system/block-backend.h"
#include "virtio-blk-idletime-impl.h"

/* A large request on its way. */
typedef struct IdletimeBlkPieces {
    IdletimePieces head;
    QEMUIOVector qiov;          /* of the piece in service */
} IdletimeBlkPieces;

static IdletimeBlkPieces *pieces_of(const VirtIOBlockReq *req)
{
    return container_of(req->idletime.pieces, IdletimeBlkPieces, head);
}

static void pieces_free(VirtIOBlockReq *req)
{
    g_free(pieces_of(req));
    req->idletime.pieces = NULL;
}

void idletime_blk_pieces_forget(VirtIOBlockReq *req)
{
    if (req->idletime.pieces) {
        iov_discard_undo(&req->inhdr_undo);
        iov_discard_undo(&req->outhdr_undo);
        pieces_free(req);
    }
}

static void piece_complete(void *opaque, int ret)
{
    VirtIOBlockReq *req = opaque;

    qemu_iovec_destroy(&pieces_of(req)->qiov);
    idletime_hold_piece_done(req->dev->idletime, &req->idletime, ret);
}

void idletime_blk_finish(IdletimeHolder *hold, IdletimeReq *held, int ret)
{
    VirtIOBlockReq *req = idletime_blk_req(held);

    pieces_free(req);
    virtio_blk_rw_complete(req, ret);
}

void idletime_blk_issue_piece(IdletimeHolder *hold, IdletimeReq *held)
{
    VirtIOBlockReq *req = idletime_blk_req(held);
    IdletimeBlkPieces *pieces = pieces_of(req);
    VirtIOBlock *s = req->dev;
    int64_t offset = (req->sector_num << BDRV_SECTOR_BITS) +
                     pieces->head.done_bytes;
    BdrvRequestFlags flags = blk_ram_registrar_ok(&s->blk_ram_registrar) ?
                             BDRV_REQ_REGISTERED_BUF : 0;

    qemu_iovec_init_slice(&pieces->qiov, &req->qiov, pieces->head.done_bytes,
                          pieces->head.piece_bytes);
    if (pieces->head.is_write) {
        blk_aio_pwritev(s->blk, offset, &pieces->qiov, flags,
                        piece_complete, req);
    } else {
        blk_aio_preadv(s->blk, offset, &pieces->qiov, flags,
                       piece_complete, req);
    }
}

bool idletime_blk_split_slow(VirtIOBlockReq *req, bool is_write)
{
    IdletimeHolder *hold = req->dev->idletime;
    IdletimeBlkPieces *pieces;

    if (req->qiov.size <= idletime_hold_piece_limit(hold)) {
        return false;
    }
    pieces = g_new0(IdletimeBlkPieces, 1);
    pieces->head.total_bytes = req->qiov.size;
    pieces->head.is_write = is_write;
    idletime_hold_split(hold, &req->idletime, &pieces->head);
    return true;
}
