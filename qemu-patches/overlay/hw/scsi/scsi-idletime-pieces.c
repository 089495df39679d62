/*
 * SCSI disks: large background requests, issued a piece at a time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A piece is a part of the request's scatter list, or of what it fills with a
 * pattern.  Between two of them the request has no aiocb, so the stock code
 * cancels it as one that waits; it keeps the reference that the stock path took
 * for its I/O.
 */
#include "qemu/osdep.h"
#include "system/block-backend.h"
#include "scsi-idletime-impl.h"

/* A large request on its way. */
typedef struct IdletimeScsiPieces {
    IdletimePieces head;
    uint64_t offset;            /* of the request */
    DMAIOFunc *io_func;
    BlockCompletionFunc *cb;    /* of the request */
    void *opaque;               /* of that */
    DMADirection dir;
    BlockAIOCB *aiocb;          /* of the last piece; only passed on */
    QEMUSGList sg;              /* of the piece in service */
    const struct iovec *pattern; /* NULL: the data are the request's */
    void (*drop)(void *opaque); /* with a pattern */
    uint64_t filled_bytes;      /* of the piece in service */
    QEMUIOVector qiov;
} IdletimeScsiPieces;

static IdletimeScsiPieces *pieces_of(const SCSIRequest *req)
{
    return container_of(req->idletime.held.pieces, IdletimeScsiPieces, head);
}

/* @cb, @opaque: when all @bytes from @offset on are done */
static IdletimeScsiPieces *pieces_new(uint64_t offset, uint64_t bytes,
                                      bool is_write, BlockCompletionFunc *cb,
                                      void *opaque)
{
    IdletimeScsiPieces *pieces = g_new0(IdletimeScsiPieces, 1);

    pieces->head.total_bytes = bytes;
    pieces->head.is_write = is_write;
    pieces->offset = offset;
    pieces->cb = cb;
    pieces->opaque = opaque;
    return pieces;
}

static void pieces_free(SCSIRequest *req)
{
    g_free(pieces_of(req));
    req->idletime.held.pieces = NULL;
}

void idletime_scsi_pieces_forget(SCSIRequest *req)
{
    IdletimeScsiPieces *pieces = pieces_of(req);

    if (!req->idletime.held.pieces) {
        return;
    }
    if (pieces->pattern) {
        pieces->drop(pieces->opaque);
    } else {
        /* As before scsi_do_read() and scsi_write_data(). */
        req->residual += req->sg->size;
    }
    pieces_free(req);
    scsi_req_unref(req);
}

void idletime_scsi_finish(IdletimeHolder *hold, IdletimeReq *held, int ret)
{
    SCSIRequest *req = idletime_scsi_req(held);
    BlockCompletionFunc *cb = pieces_of(req)->cb;
    void *opaque = pieces_of(req)->opaque;

    req->aiocb = pieces_of(req)->aiocb;
    pieces_free(req);
    cb(opaque, ret);
}

static void piece_done(SCSIRequest *req, int ret)
{
    IdletimeScsiPieces *pieces = pieces_of(req);
    IdletimeHolder *hold = req->dev->idletime;

    pieces->aiocb = req->aiocb;
    req->aiocb = NULL;
    if (req->io_canceled) {
        idletime_scsi_finish(hold, &req->idletime.held, ret);
    } else {
        idletime_hold_piece_done(hold, &req->idletime.held, ret);
    }
}

static void piece_complete(void *opaque, int ret)
{
    SCSIRequest *req = opaque;

    qemu_sglist_destroy(&pieces_of(req)->sg);
    piece_done(req, ret);
}

/* ---- of a pattern, which may be shorter than a piece */

static void fill(SCSIRequest *req);

static void fill_complete(void *opaque, int ret)
{
    SCSIRequest *req = opaque;
    IdletimeScsiPieces *pieces = pieces_of(req);

    pieces->filled_bytes += pieces->qiov.size;
    if (!req->io_canceled &&
        pieces->filled_bytes < pieces->head.piece_bytes &&
        idletime_hold_goes_on(req->dev->idletime, &pieces->head, ret)) {
        fill(req);
        return;
    }
    pieces->filled_bytes = 0;
    piece_done(req, ret);
}

static void fill(SCSIRequest *req)
{
    IdletimeScsiPieces *pieces = pieces_of(req);

    qemu_iovec_init_buf(&pieces->qiov, pieces->pattern->iov_base,
                        MIN(pieces->head.piece_bytes - pieces->filled_bytes,
                            pieces->pattern->iov_len));
    req->aiocb = blk_aio_pwritev(req->dev->conf.blk,
                                 pieces->offset + pieces->head.done_bytes +
                                 pieces->filled_bytes,
                                 &pieces->qiov, 0, fill_complete, req);
}

/* ---- of a scatter list */

/* @to: the @bytes of @from behind @skip */
static void slice(QEMUSGList *to, const QEMUSGList *from, uint64_t skip,
                  uint64_t bytes)
{
    qemu_sglist_init(to, from->dev, from->nsg, from->as);
    for (int i = 0; i < from->nsg && bytes; i++) {
        dma_addr_t len = from->sg[i].len;

        if (skip < len) {
            len = MIN(len - skip, bytes);
            qemu_sglist_add(to, from->sg[i].base + skip, len);
            bytes -= len;
            skip = 0;
        } else {
            skip -= len;
        }
    }
}

void idletime_scsi_issue_piece(IdletimeHolder *hold, IdletimeReq *held)
{
    SCSIRequest *req = idletime_scsi_req(held);
    IdletimeScsiPieces *pieces = pieces_of(req);

    if (pieces->pattern) {
        fill(req);
        return;
    }
    slice(&pieces->sg, req->sg, pieces->head.done_bytes,
          pieces->head.piece_bytes);
    req->aiocb = dma_blk_io(&pieces->sg,
                            pieces->offset + pieces->head.done_bytes,
                            BDRV_SECTOR_SIZE, pieces->io_func, req,
                            piece_complete, req, pieces->dir);
}

BlockAIOCB *idletime_scsi_split_slow(SCSIRequest *req, uint64_t offset,
                                     DMAIOFunc *io_func,
                                     BlockCompletionFunc *cb, DMADirection dir)
{
    IdletimeHolder *hold = req->dev->idletime;
    IdletimeScsiPieces *pieces;

    if (req->sg->size <= idletime_hold_piece_limit(hold)) {
        return dma_blk_io(req->sg, offset, BDRV_SECTOR_SIZE, io_func, req, cb,
                          req, dir);
    }
    pieces = pieces_new(offset, req->sg->size, dir == DMA_DIRECTION_TO_DEVICE,
                        cb, req);
    pieces->io_func = io_func;
    pieces->dir = dir;
    idletime_hold_split(hold, &req->idletime.held, &pieces->head);
    return req->aiocb;
}

bool idletime_scsi_fill_slow(SCSIRequest *req, uint64_t offset, uint64_t bytes,
                             const struct iovec *pattern,
                             BlockCompletionFunc *cb,
                             void (*drop)(void *opaque), void *opaque)
{
    IdletimeHolder *hold = req->dev->idletime;
    IdletimeScsiPieces *pieces;

    if (bytes <= idletime_hold_piece_limit(hold)) {
        return false;
    }
    pieces = pieces_new(offset, bytes, true, cb, opaque);
    pieces->pattern = pattern;
    pieces->drop = drop;
    idletime_hold_split(hold, &req->idletime.held, &pieces->head);
    return true;
}
