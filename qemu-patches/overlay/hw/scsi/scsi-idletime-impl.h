/*
 * SCSI disks: what the files of their background hold share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What is held, and until when, is idletime/hold.  Here is what a request of
 * a SCSI disk is; each file calls only those below it in this list:
 *
 *   scsi-idletime-life.c     attach, detach, stop, unplug
 *   scsi-idletime.c          a request comes, is issued, ends
 *   scsi-idletime-pieces.c   large requests: a piece of one
 *   scsi-idletime-class.c    what a command says
 *
 * Context: the thread of the request, unless said otherwise.
 */
#ifndef SCSI_IDLETIME_IMPL_H
#define SCSI_IDLETIME_IMPL_H

#include "hw/scsi/scsi.h"

static inline SCSIRequest *idletime_scsi_req(const IdletimeReq *req)
{
    return container_of(req, SCSIRequest, idletime.held);
}

/* ---- scsi-idletime.c: the methods of IdletimeHoldOps */

void idletime_scsi_issue(IdletimeHolder *hold, IdletimeReq *held);
uint64_t idletime_scsi_size(const IdletimeHolder *hold,
                            const IdletimeReq *held);
bool idletime_scsi_retry(IdletimeHolder *hold, IdletimeReq *held);

/* ---- scsi-idletime-pieces.c */

void idletime_scsi_issue_piece(IdletimeHolder *hold, IdletimeReq *held);
void idletime_scsi_finish(IdletimeHolder *hold, IdletimeReq *held, int ret);
/** idletime_scsi_pieces_forget: @req is as it was before it was issued. */
void idletime_scsi_pieces_forget(SCSIRequest *req);

/* ---- scsi-idletime-class.c */

/* What a command is, by its operation code. */
typedef enum IdletimeScsiOp {
    IDLETIME_SCSI_OTHER,        /* never held, and takes no time to speak of */
    IDLETIME_SCSI_DATA,
    IDLETIME_SCSI_FLUSH,
} IdletimeScsiOp;

IdletimeScsiOp idletime_scsi_op(const SCSIRequest *req);
/** idletime_scsi_classify: @class: of the queue, not foreground */
IdletimeHoldVerdict idletime_scsi_classify(const SCSIRequest *req,
                                           IdletimeClass class);
/** idletime_scsi_is_carried: can the migration stream have it? */
bool idletime_scsi_is_carried(const SCSIRequest *req);

#endif
