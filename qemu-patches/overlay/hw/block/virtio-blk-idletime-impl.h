/*
 * virtio-blk: what the files of its background hold share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What is held, and until when, is idletime/hold.  Here is what a request of
 * virtio-blk is; each file calls only those below it in this list:
 *
 *   virtio-blk-idletime-life.c     attach, detach, stop, reset
 *   virtio-blk-idletime.c          a request comes, is issued, ends
 *   virtio-blk-idletime-pieces.c   large requests: a piece of one
 *   virtio-blk-idletime-class.c    what a request's header says
 *
 * Context: the thread that serves the request's queue, unless said otherwise.
 */
#ifndef VIRTIO_BLK_IDLETIME_IMPL_H
#define VIRTIO_BLK_IDLETIME_IMPL_H

#include "hw/virtio/virtio-blk.h"
#include "hw/virtio/virtio-blk-idletime.h"

static inline unsigned idletime_blk_queue(const VirtIOBlockReq *req)
{
    return virtio_get_queue_index(req->vq);
}

static inline VirtIOBlockReq *idletime_blk_req(const IdletimeReq *req)
{
    return container_of(req, VirtIOBlockReq, idletime);
}

/* ---- virtio-blk-idletime.c: the methods of IdletimeHoldOps */

void idletime_blk_issue(IdletimeHolder *hold, IdletimeReq *req);
uint64_t idletime_blk_size(const IdletimeHolder *hold, const IdletimeReq *req);
bool idletime_blk_join_rq(IdletimeHolder *hold, IdletimeReq *req);

/* ---- virtio-blk-idletime-pieces.c */

void idletime_blk_issue_piece(IdletimeHolder *hold, IdletimeReq *req);
void idletime_blk_finish(IdletimeHolder *hold, IdletimeReq *req, int ret);
/** idletime_blk_pieces_forget: @req is what was popped from the ring again. */
void idletime_blk_pieces_forget(VirtIOBlockReq *req);

/* ---- virtio-blk-idletime-class.c */

/**
 * idletime_blk_classify: from the header as the guest wrote it, which is in
 * @req from then on.
 * @class: of the queue, not foreground
 * @cause: set with IDLETIME_HOLD_EXPEDITE
 */
IdletimeHoldVerdict idletime_blk_classify(VirtIOBlockReq *req,
                                          IdletimeClass class,
                                          IdletimePromotion *cause);

#endif
