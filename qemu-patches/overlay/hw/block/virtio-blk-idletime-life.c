/*
 * virtio-blk: a device that holds requests is stopped, drained and reset.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context: BQL, unless said otherwise.
 */
#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "system/block-backend.h"
#include "virtio-blk-idletime-impl.h"

/* ---- stop and cont */

static void each_part(VirtIOBlkIdletime *it, void (*fn)(void *part))
{
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        idletime_gate_run(it->part[i].gate, fn, &it->part[i]);
    }
}

/* Context: the part's thread. */
static void part_park(void *opaque)
{
    IdletimeBlkPart *part = opaque;
    VirtIOBlockReq *req;
    bool joined;

    idletime_blk_assert_thread(part);
    while ((req = QSIMPLEQ_FIRST(&part->held))) {
        req->idletime.waited_ns = idletime_now_ns() - req->idletime.held_ns;
        idletime_blk_list_remove(part, req);
        joined = idletime_blk_join_rq(req);
        assert(joined);
    }
    idletime_gate_rest(part->gate);
    idletime_blk_leave(part);
}

static void set_parked(VirtIOBlock *s, bool parked)
{
    QEMU_LOCK_GUARD(&s->rq_lock);
    qatomic_set(&s->idletime->parked, parked);
}

void idletime_blk_park(VirtIOBlock *s)
{
    GLOBAL_STATE_CODE();
    if (s->idletime) {
        set_parked(s, true);
        each_part(s->idletime, part_park);
    }
}

void idletime_blk_unpark(VirtIOBlock *s)
{
    GLOBAL_STATE_CODE();
    if (s->idletime) {
        set_parked(s, false);
    }
}

/* ---- drains */

void idletime_blk_drain(VirtIOBlock *s, bool drained)
{
    VirtIOBlkIdletime *it = s->idletime;

    GLOBAL_STATE_CODE();
    if (!it) {
        return;
    }
    if (drained) {
        it->drained_since_ns = idletime_now_ns();
    } else if (it->drained) {
        it->dev.drained_ns += idletime_now_ns() - it->drained_since_ns;
    }
    qatomic_set(&it->drained, drained);
    idletime_device_kick(&it->dev);
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
void idletime_blk_drop_all(VirtIOBlock *s)
{
    idletime_blk_park(s);
    blk_drain(s->blk);
    drop_rq(s);
}

void idletime_blk_reset(VirtIOBlock *s)
{
    GLOBAL_STATE_CODE();
    if (!s->idletime) {
        return;
    }
    idletime_blk_drop_all(s);
    /* Stopped, it stays parked until virtio_blk_dma_restart_cb(). */
    if (VIRTIO_DEVICE(s)->vm_running) {
        idletime_blk_unpark(s);
    }
}

void idletime_blk_set_status(VirtIOBlock *s, uint8_t status)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(s);

    /* Some drivers submit before DRIVER_OK: it has to go, not to be absent. */
    if (!(status & VIRTIO_CONFIG_S_DRIVER_OK) &&
        ((vdev->status & VIRTIO_CONFIG_S_DRIVER_OK) ||
         virtio_device_disabled(vdev))) {
        idletime_blk_reset(s);
    }
}

/* ---- threads */

static void part_serve(IdletimeBlkPart *part, bool ioeventfd)
{
    idletime_gate_set_context(part->gate, ioeventfd ? part->ioeventfd_ctx :
                                          qemu_get_aio_context());
}

void idletime_blk_parts_serve(VirtIOBlkIdletime *it, bool ioeventfd)
{
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        part_serve(&it->part[i], ioeventfd);
    }
}

void idletime_blk_serve(VirtIOBlock *s, bool ioeventfd)
{
    GLOBAL_STATE_CODE();
    if (s->idletime) {
        idletime_blk_parts_serve(s->idletime, ioeventfd);
    }
}

AioContext *idletime_blk_context(VirtIOBlock *s, unsigned queue)
{
    GLOBAL_STATE_CODE();
    return idletime_queue_gate(&s->idletime->dev, queue)->ctx;
}
