/*
 * SCSI disks: hold background requests in the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * scsi-bus.c, scsi-disk.c and virtio-scsi.c call the macros here; in a device
 * that is attached to no resource each is one test of a pointer or a byte.
 * Macros, because they are used below the definition of struct SCSIRequest
 * only.
 */
#ifndef SCSI_IDLETIME_H
#define SCSI_IDLETIME_H

#include "idletime/hold/hold.h"
#include "system/dma.h"

struct SCSIDevice;
struct SCSIRequest;
struct VirtIODevice;
struct VirtIOSCSI;

/* Part of each SCSIRequest; all zero: nothing is known. */
typedef struct IdletimeScsiReq {
    IdletimeReq held;
    uint16_t queue;             /* of the controller's request queues */
    uint8_t priority;           /* as the guest wrote it */
} IdletimeScsiReq;

/*
 * Slow paths; use the macros below.
 * Context: the thread of the request.
 */
void idletime_scsi_arrive_slow(struct SCSIRequest *req);
bool idletime_scsi_hold_slow(struct SCSIRequest *req);
void idletime_scsi_cancel_slow(struct SCSIRequest *req);
void idletime_scsi_end_slow(struct SCSIRequest *req);
BlockAIOCB *idletime_scsi_split_slow(struct SCSIRequest *req, uint64_t offset,
                                     DMAIOFunc *io_func,
                                     BlockCompletionFunc *cb,
                                     DMADirection dir);
bool idletime_scsi_fill_slow(struct SCSIRequest *req, uint64_t offset,
                             uint64_t bytes, const struct iovec *pattern,
                             BlockCompletionFunc *cb,
                             void (*drop)(void *opaque), void *opaque);

/** idletime_scsi_class_init: the methods of TYPE_IDLETIME_ATTACHABLE. */
void idletime_scsi_class_init(ObjectClass *klass);
/** idletime_scsi_unrealize: cancel what is held, leave.  Context: BQL. */
void idletime_scsi_unrealize(struct SCSIDevice *d);

/**
 * idletime_scsi_park: stop releasing; held requests become such that failed
 * with werror=stop, so that the migration stream stays the stock one.
 * Requests that come later do so at once.  Context: BQL.
 */
void idletime_scsi_park(struct SCSIDevice *d);
/** idletime_scsi_unpark: the caller restarts these next.  Context: BQL. */
void idletime_scsi_unpark(struct SCSIDevice *d);
/** idletime_scsi_drain: no releases between true and false.  Context: BQL. */
void idletime_scsi_drain(struct SCSIDevice *d, bool drained);

/**
 * idletime_scsi_set_status: with the driver gone, or without the right to
 * access memory, what its disks hold is cancelled.  Context: BQL, before the
 * status changes.
 */
void idletime_scsi_set_status(struct VirtIODevice *vdev, uint8_t status);
/**
 * idletime_scsi_serve: who serves the queues of all disks from now on.
 * @ioeventfd: the threads of vq_aio_context; false: the holder of the BQL
 * Context: BQL.
 */
void idletime_scsi_serve(struct VirtIOSCSI *s, bool ioeventfd);

/* The controller knows by which request queue it came. */
#define idletime_scsi_came(_req, _queue, _priority)                         \
    do {                                                                    \
        (_req)->idletime.queue = (_queue);                                  \
        (_req)->idletime.priority = (_priority);                            \
    } while (0)

/* Enqueued; its command is carried out next. */
#define idletime_scsi_arrive(_req)                                          \
    do {                                                                    \
        if (unlikely(qatomic_read(&(_req)->dev->idletime))) {               \
            idletime_scsi_arrive_slow(_req);                                \
        }                                                                   \
    } while (0)

/* It is to transfer data; true: it is held and will do so later. */
#define idletime_scsi_hold(_req)                                            \
    (unlikely(qatomic_read(&(_req)->dev->idletime)) &&                      \
     idletime_scsi_hold_slow(_req))

/* It leaves the device's list: completed, or about to be cancelled. */
#define idletime_scsi_dequeue(_req)                                         \
    do {                                                                    \
        if (unlikely((_req)->idletime.held.state == IDLETIME_REQ_HELD)) {   \
            idletime_scsi_cancel_slow(_req);                                \
        }                                                                   \
    } while (0)

/* No longer in service, for whatever reason.  Idempotent. */
#define idletime_scsi_end(_req)                                             \
    do {                                                                    \
        if (unlikely((_req)->idletime.held.state != IDLETIME_REQ_NONE)) {   \
            idletime_scsi_end_slow(_req);                                   \
        }                                                                   \
    } while (0)

/* dma_blk_io(), but large background is issued in pieces. */
#define idletime_scsi_io(_req, _offset, _align, _io_func, _cb, _dir)        \
    (unlikely((_req)->idletime.held.state == IDLETIME_REQ_BACKGROUND) ?     \
     idletime_scsi_split_slow((_req), (_offset), (_io_func), (_cb),         \
                              (_dir)) :                                     \
     dma_blk_io((_req)->sg, (_offset), (_align), (_io_func), (_req), (_cb), \
                (_req), (_dir)))

/*
 * WRITE SAME: @_bytes from @_offset on, with @_pattern over and over; false:
 * the caller writes.  @_cb(@_opaque) when all is written; @_drop(@_opaque)
 * where the request is cancelled between two pieces.
 */
#define idletime_scsi_fill(_req, _offset, _bytes, _pattern, _cb, _drop,     \
                           _opaque)                                         \
    (unlikely((_req)->idletime.held.state == IDLETIME_REQ_BACKGROUND) &&    \
     idletime_scsi_fill_slow((_req), (_offset), (_bytes), (_pattern),       \
                             (_cb), (_drop), (_opaque)))

#endif
