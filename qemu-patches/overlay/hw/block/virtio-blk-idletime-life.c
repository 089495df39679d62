/*
 * virtio-blk: the life of a device that holds requests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context: BQL, unless said otherwise.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
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
static void drop_all(VirtIOBlock *s)
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
    drop_all(s);
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

void idletime_blk_serve(VirtIOBlock *s, bool ioeventfd)
{
    VirtIOBlkIdletime *it = s->idletime;

    GLOBAL_STATE_CODE();
    for (unsigned i = 0; it && i < it->dev.num_gates; i++) {
        part_serve(&it->part[i], ioeventfd);
    }
}

AioContext *idletime_blk_context(VirtIOBlock *s, unsigned queue)
{
    GLOBAL_STATE_CODE();
    return idletime_queue_gate(&s->idletime->dev, queue)->ctx;
}

/* ---- realize and unrealize */

static void blk_reclassified(IdletimeDevice *dev)
{
    VirtIOBlkIdletime *it = container_of(dev, VirtIOBlkIdletime, dev);

    GLOBAL_STATE_CODE();
    for (unsigned i = 0; i < dev->num_gates; i++) {
        qatomic_set(&it->part[i].reclassify, true);
        idletime_gate_kick(dev->gate[i]);
    }
}

/*
 * In order, what is behind a held request of its queue could not complete, and
 * the order is not in the migration stream: on the other side held requests
 * would never complete.
 */
static bool blk_can_hold(IdletimeDevice *dev, IdletimeClass class,
                         const char *queues, Error **errp)
{
    VirtIOBlock *s = container_of(dev, VirtIOBlkIdletime, dev)->s;

    if (virtio_has_feature(VIRTIO_DEVICE(s)->host_features,
                           VIRTIO_F_IN_ORDER)) {
        error_setg(errp, "property '%s' is '%s', but 'in_order' is 'on': "
                   "held requests would delay all behind them; use "
                   "in_order=off, the default, or class 'foreground'",
                   *queues ? "idletime-background-queues" : "idletime-class",
                   *queues ? queues : IdletimeClass_str(class));
        return false;
    }
    return true;
}

static const IdletimeDeviceOps blk_ops = {
    .kind = IDLETIME_KIND_DISK,
    .can_hold = blk_can_hold,
    .reclassified = blk_reclassified,
};

static void parts_init(VirtIOBlkIdletime *it)
{
    it->queue_held = g_new0(unsigned, it->dev.num_queues);
    it->part = g_new0(IdletimeBlkPart, it->dev.num_gates);
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        it->part[i].owner = it;
        it->part[i].gate = it->dev.gate[i];
        it->part[i].ioeventfd_ctx = it->dev.gate[i]->ctx;
        QSIMPLEQ_INIT(&it->part[i].held);
        it->dev.gate[i]->pump = idletime_blk_pump;
        it->dev.gate[i]->opaque = &it->part[i];
    }
}

static void blk_idletime_free(VirtIOBlkIdletime *it)
{
    idletime_device_cleanup(&it->dev);
    g_free(it->queue_held);
    g_free(it->part);
    g_free(it);
}

bool idletime_blk_realize(VirtIOBlock *s, Error **errp)
{
    const IdletimeConf *conf = &s->conf.idletime;
    VirtIOBlkIdletime *it;

    GLOBAL_STATE_CODE();
    if (!conf->resource) {
        return idletime_conf_check_unset(conf, errp);
    }
    it = g_new0(VirtIOBlkIdletime, 1);
    it->s = s;
    if (!idletime_device_init(&it->dev, DEVICE(s), conf, s->conf.num_queues,
                              s->vq_aio_context, &blk_ops, errp)) {
        g_free(it);
        return false;
    }
    parts_init(it);
    if (!idletime_device_start(&it->dev, errp)) {
        blk_idletime_free(it);
        return false;
    }
    s->idletime = it;
    return true;
}

void idletime_blk_unrealize(VirtIOBlock *s)
{
    VirtIOBlkIdletime *it = s->idletime;

    GLOBAL_STATE_CODE();
    if (!it) {
        return;
    }
    drop_all(s);
    s->idletime = NULL;
    blk_idletime_free(it);
}
