/*
 * SCSI disks: a device that holds requests is attached, stopped and unplugged.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The disk is what is attached: a controller has many, of several classes.
 * Its queues are those of the controller, and so are its threads.
 *
 * Context: BQL.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "hw/virtio/virtio-idletime.h"
#include "hw/virtio/virtio-scsi.h"
#include "scsi-idletime-impl.h"

/* NULL: on another kind of controller, which is not served. */
static VirtIOSCSI *controller_of(const SCSIDevice *d)
{
    Object *obj = OBJECT(d->qdev.parent_bus->parent);

    return object_dynamic_cast(obj, TYPE_VIRTIO_SCSI) ? VIRTIO_SCSI(obj) :
                                                        NULL;
}

/* ---- what it is to the room */

static bool scsi_can_hold(IdletimeDevice *dev, IdletimeClass class,
                          const char *queues, Error **errp)
{
    VirtIOSCSI *s = controller_of(SCSI_DEVICE(dev->obj));

    return idletime_virtio_can_hold(VIRTIO_DEVICE(s), class, queues, errp);
}

static void scsi_detached(IdletimeHolder *hold)
{
    SCSIDevice *d = hold->opaque;

    qatomic_set(&d->idletime, NULL);
}

static unsigned scsi_ring_places(const IdletimeHolder *hold, unsigned queue)
{
    return virtio_queue_get_num(VIRTIO_DEVICE(controller_of(hold->opaque)),
                                VIRTIO_SCSI_VQ_NUM_FIXED + queue);
}

static const IdletimeHoldOps scsi_ops = {
    .device = {
        .kind = IDLETIME_KIND_DISK,
        .can_hold = scsi_can_hold,
        .reclassified = idletime_hold_reclassified,
    },
    .issue = idletime_scsi_issue,
    .issue_piece = idletime_scsi_issue_piece,
    .finish = idletime_scsi_finish,
    .size = idletime_scsi_size,
    .ring_places = scsi_ring_places,
    .park = idletime_scsi_retry,
    .detached = scsi_detached,
};

/* ---- attach and detach */

static bool scsi_attach(Object *obj, const IdletimeConf *conf, Error **errp)
{
    SCSIDevice *d = SCSI_DEVICE(obj);
    VirtIOSCSI *s = controller_of(d);
    IdletimeHoldLayout layout;
    IdletimeHolder *hold;

    GLOBAL_STATE_CODE();
    if (!s) {
        error_setg(errp, "property 'idletime' is '%s', but the controller of "
                   "this disk is a %s: disks of virtio-scsi are served, and "
                   "virtio-blk", conf->resource,
                   object_get_typename(OBJECT(d->qdev.parent_bus->parent)));
        return false;
    }
    layout = (IdletimeHoldLayout) {
        .qdev = DEVICE(d),
        .opaque = d,
        .blk = d->conf.blk,
        .block_bytes = MAX(d->blocksize, BDRV_SECTOR_SIZE),
        .num_queues = s->parent_obj.conf.num_queues,
        .ctx = &s->vq_aio_context[VIRTIO_SCSI_VQ_NUM_FIXED],
        .ioeventfd = !s->dataplane_fenced,
        .park_lock = &d->requests_lock,
    };
    hold = idletime_hold_attach(&layout, conf, &scsi_ops, errp);
    if (hold) {
        /* It is told of no drain, so of no end of one either. */
        hold->drained &= !object_dynamic_cast(obj, "scsi-generic");
        qatomic_store_release(&d->idletime, hold);
    }
    return hold;
}

static bool scsi_detach(Object *obj, Error **errp)
{
    idletime_hold_detach(SCSI_DEVICE(obj)->idletime);
    return true;
}

void idletime_scsi_class_init(ObjectClass *klass)
{
    IdletimeAttachableClass *iac = IDLETIME_ATTACHABLE_CLASS(klass);

    iac->ops = &scsi_ops.device;
    iac->attach = scsi_attach;
    iac->detach = scsi_detach;
}

static void nothing(void *opaque)
{
}

/*
 * Nobody finds the device any more, but a thread may have found it before:
 * what it enqueued meanwhile is cancelled, too.
 */
void idletime_scsi_unrealize(SCSIDevice *d)
{
    IdletimeHolder *hold = d->idletime;

    GLOBAL_STATE_CODE();
    if (!hold) {
        return;
    }
    for (unsigned i = 0; i < hold->dev.num_gates; i++) {
        idletime_gate_run(hold->dev.gate[i], nothing, NULL);
    }
    scsi_device_purge_requests(d, SENSE_CODE(NO_SENSE));
    qatomic_set(&d->idletime, NULL);
    idletime_hold_free(hold);
}

/* ---- stop and cont, drains */

void idletime_scsi_park(SCSIDevice *d)
{
    if (d->idletime) {
        idletime_hold_park(d->idletime);
    }
}

/*
 * What a stream brought, and what was stopped in a thread that serves its
 * queue no more, is restarted where its gate is.
 */
static void follow_gates(SCSIDevice *d)
{
    SCSIRequest *req;

    QEMU_LOCK_GUARD(&d->requests_lock);
    QTAILQ_FOREACH(req, &d->requests, next) {
        if (req->retry) {
            req->ctx = idletime_queue_gate(&d->idletime->dev,
                                           req->idletime.queue)->ctx;
        }
    }
}

void idletime_scsi_unpark(SCSIDevice *d)
{
    if (d->idletime) {
        follow_gates(d);
        idletime_hold_unpark(d->idletime);
    }
}

void idletime_scsi_drain(SCSIDevice *d, bool drained)
{
    if (d->idletime) {
        idletime_hold_drain(d->idletime, drained);
    }
}

/* ---- the controller */

static void each_attached(VirtIOSCSI *s, void (*fn)(SCSIDevice *d, bool arg),
                          bool arg)
{
    BusChild *kid;

    GLOBAL_STATE_CODE();
    QTAILQ_FOREACH(kid, &s->bus.qbus.children, sibling) {
        SCSIDevice *d = SCSI_DEVICE(kid->child);

        if (d->idletime) {
            fn(d, arg);
        }
    }
}

static void serve(SCSIDevice *d, bool ioeventfd)
{
    idletime_hold_serve(d->idletime, ioeventfd);
}

void idletime_scsi_serve(VirtIOSCSI *s, bool ioeventfd)
{
    each_attached(s, serve, ioeventfd);
}

static void purge(SCSIDevice *d, bool unused)
{
    scsi_device_purge_requests(d, SENSE_CODE(NO_SENSE));
}

void idletime_scsi_set_status(VirtIODevice *vdev, uint8_t status)
{
    VirtIOSCSI *s = VIRTIO_SCSI(vdev);

    if (idletime_virtio_driver_goes(vdev, status)) {
        qatomic_inc(&s->resetting);
        each_attached(s, purge, false);
        qatomic_dec(&s->resetting);
    }
}
