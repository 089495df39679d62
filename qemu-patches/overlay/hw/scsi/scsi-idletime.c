/*
 * SCSI disks: hold background requests in the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A held request is parsed, checked and on its device's list, but has not
 * begun to transfer data.  So all that the stock code does with requests it
 * does with held ones: it finds them for task management, cancels them at
 * resets and at unplug, and reports a unit attention in the order in which
 * requests came.
 *
 * Stopped or migrated, a held request is one that failed with werror=stop and
 * waits to be retried, which the stock code knows how to keep, send and
 * restart.
 */
#include "qemu/osdep.h"
#include "trace.h"
#include "scsi-idletime-impl.h"

static IdletimeClass class_of(const IdletimeHolder *hold, unsigned queue)
{
    /* NULL: detached since the caller looked. */
    return hold ? idletime_queue_class(&hold->dev, queue) :
                  IDLETIME_CLASS_FOREGROUND;
}

/* NULL: nothing of ours. */
static IdletimeHolder *holder_of(const SCSIRequest *req)
{
    IdletimeHolder *hold = qatomic_rcu_read(&req->dev->idletime);

    return hold && idletime_hold_served(hold, req->idletime.queue) ? hold :
                                                                     NULL;
}

/* ---- a request comes */

/*
 * Flushes begin with their command.  Of what else is never held most takes no
 * time of the disk.
 */
void idletime_scsi_arrive_slow(SCSIRequest *req)
{
    IdletimeHolder *hold = holder_of(req);
    unsigned queue = req->idletime.queue;
    IdletimeClass class = class_of(hold, queue);

    if (idletime_scsi_op(req) != IDLETIME_SCSI_FLUSH) {
        return;
    }
    if (class != IDLETIME_CLASS_FOREGROUND) {
        idletime_hold_judge(hold, queue, idletime_scsi_classify(req, class),
                            IDLETIME_PROMOTION_FLUSH);
    }
    idletime_hold_begin(hold, &req->idletime.held, queue, 0,
                        idletime_now_ns());
}

bool idletime_scsi_hold_slow(SCSIRequest *req)
{
    IdletimeHolder *hold = holder_of(req);
    unsigned queue = req->idletime.queue;
    IdletimeClass class = class_of(hold, queue);

    if (idletime_scsi_op(req) != IDLETIME_SCSI_DATA ||
        req->idletime.held.state != IDLETIME_REQ_NONE) {
        return false;
    }
    if (class != IDLETIME_CLASS_FOREGROUND &&
        idletime_hold_judge(hold, queue, idletime_scsi_classify(req, class),
                            IDLETIME_PROMOTION_FLUSH)) {
        trace_scsi_idletime_hold(req->dev->id, req->lun, req->tag, queue);
        if (idletime_hold_put(hold, &req->idletime.held, queue)) {
            return true;
        }
    }
    idletime_hold_begin(hold, &req->idletime.held, queue, req->cmd.xfer,
                        idletime_now_ns());
    return false;
}

/* ---- it leaves */

uint64_t idletime_scsi_size(const IdletimeHolder *hold,
                            const IdletimeReq *held)
{
    return idletime_scsi_req(held)->cmd.xfer;
}

void idletime_scsi_issue(IdletimeHolder *hold, IdletimeReq *held)
{
    SCSIRequest *req = idletime_scsi_req(held);

    /* Foreground if it is expedited; else it has begun with its lease. */
    idletime_hold_begin(hold, held, held->queue, req->cmd.xfer,
                        idletime_now_ns());
    scsi_req_continue(req);
}

/* Context: requests_lock held. */
bool idletime_scsi_retry(IdletimeHolder *hold, IdletimeReq *held)
{
    SCSIRequest *req = idletime_scsi_req(held);

    if (!idletime_scsi_is_carried(req)) {
        return false;
    }
    idletime_scsi_pieces_forget(req);
    req->retry = true;
    return true;
}

void idletime_scsi_cancel_slow(SCSIRequest *req)
{
    idletime_hold_take(req->dev->idletime, &req->idletime.held);
    idletime_scsi_pieces_forget(req);
}

/* ---- in service */

void idletime_scsi_end_slow(SCSIRequest *req)
{
    idletime_hold_end(req->dev->idletime, &req->idletime.held,
                      idletime_now_ns());
}
