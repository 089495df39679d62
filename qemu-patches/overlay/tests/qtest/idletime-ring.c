/*
 * Idletime machine tests: the driver's side of split and packed rings.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime-ring.h"
#include "standard-headers/linux/virtio_config.h"
#include "standard-headers/linux/virtio_pci.h"

#define DESC_BYTES      16
#define DESC_LENGTH     8
#define DESC_ID         12      /* packed */
#define DESC_FLAGS      14      /* packed */
#define FLAG_AVAIL      (1 << VRING_PACKED_DESC_F_AVAIL)
#define FLAG_USED       (1 << VRING_PACKED_DESC_F_USED)
#define EVENT_FLAGS     2       /* of an event structure */

void ring_resize(QVirtioPCIDevice *pci, uint16_t index, unsigned places)
{
    pci->vdev.bus->queue_select(&pci->vdev, index);
    qpci_io_writew(pci->pdev, pci->bar, pci->common_cfg_offset +
                   offsetof(struct virtio_pci_common_cfg, queue_size), places);
}

void ring_setup(TestRing *ring, QTestState *qts, QVirtioDevice *d,
                QGuestAllocator *alloc, uint16_t index)
{
    *ring = (TestRing) {
        .qts = qts,
        .alloc = alloc,
        .vq = qvirtqueue_setup(d, alloc, index),
        .packed = d->features & (1ull << VIRTIO_F_RING_PACKED),
        .indirect = d->features & (1ull << VIRTIO_RING_F_INDIRECT_DESC),
        .wrap = true,
        .used_wrap = true,
    };
    g_assert_cmpint(ring->vq->size, <=, RING_SIZE_MAX);
    if (ring->packed) {
        /* What libqos wrote there would be flags. */
        qtest_memset(qts, ring->vq->desc, 0, ring->vq->size * DESC_BYTES);
    }
}

static void kick(TestRing *ring)
{
    QVirtioDevice *d = ring->vq->vdev;

    d->bus->virtqueue_kick(d, ring->vq);
}

/* ---- split */

static uint32_t split_indirect(TestRing *ring, const RingPart *part,
                               unsigned n)
{
    QVirtioDevice *d = ring->vq->vdev;
    QVRingIndirectDesc *table = qvring_indirect_desc_setup(ring->qts, d,
                                                           ring->alloc, n);
    uint32_t head;

    for (unsigned i = 0; i < n; i++) {
        qvring_indirect_desc_add(d, ring->qts, table, part[i].addr,
                                 part[i].size, part[i].written);
    }
    head = qvirtqueue_add_indirect(ring->qts, ring->vq, table);
    g_free(table);
    return head;
}

static uint32_t split_send(TestRing *ring, const RingPart *part, unsigned n)
{
    uint32_t head = 0;

    if (ring->vq->num_free < n) {
        qvirtqueue_reset_pool(ring->vq);
    }
    if (ring->indirect) {
        head = split_indirect(ring, part, n);
    } else {
        for (unsigned i = 0; i < n; i++) {
            uint32_t d = qvirtqueue_add(ring->qts, ring->vq, part[i].addr,
                                        part[i].size, part[i].written,
                                        i + 1 < n);

            head = i ? head : d;
        }
    }
    qvirtqueue_kick(ring->qts, ring->vq->vdev, ring->vq, head);
    return head;
}

/* ---- packed */

static void write_desc(TestRing *ring, uint64_t at, const RingPart *part,
                       uint16_t id)
{
    qtest_writeq(ring->qts, at, part->addr);
    qtest_writel(ring->qts, at + DESC_LENGTH, part->size);
    qtest_writew(ring->qts, at + DESC_ID, id);
}

static uint16_t part_flags(const RingPart *part, bool more)
{
    return (part->written ? VRING_DESC_F_WRITE : 0) |
           (more ? VRING_DESC_F_NEXT : 0);
}

/* One descriptor that names a table of them. */
static RingPart packed_table(TestRing *ring, const RingPart *part, unsigned n)
{
    uint64_t table = guest_alloc(ring->alloc, n * DESC_BYTES);

    for (unsigned i = 0; i < n; i++) {
        write_desc(ring, table + i * DESC_BYTES, &part[i], 0);
        qtest_writew(ring->qts, table + i * DESC_BYTES + DESC_FLAGS,
                     part_flags(&part[i], false));
    }
    return (RingPart) { .addr = table, .size = n * DESC_BYTES };
}

/* The flags of the first come last: they make the buffer available. */
static uint16_t packed_chain(TestRing *ring, const RingPart *part, unsigned n,
                             uint16_t more_flags)
{
    uint16_t head = ring->next, id = head, flags, head_flags = 0;
    uint64_t at;

    /* Buffers come back in any order: one at this place may be pending. */
    while (ring->length[id]) {
        id = (id + 1) % ring->vq->size;
    }
    for (unsigned i = 0; i < n; i++) {
        at = ring->vq->desc + ring->next * DESC_BYTES;
        flags = part_flags(&part[i], i + 1 < n) | more_flags |
                (ring->wrap ? FLAG_AVAIL : FLAG_USED);
        write_desc(ring, at, &part[i], id);
        if (i) {
            qtest_writew(ring->qts, at + DESC_FLAGS, flags);
        } else {
            head_flags = flags;
        }
        if (++ring->next == ring->vq->size) {
            ring->next = 0;
            ring->wrap = !ring->wrap;
        }
    }
    ring->length[id] = n;
    ring->pending += n;
    qtest_writew(ring->qts, ring->vq->desc + head * DESC_BYTES + DESC_FLAGS,
                 head_flags);
    return id;
}

static bool packed_get(TestRing *ring, uint32_t *id)
{
    uint64_t at = ring->vq->desc + ring->used * DESC_BYTES;
    uint16_t flags = qtest_readw(ring->qts, at + DESC_FLAGS), n;

    if (!!(flags & FLAG_USED) != ring->used_wrap ||
        !!(flags & FLAG_AVAIL) != ring->used_wrap) {
        return false;
    }
    *id = qtest_readw(ring->qts, at + DESC_ID);
    g_assert_cmpint(*id, <, ring->vq->size);
    n = ring->length[*id];
    g_assert_cmpint(n, >, 0);
    ring->length[*id] = 0;
    ring->pending -= n;
    ring->used += n;
    if (ring->used >= ring->vq->size) {
        ring->used -= ring->vq->size;
        ring->used_wrap = !ring->used_wrap;
    }
    return true;
}

static uint32_t packed_send(TestRing *ring, const RingPart *part, unsigned n)
{
    RingPart table;
    uint32_t id;

    g_assert_cmpint(ring->indirect ? 1 : n, <=, ring_room(ring));
    if (ring->indirect) {
        table = packed_table(ring, part, n);
        id = packed_chain(ring, &table, 1, VRING_DESC_F_INDIRECT);
    } else {
        id = packed_chain(ring, part, n, 0);
    }
    if (qtest_readw(ring->qts, ring->vq->used + EVENT_FLAGS) !=
        VRING_PACKED_EVENT_FLAG_DISABLE) {
        kick(ring);
    }
    return id;
}

/* ---- both */

uint32_t ring_send(TestRing *ring, const RingPart *part, unsigned n)
{
    return ring->packed ? packed_send(ring, part, n) :
                          split_send(ring, part, n);
}

unsigned ring_room(const TestRing *ring)
{
    return ring->packed ? ring->vq->size - ring->pending : ring->vq->num_free;
}

bool ring_get(TestRing *ring, uint32_t *id)
{
    bool got = ring->packed ? packed_get(ring, id) :
               qvirtqueue_get_buf(ring->qts, ring->vq, id, NULL);

    ring->returned += got;
    return got;
}

unsigned ring_returned(TestRing *ring)
{
    uint32_t id;

    while (ring_get(ring, &id)) {
        continue;
    }
    return ring->returned;
}
