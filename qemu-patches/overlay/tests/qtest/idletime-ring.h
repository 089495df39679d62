/*
 * Idletime machine tests: the driver's side of split and packed rings.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * libqos drives split rings only.  The memory of a packed one is laid out as
 * libqos lays out a split one: descriptors, then the driver's event structure
 * in place of the available ring, the device's in place of the used ring.
 */
#ifndef IDLETIME_RING_H
#define IDLETIME_RING_H

#include "libqtest.h"
#include "libqos/virtio-pci.h"

#define RING_SIZE_MAX   1024

/* How a driver uses a device's rings. */
typedef struct RingKind {
    const char *name;
    const char *options;        /* of the device, such as ",packed=on" */
    bool chained;               /* the header in a descriptor of its own */
    bool indirect;
    bool in_order;
} RingKind;

/* One ring. */
typedef struct TestRing {
    QTestState *qts;
    QVirtQueue *vq;
    QGuestAllocator *alloc;
    bool packed;
    bool indirect;
    unsigned returned;          /* buffers that the device gave back */
    uint16_t next;              /* packed: descriptor to write next */
    bool wrap;
    uint16_t used;              /* packed: descriptor to be used next */
    bool used_wrap;
    unsigned pending;           /* packed: descriptors that the device has */
    uint16_t length[RING_SIZE_MAX]; /* packed: descriptors of a buffer */
} TestRing;

typedef struct RingPart {
    uint64_t addr;
    uint32_t size;
    bool written;               /* by the device */
} RingPart;

/** ring_resize: before ring_setup(): the queue has this many places. */
void ring_resize(QVirtioPCIDevice *pci, uint16_t index, unsigned places);

/**
 * ring_setup: set up queue @index of @d, whose features are negotiated.
 * @qvirtqueue_cleanup() of ring->vq frees it.
 */
void ring_setup(TestRing *ring, QTestState *qts, QVirtioDevice *d,
                QGuestAllocator *alloc, uint16_t index);

/**
 * ring_send: make one buffer of @n parts available; kick where asked for.
 * Returns its id, which ring_get() gives back.
 */
uint32_t ring_send(TestRing *ring, const RingPart *part, unsigned n);

/** ring_room: descriptors that one more buffer may take */
unsigned ring_room(const TestRing *ring);

/** ring_get: the next buffer that the device gave back; false: none */
bool ring_get(TestRing *ring, uint32_t *id);

/** ring_returned: buffers that the device gave back so far */
unsigned ring_returned(TestRing *ring);

#endif
