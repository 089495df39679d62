/*
 * SCSI disks: what a command says of its class.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A guest can only lower itself: on a background queue nothing in a request
 * makes it foreground, but for the kinds that are never held.
 */
#include "qemu/osdep.h"
#include "scsi/constants.h"
#include "scsi-idletime-impl.h"

/*
 * The command priority of SAM-5: 1 is the highest, 15 the lowest, 0 is none.
 * Linux and Windows leave it 0, so in class guest all of theirs is foreground.
 */
#define PRIORITY_MASK           15
#define PRIORITY_LOWEST         15

#define CDB_FUA                 8       /* in byte 1 */

static const uint8_t op_of_code[256] = {
    [READ_6] = IDLETIME_SCSI_DATA,
    [READ_10] = IDLETIME_SCSI_DATA,
    [READ_12] = IDLETIME_SCSI_DATA,
    [READ_16] = IDLETIME_SCSI_DATA,
    [WRITE_6] = IDLETIME_SCSI_DATA,
    [WRITE_10] = IDLETIME_SCSI_DATA,
    [WRITE_12] = IDLETIME_SCSI_DATA,
    [WRITE_16] = IDLETIME_SCSI_DATA,
    [WRITE_VERIFY_10] = IDLETIME_SCSI_DATA,
    [WRITE_VERIFY_12] = IDLETIME_SCSI_DATA,
    [WRITE_VERIFY_16] = IDLETIME_SCSI_DATA,
    [VERIFY_10] = IDLETIME_SCSI_DATA,
    [VERIFY_12] = IDLETIME_SCSI_DATA,
    [VERIFY_16] = IDLETIME_SCSI_DATA,
    [UNMAP] = IDLETIME_SCSI_DATA,
    [WRITE_SAME_10] = IDLETIME_SCSI_DATA,
    [WRITE_SAME_16] = IDLETIME_SCSI_DATA,
    [SYNCHRONIZE_CACHE] = IDLETIME_SCSI_FLUSH,
    [SYNCHRONIZE_CACHE_16] = IDLETIME_SCSI_FLUSH,
};

IdletimeScsiOp idletime_scsi_op(const SCSIRequest *req)
{
    return op_of_code[req->cmd.buf[0]];
}

IdletimeHoldVerdict idletime_scsi_classify(const SCSIRequest *req,
                                           IdletimeClass class)
{
    IdletimeScsiOp op = idletime_scsi_op(req);

    if (class == IDLETIME_CLASS_GUEST &&
        (req->idletime.priority & PRIORITY_MASK) != PRIORITY_LOWEST) {
        return op == IDLETIME_SCSI_FLUSH ? IDLETIME_HOLD_EXPEDITE :
                                           IDLETIME_HOLD_STOCK;
    }
    return op == IDLETIME_SCSI_DATA ? IDLETIME_HOLD_HOLD : IDLETIME_HOLD_PASS;
}

static bool is_read_or_write(uint8_t code)
{
    switch (code) {
    case READ_6:
    case READ_10:
    case READ_12:
    case READ_16:
    case WRITE_6:
    case WRITE_10:
    case WRITE_12:
    case WRITE_16:
        return true;
    default:
        return false;
    }
}

/*
 * Not in the stream, or not taken out of it rightly by stock QEMU: the flush
 * behind a write with FUA, the parameters of UNMAP and WRITE SAME, the command
 * block of pass-through disks, and anything while a unit attention is pending
 * (it would be given to the first request that is loaded).
 */
bool idletime_scsi_is_carried(const SCSIRequest *req)
{
    uint8_t code = req->cmd.buf[0];
    bool has_fua = code != READ_6 && code != WRITE_6 &&
                   (req->cmd.buf[1] & CDB_FUA);

    return is_read_or_write(code) && !has_fua &&
           req->dev->unit_attention.key != UNIT_ATTENTION &&
           object_dynamic_cast(OBJECT(req->dev), "scsi-hd");
}
