/*
 * virtio-net: hold background packets at the transmit queue.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * virtio-net.c calls the macros here; where the device is not attached to a
 * resource each is one test of a pointer.
 */
#ifndef VIRTIO_NET_IDLETIME_H
#define VIRTIO_NET_IDLETIME_H

#include "idletime/device/attach.h"

struct VirtIONet;
struct VirtIONetQueue;
struct NetClientState;
typedef struct VirtIONetIdletime VirtIONetIdletime;

/*
 * Slow paths; use the macros below.  Context of all: BQL.
 */
VirtQueueElement *idletime_net_pop_slow(struct VirtIONetQueue *q);
bool idletime_net_left_slow(struct VirtIONetQueue *q);
void idletime_net_push_slow(struct VirtIONetQueue *q, VirtQueueElement *elem);
void idletime_net_received_slow(struct NetClientState *nc, const uint8_t *buf,
                                size_t size);
bool idletime_net_by_qemu_slow(const struct VirtIONet *n);
bool idletime_net_purged_slow(struct VirtIONetQueue *q);

/**
 * idletime_net_class_init: the device can be attached, at realize (as soon as
 * max_queue_pairs and vqs are set) and live, and detached.
 */
void idletime_net_class_init(ObjectClass *klass);
/** idletime_net_unrealize: drop what is held, leave. */
void idletime_net_unrealize(struct VirtIONet *n);

/**
 * idletime_net_set_status: before the device follows a new @status.
 * What is held goes back to the ring, is sent, or is dropped as a NIC would.
 */
void idletime_net_set_status(struct VirtIONet *n, uint8_t status);

/** idletime_net_queue_reset: the guest resets virtqueue @index. */
void idletime_net_queue_reset(struct VirtIONet *n, unsigned index);

/** idletime_net_del_queue: the virtqueues of a pair are about to go. */
void idletime_net_del_queue(struct VirtIONet *n, unsigned pair);

/*
 * Macros, because they are used below the definition of struct VirtIONet
 * only.
 */

/* The next packet that may be sent now, or NULL. */
#define idletime_net_pop(_q)                                                \
    (unlikely((_q)->n->idletime) ? idletime_net_pop_slow(_q) :              \
     virtqueue_pop((_q)->tx_vq, sizeof(VirtQueueElement)))

/* No packet came; true: there are some, and they will be asked for. */
#define idletime_net_left(_q)                                               \
    (unlikely((_q)->n->idletime) && idletime_net_left_slow(_q))

/* Sent, or dropped: give the packet back to the guest. */
#define idletime_net_push(_q, _elem)                                        \
    do {                                                                    \
        if (unlikely((_q)->n->idletime)) {                                  \
            idletime_net_push_slow((_q), (_elem));                          \
        } else {                                                            \
            virtqueue_push((_q)->tx_vq, (_elem), 0);                        \
            virtio_notify(VIRTIO_DEVICE((_q)->n), (_q)->tx_vq);             \
        }                                                                   \
    } while (0)

/*
 * The backend has dropped what it had (@_len 0), and is still at it: true: the
 * next packet is not for now, and will be asked for.
 */
#define idletime_net_purged(_q, _len)                                       \
    (unlikely(!(_len)) && (_q)->n->idletime && idletime_net_purged_slow(_q))

/* A packet came in for the guest. */
#define idletime_net_received(_n, _nc, _buf, _size)                         \
    do {                                                                    \
        if (unlikely((_n)->idletime)) {                                     \
            idletime_net_received_slow((_nc), (_buf), (_size));             \
        }                                                                   \
    } while (0)

/* Its packets are to come by QEMU: vhost must not run. */
#define idletime_net_by_qemu(_n)                                            \
    (unlikely((_n)->idletime) && idletime_net_by_qemu_slow(_n))

#endif
