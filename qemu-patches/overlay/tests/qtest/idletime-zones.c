/*
 * Idletime machine tests: zones of a disk, each with one random request.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "idletime-zones.h"

#define HEADER_BYTES    sizeof(struct virtio_blk_outhdr)

static unsigned pick(GRand *rand, unsigned n)
{
    return g_rand_int_range(rand, 0, n);
}

void zones_init(TestZones *zones, TestDisk *d)
{
    zones->d = d;
    for (unsigned n = 0; n < ZONES; n++) {
        zones->zone[n].addr = guest_alloc(&d->m->alloc, ZONE_BYTES +
                                          2 * BLOCK_BYTES);
    }
}

static uint64_t image_offset(const TestZones *zones, const TestZone *z)
{
    return (z - zones->zone) * ZONE_BYTES + z->first * (uint64_t)BLOCK_BYTES;
}

static bool is_ranged(const TestZone *z)
{
    return z->type == VIRTIO_BLK_T_WRITE_ZEROES ||
           z->type == VIRTIO_BLK_T_DISCARD;
}

/* Header and data in guest memory; the status byte follows @size of data. */
static void write_request(TestZones *zones, TestZone *z, uint32_t ioprio,
                          uint32_t size)
{
    QTestState *qts = zones->d->m->qts;
    struct virtio_blk_outhdr header = {
        .type = cpu_to_le32(z->type), .ioprio = cpu_to_le32(ioprio),
        .sector = cpu_to_le64(image_offset(zones, z) / SECTOR_BYTES),
    };
    struct virtio_blk_discard_write_zeroes range = {
        .sector = header.sector,
        .num_sectors = cpu_to_le32(z->count * (BLOCK_BYTES / SECTOR_BYTES)),
    };

    qtest_bufwrite(qts, z->addr, &header, sizeof(header));
    if (is_ranged(z)) {
        qtest_bufwrite(qts, z->addr + HEADER_BYTES, &range, sizeof(range));
    } else {
        qtest_memset(qts, z->addr + HEADER_BYTES, z->value, size);
    }
    qtest_writeb(qts, z->addr + HEADER_BYTES + size, 0xff);
}

static void send_request(TestZones *zones, TestZone *z, uint32_t ioprio,
                         unsigned queue)
{
    uint32_t size =
        z->type == VIRTIO_BLK_T_FLUSH ? 0 :
        is_ranged(z) ? sizeof(struct virtio_blk_discard_write_zeroes) :
        z->count * BLOCK_BYTES;
    TestPart data = { z->addr + HEADER_BYTES, size,
                      z->type == VIRTIO_BLK_T_IN };
    TestPart status = { data.addr + size, 1, true };
    TestPart part[] = { { z->addr, HEADER_BYTES, false },
                        size ? data : status, status };

    write_request(zones, z, ioprio, size);
    z->r = disk_submit_parts(zones->d, queue, part, size ? 3 : 2);
    z->r->size = size;
    zones->requests++;
}

static bool room_in_rings(const TestDisk *d)
{
    for (unsigned i = 0; i < d->num_queues; i++) {
        if (ring_room(&d->ring[i]) < 3) {
            return false;
        }
    }
    return true;
}

void zones_submit(TestZones *zones, GRand *rand)
{
    static const uint32_t types[] = {
        VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_IN,
        VIRTIO_BLK_T_IN, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_WRITE_ZEROES,
        VIRTIO_BLK_T_DISCARD,
    };
    static const uint32_t ioprios[] = {
        IOPRIO_NONE, IOPRIO_BE_JOURNAL, IOPRIO_BE, IOPRIO_IDLE, IOPRIO_IDLE,
    };
    TestZone *z = &zones->zone[pick(rand, ZONES)];
    unsigned left;

    if (z->r || !room_in_rings(zones->d)) {
        return;
    }
    z->type = types[pick(rand, ARRAY_SIZE(types))];
    z->first = pick(rand, ZONE_BLOCKS - 1);
    left = ZONE_BLOCKS - z->first;
    /* Mostly small; large ones come in pieces. */
    z->count = 1 + pick(rand, pick(rand, 4) ? MIN(4, left) : left);
    z->value = 1 + pick(rand, 255);
    send_request(zones, z, ioprios[pick(rand, ARRAY_SIZE(ioprios))],
                 pick(rand, zones->d->num_queues));
}

/* ---- what became of them */

static void check_read(TestZones *zones, TestZone *z)
{
    g_autofree uint8_t *data = g_malloc(z->r->size);

    qtest_bufread(zones->d->m->qts, z->addr + HEADER_BYTES, data, z->r->size);
    for (size_t i = 0; i < z->r->size; i++) {
        g_assert_cmphex(data[i], ==, z->holds[z->first + i / BLOCK_BYTES]);
    }
    zones->verified_bytes += z->r->size;
}

static void note_done(TestZones *zones, TestZone *z)
{
    request_ok(z->r);
    if (z->type == VIRTIO_BLK_T_OUT) {
        memset(&z->holds[z->first], z->value, z->count);
    } else if (is_ranged(z)) {
        memset(&z->holds[z->first], 0, z->count);
    } else if (z->type == VIRTIO_BLK_T_IN) {
        check_read(zones, z);
    }
    z->r = NULL;
}

unsigned zones_reap(TestZones *zones)
{
    unsigned pending = 0;

    for (unsigned n = 0; n < ZONES; n++) {
        TestZone *z = &zones->zone[n];

        if (z->r && request_done(z->r)) {
            note_done(zones, z);
        }
        pending += !!z->r;
    }
    return pending;
}

/* A write that a reset made us forget may have been carried out. */
static bool may_hold(const TestZone *z, unsigned block, uint8_t value)
{
    bool covered = block >= z->first && block < z->first + z->count;

    return value == z->holds[block] ||
           (z->r && covered && ((z->type == VIRTIO_BLK_T_OUT &&
                                 value == z->value) ||
                                (is_ranged(z) && !value)));
}

static void compare_zone(TestZone *z, const uint8_t *data)
{
    for (unsigned b = 0; b < ZONE_BLOCKS; b++) {
        uint8_t found = data[b * BLOCK_BYTES];

        for (unsigned i = 1; i < BLOCK_BYTES; i++) {
            g_assert_cmphex(data[b * BLOCK_BYTES + i], ==, found);
        }
        g_assert_true(may_hold(z, b, found));
        z->holds[b] = found;
    }
    z->r = NULL;
}

void zones_compare(TestZones *zones)
{
    g_autofree uint8_t *data = g_malloc(ZONE_BYTES);
    int fd = open(zones->d->image, O_RDONLY);

    for (unsigned n = 0; n < ZONES; n++) {
        g_assert_cmpint(pread(fd, data, ZONE_BYTES, n * ZONE_BYTES), ==,
                        ZONE_BYTES);
        compare_zone(&zones->zone[n], data);
    }
    zones->verified_bytes += ZONES * ZONE_BYTES;
    close(fd);
}
