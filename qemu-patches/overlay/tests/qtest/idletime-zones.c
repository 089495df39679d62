/*
 * Idletime machine tests: zones of a disk, each with one random request.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "idletime-zones.h"

static unsigned pick(GRand *rand, unsigned n)
{
    return g_rand_int_range(rand, 0, n);
}

void zones_init(TestZones *zones, TestDisk *d)
{
    zones->d = d;
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

static size_t size_of(const TestZone *z)
{
    return z->type == VIRTIO_BLK_T_FLUSH ? 0 :
           is_ranged(z) ? sizeof(struct virtio_blk_discard_write_zeroes) :
           z->count * BLOCK_BYTES;
}

/* What a read leaves unwritten is the zone's value, too. */
static void send_request(TestZones *zones, TestZone *z, uint32_t ioprio,
                         unsigned queue)
{
    uint64_t sector = image_offset(zones, z) / SECTOR_BYTES;
    struct virtio_blk_discard_write_zeroes range = {
        .sector = cpu_to_le64(sector),
        .num_sectors = cpu_to_le32(z->count * (BLOCK_BYTES / SECTOR_BYTES)),
    };
    size_t size = size_of(z);
    g_autofree uint8_t *data = g_malloc(size + 1);

    memset(data, z->value, size);
    if (is_ranged(z)) {
        memcpy(data, &range, sizeof(range));
    }
    z->r = disk_submit(zones->d, queue, z->type, ioprio, sector,
                       size ? data : NULL, size);
    z->addr = z->r->addr;
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

/* Its memory is the driver's again, and its zone has no request. */
static void forget(TestZones *zones, TestZone *z)
{
    if (z->r) {
        guest_free(&zones->d->m->alloc, z->addr);
        z->r = NULL;
    }
}

/* A write without a result, or with a bad one, may have been carried out. */
static bool may_hold(const TestZone *z, unsigned block, uint8_t value)
{
    bool covered = block >= z->first && block < z->first + z->count;

    return value == z->holds[block] ||
           (z->r && covered && ((z->type == VIRTIO_BLK_T_OUT &&
                                 value == z->value) ||
                                (is_ranged(z) && !value)));
}

/* With what is on the disk: what a write left of it, block by block. */
static void compare_zone(TestZones *zones, TestZone *z, int fd)
{
    g_autofree uint8_t *data = g_malloc(ZONE_BYTES);

    g_assert_cmpint(pread(fd, data, ZONE_BYTES,
                          (z - zones->zone) * ZONE_BYTES), ==, ZONE_BYTES);
    for (unsigned b = 0; b < ZONE_BLOCKS; b++) {
        uint8_t found = data[b * BLOCK_BYTES];

        for (unsigned i = 1; i < BLOCK_BYTES; i++) {
            g_assert_cmphex(data[b * BLOCK_BYTES + i], ==, found);
        }
        g_assert_true(may_hold(z, b, found));
        z->holds[b] = found;
    }
    zones->verified_bytes += ZONE_BYTES;
}

static void check_read(TestZones *zones, TestZone *z)
{
    g_autofree uint8_t *data = g_malloc(z->r->size);

    qtest_bufread(zones->d->m->qts, request_data(z->r), data, z->r->size);
    for (size_t i = 0; i < z->r->size; i++) {
        g_assert_cmphex(data[i], ==, z->holds[z->first + i / BLOCK_BYTES]);
    }
    zones->verified_bytes += z->r->size;
}

static void note_success(TestZones *zones, TestZone *z)
{
    request_ok(z->r);
    if (z->type == VIRTIO_BLK_T_OUT) {
        memset(&z->holds[z->first], z->value, z->count);
    } else if (is_ranged(z)) {
        memset(&z->holds[z->first], 0, z->count);
    } else if (z->type == VIRTIO_BLK_T_IN) {
        check_read(zones, z);
    }
}

static void note_done(TestZones *zones, TestZone *z)
{
    if (disks_are_scsi() && scsi_was_ended(z->r)) {
        int fd = open(zones->d->image, O_RDONLY);

        compare_zone(zones, z, fd);
        close(fd);
        zones->ended++;
    } else {
        note_success(zones, z);
    }
    forget(zones, z);
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

void zones_compare(TestZones *zones)
{
    int fd = open(zones->d->image, O_RDONLY);

    for (unsigned n = 0; n < ZONES; n++) {
        compare_zone(zones, &zones->zone[n], fd);
        forget(zones, &zones->zone[n]);
    }
    close(fd);
}
