/*
 * virtio-blk: a device is attached to a resource, and detached.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The device's threads go on meanwhile: nothing is stopped or drained, since a
 * drain waits for requests in flight, and a dead backend never ends them.
 *
 *   attach   All is made and then shown by one store of s->idletime.  What has
 *            begun by then stays IDLETIME_BLK_NONE: its end is nobody's.
 *
 *   detach   All queues are foreground, then it->leaving: requests that come
 *            are as in a stock device from now on, so what is held or in
 *            service of ours only gets less.  Each part says in its thread
 *            when nothing is left of it.  When all have, s->idletime is
 *            cleared.  A thread that had read it by then finds only that
 *            nothing is to be done, until it comes back to its event loop,
 *            where the gates wait for it before they are freed.
 *
 * So a thread that has read another class than foreground, or has a request
 * with another state than IDLETIME_BLK_NONE, may rely on s->idletime; anybody
 * else reads it once, and it may be NULL.
 *
 * Context: BQL, unless said otherwise.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "system/block-backend.h"
#include "system/runstate.h"
#include "virtio-blk-idletime-impl.h"

/* ---- what the device says about classes */

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

/* ---- attach */

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
    /* Threads of the gates may have used it until here. */
    qemu_bh_delete(it->left_bh);
    g_free(it->queue_held);
    g_free(it->part);
    g_free(it);
}

/* A part has left.  Not in nested event loops: those who wait there use it. */
static void part_left(void *opaque)
{
    VirtIOBlkIdletime *it = opaque;

    GLOBAL_STATE_CODE();
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        if (!qatomic_load_acquire(&it->part[i].left)) {
            return;
        }
    }
    qatomic_set(&it->s->idletime, NULL);
    blk_idletime_free(it);
}

static VirtIOBlkIdletime *blk_idletime_new(VirtIOBlock *s)
{
    VirtIOBlkIdletime *it = g_new0(VirtIOBlkIdletime, 1);

    it->s = s;
    it->parked = !runstate_is_live(runstate_get());
    it->drained = blk_in_drain(s->blk);
    it->drained_since_ns = idletime_now_ns();
    it->left_bh = aio_bh_new(iohandler_get_aio_context(), part_left, it);
    return it;
}

static bool blk_attach(Object *obj, const IdletimeConf *conf, Error **errp)
{
    VirtIOBlock *s = VIRTIO_BLK(obj);
    VirtIOBlkIdletime *it = blk_idletime_new(s);

    GLOBAL_STATE_CODE();
    if (!idletime_device_init(&it->dev, DEVICE(s), conf, s->conf.num_queues,
                              s->vq_aio_context, &blk_ops, errp)) {
        qemu_bh_delete(it->left_bh);
        g_free(it);
        return false;
    }
    parts_init(it);
    idletime_blk_parts_serve(it, !s->ioeventfd_disabled);
    if (!idletime_device_start(&it->dev, errp)) {
        blk_idletime_free(it);
        return false;
    }
    qatomic_store_release(&s->idletime, it);
    return true;
}

/* ---- detach */

static bool blk_detach(Object *obj, Error **errp)
{
    VirtIOBlkIdletime *it = VIRTIO_BLK(obj)->idletime;

    GLOBAL_STATE_CODE();
    idletime_device_detach(&it->dev);
    /* Who sees this sees that all queues are foreground. */
    qatomic_store_release(&it->leaving, true);
    idletime_device_kick(&it->dev);
    return true;
}

void idletime_blk_unrealize(VirtIOBlock *s)
{
    VirtIOBlkIdletime *it = s->idletime;

    GLOBAL_STATE_CODE();
    if (!it) {
        return;
    }
    idletime_blk_drop_all(s);
    qatomic_set(&s->idletime, NULL);
    blk_idletime_free(it);
}

void idletime_blk_class_init(ObjectClass *klass)
{
    IdletimeAttachableClass *iac = IDLETIME_ATTACHABLE_CLASS(klass);

    iac->ops = &blk_ops;
    iac->attach = blk_attach;
    iac->detach = blk_detach;
}
