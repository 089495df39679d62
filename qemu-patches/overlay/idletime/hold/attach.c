/*
 * Idletime hold: a device is attached to a resource, and detached.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The device's threads go on meanwhile: nothing is stopped or drained, since a
 * drain waits for requests in flight, and a dead backend never ends them.
 *
 *   attach   All is made and then shown by one store of the device's pointer.
 *            What has begun by then stays IDLETIME_REQ_NONE: its end is
 *            nobody's.
 *
 *   detach   All queues are foreground, then hold->leaving: requests that come
 *            are as in a stock device from now on, so what is held or in
 *            service here only gets less.  Each part says in its thread
 *            when nothing is left of it.  When all have, the device's pointer
 *            is cleared.  A thread that had read it by then finds only that
 *            nothing is to be done, until it comes back to its event loop,
 *            where the gates wait for it before they are freed.
 *
 * So a thread that has read another class than foreground, or has a request
 * with another state than IDLETIME_REQ_NONE, may rely on the pointer; anybody
 * else reads it once, and it may be NULL.
 *
 * Context: BQL, unless said otherwise.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "system/block-backend.h"
#include "system/runstate.h"
#include "hold-impl.h"

void idletime_hold_reclassified(IdletimeDevice *dev)
{
    IdletimeHolder *hold = container_of(dev, IdletimeHolder, dev);

    GLOBAL_STATE_CODE();
    for (unsigned i = 0; i < dev->num_gates; i++) {
        qatomic_set(&hold->part[i].reclassify, true);
        idletime_gate_kick(dev->gate[i]);
    }
}

/* ---- attach */

static void parts_init(IdletimeHolder *hold)
{
    hold->ring = g_new0(IdletimeHoldRing, hold->dev.num_queues);
    hold->part = g_new0(IdletimeHoldPart, hold->dev.num_gates);
    for (unsigned i = 0; i < hold->dev.num_gates; i++) {
        hold->part[i].owner = hold;
        hold->part[i].gate = hold->dev.gate[i];
        hold->part[i].ioeventfd_ctx = hold->dev.gate[i]->ctx;
        QTAILQ_INIT(&hold->part[i].held);
        hold->dev.gate[i]->pump = idletime_hold_pump;
        hold->dev.gate[i]->opaque = &hold->part[i];
    }
}

void idletime_hold_free(IdletimeHolder *hold)
{
    GLOBAL_STATE_CODE();
    idletime_device_cleanup(&hold->dev);
    /* Threads of the gates may have used it until here. */
    qemu_bh_delete(hold->left_bh);
    g_free(hold->ring);
    g_free(hold->part);
    g_free(hold);
}

/* A part has left.  Not in nested event loops: those who wait there use it. */
static void part_left(void *opaque)
{
    IdletimeHolder *hold = opaque;

    GLOBAL_STATE_CODE();
    for (unsigned i = 0; i < hold->dev.num_gates; i++) {
        if (!qatomic_load_acquire(&hold->part[i].left)) {
            return;
        }
    }
    hold->ops->detached(hold);
    idletime_hold_free(hold);
}

static IdletimeHolder *hold_new(const IdletimeHoldLayout *layout,
                              const IdletimeHoldOps *ops)
{
    IdletimeHolder *hold = g_new0(IdletimeHolder, 1);

    hold->ops = ops;
    hold->opaque = layout->opaque;
    hold->blk = layout->blk;
    hold->block_bytes = layout->block_bytes;
    hold->park_lock = layout->park_lock;
    hold->parked = !runstate_is_live(runstate_get());
    hold->drained = blk_in_drain(hold->blk);
    hold->drained_since_ns = idletime_now_ns();
    hold->left_bh = aio_bh_new(iohandler_get_aio_context(), part_left, hold);
    return hold;
}

IdletimeHolder *idletime_hold_attach(const IdletimeHoldLayout *layout,
                                   const IdletimeConf *conf,
                                   const IdletimeHoldOps *ops, Error **errp)
{
    IdletimeHolder *hold = hold_new(layout, ops);

    GLOBAL_STATE_CODE();
    if (!idletime_device_init(&hold->dev, layout->qdev, conf,
                              layout->num_queues, layout->ctx, &ops->device,
                              errp)) {
        qemu_bh_delete(hold->left_bh);
        g_free(hold);
        return NULL;
    }
    parts_init(hold);
    idletime_hold_serve(hold, layout->ioeventfd);
    if (!idletime_device_start(&hold->dev, errp)) {
        idletime_hold_free(hold);
        return NULL;
    }
    return hold;
}

/* ---- detach */

void idletime_hold_detach(IdletimeHolder *hold)
{
    GLOBAL_STATE_CODE();
    idletime_device_detach(&hold->dev);
    /* Who sees this sees that all queues are foreground. */
    qatomic_store_release(&hold->leaving, true);
    idletime_device_kick(&hold->dev);
}
