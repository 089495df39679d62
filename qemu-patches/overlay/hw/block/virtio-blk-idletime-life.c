/*
 * virtio-blk: the life of a device that holds requests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Stopped, reset or migrated, a held request is one of s->rq: popped and not
 * completed, which the stock code knows how to keep, send, restart and drop.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/lockable.h"
#include "system/block-backend.h"
#include "virtio-blk-idletime-impl.h"

/* Back to what was popped from the ring, and onto the device's list. */
void idletime_blk_join_rq(VirtIOBlockReq *req)
{
    VirtIOBlock *s = req->dev;

    idletime_blk_pieces_forget(req);
    req->idletime.state = IDLETIME_BLK_NONE;
    req->mr_next = NULL;
    WITH_QEMU_LOCK_GUARD(&s->rq_lock) {
        req->next = s->rq;
        s->rq = req;
    }
}

static void each_part(VirtIOBlkIdletime *it, void (*fn)(void *part))
{
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        idletime_gate_run(it->part[i].gate, fn, &it->part[i]);
    }
}

static void part_park(void *opaque)
{
    IdletimeBlkPart *part = opaque;
    VirtIOBlockReq *req;

    while ((req = QSIMPLEQ_FIRST(&part->held))) {
        req->idletime.waited_ns = idletime_now_ns() - req->idletime.held_ns;
        idletime_blk_held_remove(part, req);
        idletime_blk_join_rq(req);
    }
    idletime_gate_rest(part->gate);
}

void idletime_blk_park(VirtIOBlock *s)
{
    if (s->idletime) {
        qatomic_set(&s->idletime->parked, true);
        each_part(s->idletime, part_park);
    }
}

void idletime_blk_unpark(VirtIOBlock *s)
{
    if (s->idletime) {
        qatomic_set(&s->idletime->parked, false);
    }
}

void idletime_blk_drain(VirtIOBlock *s, bool drained)
{
    VirtIOBlkIdletime *it = s->idletime;

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

static void blk_reclassified(IdletimeDevice *dev)
{
    VirtIOBlkIdletime *it = container_of(dev, VirtIOBlkIdletime, dev);

    for (unsigned i = 0; i < dev->num_gates; i++) {
        qatomic_set(&it->part[i].reclassify, true);
        idletime_gate_kick(dev->gate[i]);
    }
}

static const IdletimeDeviceOps blk_ops = {
    .kind = IDLETIME_KIND_DISK,
    .reclassified = blk_reclassified,
};

static void parts_init(VirtIOBlkIdletime *it)
{
    it->part = g_new0(IdletimeBlkPart, it->dev.num_gates);
    for (unsigned i = 0; i < it->dev.num_gates; i++) {
        it->part[i].owner = it;
        it->part[i].gate = it->dev.gate[i];
        QSIMPLEQ_INIT(&it->part[i].held);
        it->dev.gate[i]->pump = idletime_blk_pump;
        it->dev.gate[i]->opaque = &it->part[i];
    }
}

static void blk_idletime_free(VirtIOBlkIdletime *it)
{
    idletime_device_cleanup(&it->dev);
    g_free(it->part);
    g_free(it);
}

bool idletime_blk_realize(VirtIOBlock *s, Error **errp)
{
    const IdletimeConf *conf = &s->conf.idletime;
    VirtIOBlkIdletime *it;

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

/* As virtio_blk_reset() does with requests that nobody will complete. */
static void drop_rq(VirtIOBlock *s)
{
    WITH_QEMU_LOCK_GUARD(&s->rq_lock) {
        while (s->rq) {
            VirtIOBlockReq *req = s->rq;

            s->rq = req->next;
            virtqueue_detach_element(req->vq, &req->elem, 0);
            g_free(req);
        }
    }
}

void idletime_blk_unrealize(VirtIOBlock *s)
{
    VirtIOBlkIdletime *it = s->idletime;

    if (!it) {
        return;
    }
    idletime_blk_park(s);
    blk_drain(s->blk);
    drop_rq(s);
    s->idletime = NULL;
    blk_idletime_free(it);
}
