/*
 * Idletime machine tests: malformed requests on a held queue.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each request is sent to a device without idletime and to a background one:
 * what the guest sees must be the same.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "standard-headers/linux/virtio_config.h"

#define HEADER      sizeof(struct virtio_blk_outhdr)
#define ROOM        (64 * KiB)

/* Offsets are into one buffer, which begins with the header. */
typedef struct Chain {
    const char *name;
    uint32_t type;
    uint64_t sector;
    unsigned n;
    TestPart part[5];
    enum { PLAIN, INDIRECT, LOOP, INDIRECT_LOOP } form;
} Chain;

#define OUT(offset, size)   { offset, size, false }
#define IN(offset, size)    { offset, size, true }
#define STATUS              IN(ROOM - 1, 1)

static const Chain chain[] = {
    { "read", VIRTIO_BLK_T_IN, 0, 3, { OUT(0, 16), IN(16, 512), STATUS } },
    { "no-status", VIRTIO_BLK_T_OUT, 0, 2, { OUT(0, 16), OUT(16, 512) } },
    { "no-header", VIRTIO_BLK_T_IN, 0, 2, { IN(16, 512), STATUS } },
    { "only-status", VIRTIO_BLK_T_IN, 0, 1, { STATUS } },
    { "only-header", VIRTIO_BLK_T_IN, 0, 1, { OUT(0, 16) } },
    { "short-header", VIRTIO_BLK_T_IN, 0, 2, { OUT(0, 15), STATUS } },
    { "split-header", VIRTIO_BLK_T_IN, 0, 5,
      { OUT(0, 1), OUT(1, 7), OUT(8, 8), IN(16, 512), STATUS } },
    { "no-data", VIRTIO_BLK_T_IN, 0, 2, { OUT(0, 16), STATUS } },
    { "no-data-write", VIRTIO_BLK_T_OUT, 0, 2, { OUT(0, 16), STATUS } },
    { "wrong-way-read", VIRTIO_BLK_T_IN, 0, 3,
      { OUT(0, 16), OUT(16, 512), STATUS } },
    { "wrong-way-write", VIRTIO_BLK_T_OUT, 0, 3,
      { OUT(0, 16), IN(16, 512), STATUS } },
    { "order", VIRTIO_BLK_T_IN, 0, 3, { IN(16, 512), OUT(0, 16), STATUS } },
    { "zero-sized", VIRTIO_BLK_T_IN, 0, 3, { OUT(0, 16), IN(16, 0), STATUS } },
    { "unaligned", VIRTIO_BLK_T_IN, 0, 3, { OUT(0, 16), IN(16, 511), STATUS } },
    { "unaligned-large", VIRTIO_BLK_T_OUT, 0, 3,
      { OUT(0, 16), OUT(16, 32 * KiB + 1), STATUS } },
    { "beyond-end", VIRTIO_BLK_T_IN, DISK_BYTES / 512, 3,
      { OUT(0, 16), IN(16, 512), STATUS } },
    { "across-end", VIRTIO_BLK_T_IN, DISK_BYTES / 512 - 1, 3,
      { OUT(0, 16), IN(16, 32 * KiB), STATUS } },
    { "sector-wraps", VIRTIO_BLK_T_OUT, UINT64_MAX, 3,
      { OUT(0, 16), OUT(16, 512), STATUS } },
    { "sector-wraps-bytes", VIRTIO_BLK_T_OUT, 1ULL << 55, 3,
      { OUT(0, 16), OUT(16, 512), STATUS } },
    { "discard-short", VIRTIO_BLK_T_DISCARD, 0, 3,
      { OUT(0, 16), OUT(16, 15), STATUS } },
    { "discard-none", VIRTIO_BLK_T_DISCARD, 0, 2, { OUT(0, 16), STATUS } },
    { "discard-two", VIRTIO_BLK_T_DISCARD, 0, 3,
      { OUT(0, 16), OUT(16, 32), STATUS } },
    { "zeroes-short", VIRTIO_BLK_T_WRITE_ZEROES, 0, 3,
      { OUT(0, 16), OUT(16, 15), STATUS } },
    { "zeroes-empty", VIRTIO_BLK_T_WRITE_ZEROES, 0, 3,
      { OUT(0, 16), OUT(16, 16), STATUS } },
    { "barrier", VIRTIO_BLK_T_BARRIER, 0, 3,
      { OUT(0, 16), IN(16, 512), STATUS } },
    { "scsi", VIRTIO_BLK_T_SCSI_CMD, 0, 3,
      { OUT(0, 16), IN(16, 512), STATUS } },
    { "type-unknown", 0xffffffff, 0, 3, { OUT(0, 16), IN(16, 512), STATUS } },
    { "zone-report", VIRTIO_BLK_T_ZONE_REPORT, 0, 3,
      { OUT(0, 16), IN(16, 512), STATUS } },
    { "nowhere", VIRTIO_BLK_T_IN, 0, 3,
      { OUT(0, 16), IN(1ULL << 60, 512), STATUS } },
    { "nowhere-header", VIRTIO_BLK_T_IN, 0, 2,
      { OUT(1ULL << 60, 16), STATUS } },
    { "indirect", VIRTIO_BLK_T_IN, 0, 3,
      { OUT(0, 16), IN(16, 32 * KiB), STATUS }, INDIRECT },
    { "indirect-no-status", VIRTIO_BLK_T_OUT, 0, 2,
      { OUT(0, 16), OUT(16, 512) }, INDIRECT },
    { "indirect-loop", VIRTIO_BLK_T_IN, 0, 3,
      { OUT(0, 16), IN(16, 512), STATUS }, INDIRECT_LOOP },
    { "loop", VIRTIO_BLK_T_IN, 0, 3,
      { OUT(0, 16), IN(16, 512), STATUS }, LOOP },
};

/* What the guest sees in the end. */
typedef struct Outcome {
    bool completed;
    uint8_t device_status;
    uint8_t status;
    uint32_t written;
} Outcome;

static TestDisk *disk_for(TestMachine *m, const char *id, const char *options)
{
    TestDisk *d = machine_disk(m, id, options);

    d->more_features = 1ull << VIRTIO_RING_F_INDIRECT_DESC;
    return d;
}

static void set_next(TestDisk *d, uint64_t table, unsigned index,
                     uint16_t next)
{
    struct vring_desc desc;
    uint64_t at = table + index * sizeof(desc);

    qtest_bufread(d->m->qts, at, &desc, sizeof(desc));
    desc.flags |= cpu_to_le16(VRING_DESC_F_NEXT);
    desc.next = cpu_to_le16(next);
    qtest_bufwrite(d->m->qts, at, &desc, sizeof(desc));
}

static uint32_t add_indirect(TestDisk *d, const Chain *c, uint64_t base)
{
    QTestState *qts = d->m->qts;
    QVRingIndirectDesc *table =
        qvring_indirect_desc_setup(qts, &d->pci->vdev, &d->m->alloc, c->n);
    uint32_t head;

    for (unsigned i = 0; i < c->n; i++) {
        qvring_indirect_desc_add(&d->pci->vdev, qts, table,
                                 base + c->part[i].addr, c->part[i].size,
                                 c->part[i].written);
    }
    if (c->form == INDIRECT_LOOP) {
        set_next(d, table->desc, c->n - 1, 0);
    }
    head = qvirtqueue_add_indirect(qts, d->vq[0], table);
    g_free(table);
    return head;
}

static uint32_t add_direct(TestDisk *d, const Chain *c, uint64_t base)
{
    uint32_t head = 0;

    for (unsigned i = 0; i < c->n; i++) {
        uint32_t index = qvirtqueue_add(d->m->qts, d->vq[0],
                                        base + c->part[i].addr,
                                        c->part[i].size, c->part[i].written,
                                        i < c->n - 1);

        head = i ? head : index;
    }
    if (c->form == LOOP) {
        set_next(d, d->vq[0]->desc, head + c->n - 1, head);
    }
    return head;
}

static uint64_t send_chain(TestDisk *d, const Chain *c)
{
    g_autofree void *zeroes = g_malloc0(ROOM);
    uint64_t base = disk_header(d, c->type, IOPRIO_IDLE, c->sector, zeroes,
                                ROOM - HEADER - 1);
    uint32_t head = c->form == PLAIN || c->form == LOOP ?
                    add_direct(d, c, base) : add_indirect(d, c, base);

    qvirtqueue_kick(d->m->qts, &d->pci->vdev, d->vq[0], head);
    return base;
}

static uint8_t device_status(TestDisk *d)
{
    return d->pci->vdev.bus->get_status(&d->pci->vdev);
}

/* Either it completes or the device is broken; a broken one stays so. */
static Outcome outcome(TestDisk *d, uint64_t base)
{
    int64_t until = g_get_monotonic_time() + 10 * G_USEC_PER_SEC;
    Outcome o = { 0 };

    do {
        o.completed = qvirtqueue_get_buf(d->m->qts, d->vq[0], NULL,
                                         &o.written);
        o.device_status = device_status(d);
        g_assert_cmpint(g_get_monotonic_time(), <, until);
    } while (!o.completed &&
             !(o.device_status & VIRTIO_CONFIG_S_NEEDS_RESET));
    o.status = qtest_readb(d->m->qts, base + ROOM - 1);
    return o;
}

static void assert_same(const Outcome *a, const Outcome *b)
{
    g_assert_cmpint(a->completed, ==, b->completed);
    g_assert_cmphex(a->device_status, ==, b->device_status);
    g_assert_cmpint(a->status, ==, b->status);
    g_assert_cmpint(a->written, ==, b->written);
}

/* Afterwards: whether broken or not, a new driver finds a device that works. */
static void assert_usable(TestDisk *d)
{
    disk_init(d);
    assert_held(d, 0);
    assert_in_service(d, 0);
    machine_step_us(d->m, INTERVAL_US);
    request_ok(disk_read(d));
}

static void test_chain(const Chain *c, const char *class)
{
    TestMachine *m = machine_new();
    TestDisk *stock, *d, *fg;
    uint64_t sent, also_sent;
    Outcome wanted, found;

    machine_resource(m, RESOURCE, "max-request-bytes=4096");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    stock = disk_for(m, "stock", "");
    d = disk_for(m, "d", class);
    machine_start(m);
    foreground(fg);
    sent = send_chain(stock, c);
    also_sent = send_chain(d, c);
    machine_step_us(m, INTERVAL_US);
    wanted = outcome(stock, sent);
    found = outcome(d, also_sent);
    assert_same(&found, &wanted);
    assert_usable(d);
    machine_free(m);
}

static void test_background(const void *opaque)
{
    test_chain(opaque, "idletime=" RESOURCE ",idletime-class=background");
}

static void test_guest(const void *opaque)
{
    test_chain(opaque, "idletime=" RESOURCE ",idletime-class=guest");
}

/* Held ones are lost with a device that another one broke, as in flight. */
static void test_broken_while_held(void)
{
    const Chain *bad = &chain[1];
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    send_chain(bg, bad);
    g_assert_cmphex(device_status(bg) & VIRTIO_CONFIG_S_NEEDS_RESET, !=, 0);
    machine_step_us(m, INTERVAL_US);
    disk_await(bg, "held", 0);
    disk_await(bg, "in-service", 0);
    g_assert_false(request_done(r));
    assert_usable(bg);
    machine_free(m);
}

/* What was judged is what is done. */
static void test_rewritten_while_held(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    uint64_t sector = cpu_to_le64(BLOCK_BYTES / 512);
    TestRequest *r;

    disk_fill(bg, 0, 2 * BLOCK_BYTES, 0x11);
    foreground(fg);
    r = disk_write(bg, 0, BLOCK_BYTES, 0x22);
    assert_held(bg, 1);
    qtest_bufwrite(m->qts,
                   r->addr + offsetof(struct virtio_blk_outhdr, sector),
                   &sector, sizeof(sector));
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    g_assert_true(disk_holds(bg, 0, BLOCK_BYTES, 0x22));
    g_assert_true(disk_holds(bg, BLOCK_BYTES, BLOCK_BYTES, 0x11));
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(chain); i++) {
        g_autofree char *b = g_strdup_printf("idletime/malformed/background/%s",
                                             chain[i].name);
        g_autofree char *g = g_strdup_printf("idletime/malformed/guest/%s",
                                             chain[i].name);

        qtest_add_data_func(b, &chain[i], test_background);
        qtest_add_data_func(g, &chain[i], test_guest);
    }
    qtest_add_func("idletime/malformed/broken-while-held",
                   test_broken_while_held);
    qtest_add_func("idletime/malformed/rewritten-while-held",
                   test_rewritten_while_held);
    return g_test_run();
}
