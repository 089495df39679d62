/*
 * virtio-blk: what a request's header says of its class.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A guest can only lower itself: on a background queue nothing in a request
 * makes it foreground, but for the kinds that are never held.
 */
#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "hw/virtio/virtio-access.h"
#include "virtio-blk-idletime-impl.h"

/* Linux: ioprio class in the upper bits, idle is 3, best effort is 2. */
#define IOPRIO_CLASS_SHIFT      13
#define IOPRIO_CLASS_BE         2
#define IOPRIO_CLASS_IDLE       3
#define IOPRIO_LEVEL(v)         ((v) & 7)
/* jbd2 and xfs log writes: best effort, level 3. */
#define IOPRIO_LEVEL_JOURNAL    3

/*
 * The header, once: the stock path takes it from the request then, so that
 * what is judged is what is done, whatever the guest writes meanwhile.
 */
static bool read_header(VirtIOBlockReq *req)
{
    req->has_header = req->elem.out_num >= 1 && req->elem.in_num >= 1 &&
                      iov_to_buf(req->elem.out_sg, req->elem.out_num, 0,
                                 &req->out,
                                 sizeof(req->out)) == sizeof(req->out);
    return req->has_header;
}

/* The kind of a request, as the stock path sees it. */
static uint32_t kind_of(uint32_t type)
{
    return type & ~(VIRTIO_BLK_T_OUT | VIRTIO_BLK_T_BARRIER);
}

/* Flush, get-id, zone management and what we do not know are never held. */
static bool type_is_holdable(uint32_t type)
{
    switch (kind_of(type)) {
    case VIRTIO_BLK_T_IN:
    case VIRTIO_BLK_T_DISCARD & ~VIRTIO_BLK_T_OUT:
    case VIRTIO_BLK_T_WRITE_ZEROES & ~VIRTIO_BLK_T_OUT:
    case VIRTIO_BLK_T_ZONE_APPEND & ~VIRTIO_BLK_T_OUT:
        return true;
    default:
        return false;
    }
}

/* Why held requests of the same device should not wait behind this one. */
static bool expedites_held(uint32_t type, uint32_t ioprio,
                           IdletimePromotion *cause)
{
    if (kind_of(type) == VIRTIO_BLK_T_FLUSH) {
        *cause = IDLETIME_PROMOTION_FLUSH;
        return true;
    }
    if ((ioprio >> IOPRIO_CLASS_SHIFT) == IOPRIO_CLASS_BE &&
        IOPRIO_LEVEL(ioprio) == IOPRIO_LEVEL_JOURNAL) {
        *cause = IDLETIME_PROMOTION_JOURNAL;
        return true;
    }
    return false;
}

IdletimeHoldVerdict idletime_blk_classify(VirtIOBlockReq *req,
                                          IdletimeClass class,
                                          IdletimePromotion *cause)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(req->dev);
    uint32_t type, ioprio;

    /* Malformed: the stock path says so to the guest. */
    if (!read_header(req)) {
        return IDLETIME_HOLD_STOCK;
    }
    type = virtio_ldl_p(vdev, &req->out.type);
    ioprio = virtio_ldl_p(vdev, &req->out.ioprio);
    if (class == IDLETIME_CLASS_GUEST &&
        (ioprio >> IOPRIO_CLASS_SHIFT) != IOPRIO_CLASS_IDLE) {
        return expedites_held(type, ioprio, cause) ? IDLETIME_HOLD_EXPEDITE :
                                                     IDLETIME_HOLD_STOCK;
    }
    return type_is_holdable(type) ? IDLETIME_HOLD_HOLD : IDLETIME_HOLD_PASS;
}
