/*
 * Idletime machine tests: requests, as a guest driver makes them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "standard-headers/linux/virtio_scsi.h"

/* Real time; on a loaded machine a thread pool may take seconds. */
#define WAIT_US             (15 * G_USEC_PER_SEC)
#define POLL_US             500
#define HEADER_BYTES        sizeof(struct virtio_blk_outhdr)
#define STATUS_UNWRITTEN    0xff

/* ---- submitting */

uint64_t request_data(TestRequest *r)
{
    return r->addr + (disks_are_scsi() ? SCSI_HEADER_BYTES : HEADER_BYTES);
}

static bool device_writes(uint32_t type)
{
    return type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID;
}

uint64_t disk_header(TestDisk *d, uint32_t type, uint32_t ioprio,
                     uint64_t sector, const void *data, size_t size)
{
    struct virtio_blk_outhdr header = {
        .type = cpu_to_le32(type),
        .ioprio = cpu_to_le32(ioprio),
        .sector = cpu_to_le64(sector),
    };
    uint64_t addr = guest_alloc(&d->m->alloc, HEADER_BYTES + size + 1);

    qtest_bufwrite(d->m->qts, addr, &header, sizeof(header));
    if (data) {
        qtest_bufwrite(d->m->qts, addr + HEADER_BYTES, data, size);
    }
    qtest_writeb(d->m->qts, addr + HEADER_BYTES + size, STATUS_UNWRITTEN);
    return addr;
}

/*
 * Descriptors of a split ring are not recycled one by one, but when all came
 * back.
 */
static void recycle(TestDisk *d, TestRing *ring, unsigned wanted)
{
    if (ring_room(ring) >= wanted) {
        return;
    }
    for (unsigned i = 0; i < d->requests->len; i++) {
        TestRequest *r = d->requests->pdata[i];

        g_assert_true(r->ring != ring || request_done(r));
    }
    if (!ring->packed) {
        qvirtqueue_reset_pool(ring->vq);
    }
}

TestRequest *disk_submit_parts(TestDisk *d, unsigned queue,
                               const TestPart *part, unsigned n)
{
    TestRequest *r = g_new0(TestRequest, 1);

    r->disk = d;
    r->ring = &d->ring[queue];
    r->addr = part[0].addr;
    recycle(d, r->ring, n);
    r->head = ring_send(r->ring, part, n);
    g_ptr_array_add(d->requests, r);
    return r;
}

static TestRequest *blk_submit(TestDisk *d, unsigned queue, uint32_t type,
                               uint32_t ioprio, uint64_t sector,
                               const void *data, size_t size)
{
    uint64_t addr = disk_header(d, type, ioprio, sector, data, size);
    const TestPart part[] = {
        { addr, HEADER_BYTES, false },
        { addr + HEADER_BYTES, size, device_writes(type) },
        { addr + HEADER_BYTES + size, 1, true },
    };
    const TestPart no_data[] = { part[0], part[2] };
    TestRequest *r = size ? disk_submit_parts(d, queue, part, 3) :
                            disk_submit_parts(d, queue, no_data, 2);

    r->size = size;
    return r;
}

TestRequest *disk_submit(TestDisk *d, unsigned queue, uint32_t type,
                         uint32_t ioprio, uint64_t sector,
                         const void *data, size_t size)
{
    if (disks_are_scsi()) {
        return scsi_submit_as(d, queue, type, ioprio, sector, data, size);
    }
    return blk_submit(d, queue, type, ioprio, sector, data, size);
}

TestRequest *disk_read_as(TestDisk *d, uint32_t ioprio)
{
    return disk_submit(d, 0, VIRTIO_BLK_T_IN, ioprio, 0, NULL, BLOCK_BYTES);
}

TestRequest *disk_read(TestDisk *d)
{
    return disk_read_as(d, IOPRIO_NONE);
}

TestRequest *disk_write(TestDisk *d, uint64_t offset, size_t size,
                        uint8_t value)
{
    g_autofree void *data = g_malloc(size);

    memset(data, value, size);
    return disk_submit(d, 0, VIRTIO_BLK_T_OUT, IOPRIO_NONE,
                       offset / SECTOR_BYTES, data, size);
}

TestRequest *disk_write_joined(TestDisk *d, size_t size, uint8_t value)
{
    g_autofree void *data = g_malloc(size);
    TestPart part[2];
    TestRequest *r;

    memset(data, value, size);
    part[0].addr = disk_header(d, VIRTIO_BLK_T_OUT, 0, 0, data, size);
    part[0].size = HEADER_BYTES + size;
    part[0].written = false;
    part[1] = (TestPart) { part[0].addr + part[0].size, 1, true };
    r = disk_submit_parts(d, 0, part, 2);
    r->size = size;
    return r;
}

TestRequest *disk_read_on(TestDisk *d, unsigned queue)
{
    return disk_submit(d, queue, VIRTIO_BLK_T_IN, IOPRIO_NONE, 0, NULL,
                       BLOCK_BYTES);
}

TestRequest *disk_flush(TestDisk *d)
{
    return disk_submit(d, 0, VIRTIO_BLK_T_FLUSH, IOPRIO_NONE, 0, NULL, 0);
}

/* ---- completion */

/* Several chains may have the same head one after another: the oldest. */
static void complete(TestDisk *d, TestRing *ring, uint32_t head)
{
    for (unsigned i = 0; i < d->requests->len; i++) {
        TestRequest *r = d->requests->pdata[i];

        if (r->ring == ring && r->head == head && !r->done) {
            r->done = true;
            r->order = ++d->completed;
            return;
        }
    }
    g_error("%s completed descriptor %u, which it did not get", d->id, head);
}

TestRequest *request_moved(TestDisk *d, const TestRequest *r)
{
    TestRequest *moved = g_memdup2(r, sizeof(*r));

    moved->disk = d;
    moved->ring = &d->ring[r->ring - r->disk->ring];
    g_ptr_array_add(d->requests, moved);
    return moved;
}

bool request_done(TestRequest *r)
{
    uint32_t head;

    while (ring_get(r->ring, &head)) {
        complete(r->disk, r->ring, head);
    }
    return r->done;
}

uint8_t request_wait(TestRequest *r)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;

    while (!request_done(r)) {
        if (g_get_monotonic_time() > until) {
            g_error("a request of %s does not complete", r->disk->id);
        }
        g_usleep(POLL_US);
    }
    if (disks_are_scsi()) {
        return scsi_response(r) == VIRTIO_SCSI_S_OK && scsi_status(r) == 0 ?
               VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
    }
    return qtest_readb(r->disk->m->qts, request_data(r) + r->size);
}

void request_ok(TestRequest *r)
{
    g_assert_cmpint(request_wait(r), ==, VIRTIO_BLK_S_OK);
}

bool request_holds(TestRequest *r, uint8_t value)
{
    g_autofree uint8_t *data = g_malloc(r->size);
    size_t i = 0;

    qtest_bufread(r->disk->m->qts, request_data(r), data, r->size);
    while (i < r->size && data[i] == value) {
        i++;
    }
    return i == r->size;
}

void foreground(TestDisk *d)
{
    request_ok(disk_read(d));
}
