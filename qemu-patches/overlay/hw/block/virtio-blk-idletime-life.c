/*
 * virtio-blk: a device that holds requests is attached, stopped and reset.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context: BQL.
 */
#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "hw/virtio/virtio-idletime.h"
#include "system/block-backend.h"
#include "system/runstate.h"
#include "virtio-blk-idletime-impl.h"

/* ---- what it is to the room */

static bool blk_can_hold(IdletimeDevice *dev, IdletimeClass class,
                         const char *queues, Error **errp)
{
    return idletime_virtio_can_hold(VIRTIO_DEVICE(dev->obj), class, queues,
                                    errp);
}

static void blk_detached(IdletimeHolder *hold)
{
    VirtIOBlock *s = hold->opaque;

    qatomic_set(&s->idletime, NULL);
}

static unsigned blk_ring_places(const IdletimeHolder *hold, unsigned queue)
{
    return virtio_queue_get_num(VIRTIO_DEVICE(hold->opaque), queue);
}

static const IdletimeHoldOps blk_ops = {
    .device = {
        .kind = IDLETIME_KIND_DISK,
        .can_hold = blk_can_hold,
        .reclassified = idletime_hold_reclassified,
    },
    .issue = idletime_blk_issue,
    .issue_piece = idletime_blk_issue_piece,
    .finish = idletime_blk_finish,
    .size = idletime_blk_size,
    .ring_places = blk_ring_places,
    .park = idletime_blk_join_rq,
    .detached = blk_detached,
};

/* ---- attach and detach */

static bool blk_attach(Object *obj, const IdletimeConf *conf, Error **errp)
{
    VirtIOBlock *s = VIRTIO_BLK(obj);
    const IdletimeHoldLayout layout = {
        .qdev = DEVICE(s),
        .opaque = s,
        .blk = s->blk,
        .block_bytes = s->conf.conf.logical_block_size,
        .num_queues = s->conf.num_queues,
        .ctx = s->vq_aio_context,
        /* Stock QEMU does not forget a start that failed when one works. */
        .ioeventfd = s->ioeventfd_started || !s->ioeventfd_disabled,
        .park_lock = &s->rq_lock,
    };
    IdletimeHolder *hold = idletime_hold_attach(&layout, conf, &blk_ops, errp);

    GLOBAL_STATE_CODE();
    if (hold) {
        qatomic_store_release(&s->idletime, hold);
    }
    return hold;
}

static bool blk_detach(Object *obj, Error **errp)
{
    idletime_hold_detach(VIRTIO_BLK(obj)->idletime);
    return true;
}

void idletime_blk_class_init(ObjectClass *klass)
{
    IdletimeAttachableClass *iac = IDLETIME_ATTACHABLE_CLASS(klass);

    iac->ops = &blk_ops.device;
    iac->attach = blk_attach;
    iac->detach = blk_detach;
}

/* ---- stop and cont, drains, threads */

void idletime_blk_park(VirtIOBlock *s)
{
    if (s->idletime) {
        idletime_hold_park(s->idletime);
    }
}

void idletime_blk_unpark(VirtIOBlock *s)
{
    if (s->idletime) {
        idletime_hold_unpark(s->idletime);
    }
}

void idletime_blk_drain(VirtIOBlock *s, bool drained)
{
    if (s->idletime) {
        idletime_hold_drain(s->idletime, drained);
    }
}

void idletime_blk_serve(VirtIOBlock *s, bool ioeventfd)
{
    if (s->idletime) {
        /* blk_set_aio_context() drains only where it changes something. */
        blk_drain(s->blk);
        idletime_hold_serve(s->idletime, ioeventfd);
    }
}

AioContext *idletime_blk_context(VirtIOBlock *s, unsigned queue)
{
    GLOBAL_STATE_CODE();
    return idletime_queue_gate(&s->idletime->dev, queue)->ctx;
}

/* ---- resets */

/* As virtio_blk_reset() does with requests that nobody will complete. */
static void drop_rq(VirtIOBlock *s)
{
    QEMU_LOCK_GUARD(&s->rq_lock);
    while (s->rq) {
        VirtIOBlockReq *req = s->rq;

        s->rq = req->next;
        virtqueue_detach_element(req->vq, &req->elem, 0);
        g_free(req);
    }
}

/* A piece that is in service ends in s->rq, too. */
static void drop_all(VirtIOBlock *s)
{
    idletime_hold_park(s->idletime);
    blk_drain(s->blk);
    drop_rq(s);
}

void idletime_blk_reset(VirtIOBlock *s)
{
    GLOBAL_STATE_CODE();
    if (!s->idletime) {
        return;
    }
    drop_all(s);
    /* Stopped, it stays parked until virtio_blk_dma_restart_cb(). */
    if (runstate_is_live(runstate_get())) {
        idletime_blk_unpark(s);
    }
}

void idletime_blk_set_status(VirtIOBlock *s, uint8_t status)
{
    if (idletime_virtio_driver_goes(VIRTIO_DEVICE(s), status)) {
        idletime_blk_reset(s);
    }
}

void idletime_blk_unrealize(VirtIOBlock *s)
{
    IdletimeHolder *hold = s->idletime;

    GLOBAL_STATE_CODE();
    if (!hold) {
        return;
    }
    drop_all(s);
    qatomic_set(&s->idletime, NULL);
    idletime_hold_free(hold);
}
