/*
 * Idletime machine tests: network devices, as a guest driver and the host see
 * them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-nic.h"

/* Behind the disks' slots. */
#define FIRST_SLOT      16
#define PACKET_MAX      (128 * KiB)
#define TX              1
#define ETH_P_RARP      0x8035

/* ---- kinds of rings */

static const RingKind one_descriptor = { "", "" };

static const RingKind kinds[] = {
    { "split", "", .chained = true },
    { "split-indirect", "", .chained = true, .indirect = true },
    { "split-in-order", ",in_order=on", .chained = true, .in_order = true },
    { "packed", ",packed=on", .chained = true },
    { "packed-indirect", ",packed=on", .chained = true, .indirect = true },
    { "packed-in-order", ",packed=on,in_order=on", .chained = true,
      .in_order = true },
};

/* Of the test that runs. */
static const RingKind *present_kind = &one_descriptor;

typedef struct KindTest {
    const RingKind *kind;
    GTestFunc test;
    GTestDataFunc data_test;
    const void *data;
} KindTest;

static void run_kind_test(const void *opaque)
{
    const KindTest *t = opaque;

    present_kind = t->kind;
    if (t->test) {
        t->test();
    } else {
        t->data_test(t->data);
    }
    present_kind = &one_descriptor;
}

static void add_one(const char *path, const RingKind *kind, KindTest t)
{
    g_autofree char *name = g_strdup_printf("%s/%s", path, kind->name);

    t.kind = kind;
    qtest_add_data_func_full(name, g_memdup2(&t, sizeof(t)), run_kind_test,
                             g_free);
}

static void add(const char *path, KindTest t)
{
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        add_one(path, &kinds[i], t);
    }
}

void nic_add(const char *path, GTestFunc test)
{
    add(path, (KindTest) { .test = test });
}

void nic_add_of(const char *path, bool in_order, GTestFunc test)
{
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (kinds[i].in_order == in_order) {
            add_one(path, &kinds[i], (KindTest) { .test = test });
        }
    }
}

void nic_add_data(const char *path, const void *data, GTestDataFunc test)
{
    add(path, (KindTest) { .data_test = test, .data = data });
}

bool nic_in_order(void)
{
    return present_kind->in_order;
}

/* ---- machine */

/* Such as ",vhost=on": the same is expected of the background there. */
static const char *tap_options(void)
{
    return g_getenv("IDLETIME_TAP_OPTIONS") ?: "";
}

TestNic *machine_nic_on(TestMachine *m, const char *id, unsigned slot,
                        const char *netdev, const char *options)
{
    TestNic *nic = g_new0(TestNic, 1);

    nic->m = m;
    nic->id = g_strdup(id);
    nic->slot = slot;
    nic->host = -1;
    nic->kind = present_kind;
    machine_args(m, "-netdev %s%s,id=%s-net", netdev,
                 g_str_has_prefix(netdev, "tap,") ? tap_options() : "", id);
    machine_args(m, "-device virtio-net-pci,id=%s,netdev=%s-net,addr=0x%x,"
                 "ioeventfd=off%s%s%s", id, id, nic->slot,
                 nic->kind->options, *options ? "," : "", options);
    return nic;
}

TestNic *machine_nic_at(TestMachine *m, const char *id, unsigned slot,
                        const char *options)
{
    g_autofree char *netdev = NULL;
    TestNic *nic;
    int pair[2];

    g_assert_cmpint(socketpair(PF_UNIX, SOCK_STREAM, 0, pair), ==, 0);
    netdev = g_strdup_printf("socket,fd=%d", pair[1]);
    nic = machine_nic_on(m, id, slot, netdev, options);
    nic->host = pair[0];
    g_unix_set_fd_nonblocking(nic->host, true, NULL);
    fcntl(nic->host, F_SETFD, FD_CLOEXEC);
    return nic;
}

TestNic *machine_nic(TestMachine *m, const char *id, const char *options)
{
    static unsigned count;

    return machine_nic_at(m, id, FIRST_SLOT + count++ % 8, options);
}

void nic_resource(TestMachine *m, const char *options)
{
    g_autofree char *all = g_strdup_printf("interval-us=%d,max-inflight=1%s%s",
                                           INTERVAL_US, *options ? "," : "",
                                           options);

    machine_resource(m, RESOURCE, all);
}

TestMachine *nic_pair(const char *resource_options, TestNic **fg,
                      TestNic **bg)
{
    TestMachine *m = machine_new();

    nic_resource(m, resource_options);
    *fg = machine_nic(m, "fg", "idletime=" RESOURCE);
    *bg = machine_nic(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    machine_start(m);
    nic_init(*fg);
    nic_init(*bg);
    return m;
}

void nic_forget(TestNic *nic)
{
    TestRing *ring[] = { &nic->rx, &nic->tx };

    for (unsigned i = 0; i < ARRAY_SIZE(ring); i++) {
        if (ring[i]->vq && nic->adopted) {
            g_free(container_of(ring[i]->vq, QVirtQueuePCI, vq));
        } else if (ring[i]->vq) {
            qvirtqueue_cleanup(nic->pci->vdev.bus, ring[i]->vq,
                               &nic->m->alloc);
        }
        ring[i]->vq = NULL;
    }
    if (nic->pci) {
        qvirtio_pci_destructor(&nic->pci->obj);
        g_free(nic->pci);
        nic->pci = NULL;
    }
}

void nic_free(TestNic *nic)
{
    nic_forget(nic);
    if (nic->host >= 0) {
        close(nic->host);
    }
    g_free(nic->id);
    g_free(nic);
}

void nic_init(TestNic *nic)
{
    QPCIAddress address = { .devfn = QPCI_DEVFN(nic->slot, 0) };
    uint64_t unwanted = QVIRTIO_F_BAD_FEATURE |
                        (1ull << VIRTIO_RING_F_INDIRECT_DESC) |
                        (1ull << VIRTIO_RING_F_EVENT_IDX) |
                        (1ull << VIRTIO_NET_F_CTRL_VQ) |
                        (1ull << VIRTIO_NET_F_MQ);

    if (nic->kind->indirect) {
        unwanted &= ~(1ull << VIRTIO_RING_F_INDIRECT_DESC);
    }
    nic_forget(nic);
    nic->pci = virtio_pci_new(nic->m->bus, &address);
    g_assert_nonnull(nic->pci);
    qvirtio_pci_device_enable(nic->pci);
    qvirtio_start_device(&nic->pci->vdev);
    qvirtio_set_features(&nic->pci->vdev,
                         qvirtio_get_features(&nic->pci->vdev) &
                         ~(unwanted & ~nic->more_features));
    ring_setup(&nic->rx, nic->m->qts, &nic->pci->vdev, &nic->m->alloc, 0);
    ring_setup(&nic->tx, nic->m->qts, &nic->pci->vdev, &nic->m->alloc, TX);
    qvirtio_set_driver_ok(&nic->pci->vdev);
}

static void adopt(TestNic *nic, TestRing *ring, const TestRing *from)
{
    QVirtQueuePCI *vq = g_memdup2(container_of(from->vq, QVirtQueuePCI, vq),
                                  sizeof(*vq));

    vq->vq.vdev = &nic->pci->vdev;
    *ring = *from;
    ring->qts = nic->m->qts;
    ring->alloc = &nic->m->alloc;
    ring->vq = &vq->vq;
}

void nic_adopt(TestNic *nic, const TestNic *from)
{
    nic->pci = g_memdup2(from->pci, sizeof(*from->pci));
    nic->pci->pdev = g_memdup2(from->pci->pdev, sizeof(*from->pci->pdev));
    nic->pci->pdev->bus = nic->m->bus;
    adopt(nic, &nic->rx, &from->rx);
    adopt(nic, &nic->tx, &from->tx);
    nic->adopted = true;
}

void nic_unplug(TestNic *nic)
{
    TestDisk device = {
        .m = nic->m, .id = nic->id, .slot = nic->slot,
        .requests = g_ptr_array_new(),
    };

    disk_unplug(&device);
    g_ptr_array_free(device.requests, true);
    nic_forget(nic);
}

/*
 * A bottom half that was scheduled before a monitor command runs before its
 * answer; what it schedules itself, before the next one's.
 */
void nic_settle(TestMachine *m)
{
    for (int i = 0; i < 4; i++) {
        qtest_qmp_assert_success(m->qts, "{'execute': 'query-status'}");
    }
}

/* ---- out */

static uint16_t ip_checksum(const uint8_t *byte, size_t size)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < size; i += 2) {
        sum += lduw_be_p(byte + i);
    }
    sum = (sum >> 16) + (sum & 0xffff);
    return ~(sum + (sum >> 16));
}

size_t packet_make(const TestPacket *packet, uint8_t *buffer)
{
    size_t payload = MAX(packet->payload, 4);
    uint8_t *ip = buffer + ETHERNET;
    uint8_t *udp = ip + IP4;

    memset(buffer, 0, ETHERNET + IP4 + UDP + payload);
    memcpy(buffer, "\x52\x54\x00\x00\x00\x01\x52\x54\x00\x00\x00\x02", 12);
    if (packet->to_all) {
        memset(buffer, 0xff, 6);
    }
    stw_be_p(buffer + 12, 0x0800);
    ip[0] = 0x45;
    ip[1] = packet->dscp << 2;
    stw_be_p(ip + 2, IP4 + UDP + payload);
    ip[8] = 64;
    ip[9] = IPPROTO_UDP;
    stl_be_p(ip + 12, 0x0a000001);
    stl_be_p(ip + 16, 0x0a000002);
    stw_be_p(ip + 10, ip_checksum(ip, IP4));
    stw_be_p(udp, packet->port ?: 1000);
    stw_be_p(udp + 2, packet->dest_port ?: 9);
    stw_be_p(udp + 4, UDP + payload);
    stl_be_p(udp + UDP, packet->number);
    return ETHERNET + IP4 + UDP + payload;
}

uint64_t nic_send_on(TestNic *nic, TestRing *ring, const void *data,
                     size_t size, size_t split)
{
    uint64_t addr = guest_alloc(&nic->m->alloc, size);
    g_autofree RingPart *part = g_new0(RingPart, size + 1);
    size_t header = nic->kind->chained ? NIC_HEADER : 0;
    unsigned n = 0;

    qtest_bufwrite(nic->m->qts, addr, data, size);
    for (size_t at = 0, step; at < size; at += step) {
        step = split ?: at < header ? header : size;
        step = MIN(step, size - at);
        part[n++] = (RingPart) { .addr = addr + at, .size = step };
    }
    ring_send(ring, part, n);
    nic_settle(nic->m);
    return addr;
}

void nic_send_whole(TestNic *nic, const void *data, size_t size)
{
    nic_send_on(nic, &nic->tx, data, size, 0);
}

void nic_send_raw(TestNic *nic, const void *data, size_t size, size_t split)
{
    g_autofree uint8_t *whole = g_malloc0(NIC_HEADER + size);

    if (size) {
        memcpy(whole + NIC_HEADER, data, size);
    }
    nic_send_on(nic, &nic->tx, whole, NIC_HEADER + size, split);
}

void nic_send(TestNic *nic, TestPacket packet)
{
    uint8_t *buffer = g_malloc(ETHERNET + IP4 + UDP + packet.payload + 4);
    size_t size = packet_make(&packet, buffer);

    nic_send_raw(nic, buffer, size, 0);
    g_free(buffer);
}

static bool read_all(int fd, void *buffer, size_t size)
{
    size_t got = 0;

    while (got < size) {
        ssize_t n = read(fd, (uint8_t *)buffer + got, size - got);

        if (n < 0 && errno == EAGAIN && !got) {
            return false;
        }
        g_assert_true(n > 0 || errno == EAGAIN || errno == EINTR);
        got += MAX(n, 0);
    }
    return true;
}

size_t nic_got(TestNic *nic, uint8_t *buffer, size_t size)
{
    uint32_t length;

    if (!read_all(nic->host, &length, sizeof(length))) {
        return 0;
    }
    length = be32_to_cpu(length);
    g_assert_cmpint(length, >, 0);
    g_assert_cmpint(length, <=, size);
    while (!read_all(nic->host, buffer, length)) {
        /* The rest is on its way. */
    }
    return length;
}

int64_t nic_next(TestNic *nic)
{
    g_autofree uint8_t *buffer = g_malloc(PACKET_MAX);
    size_t size = nic_got(nic, buffer, PACKET_MAX);

    /* A device that has moved announces itself. */
    while (size && lduw_be_p(buffer + 12) == ETH_P_RARP) {
        size = nic_got(nic, buffer, PACKET_MAX);
    }
    return size < ETHERNET + IP4 + UDP + 4 ? -1 :
           (int64_t)ldl_be_p(buffer + ETHERNET + IP4 + UDP);
}

unsigned nic_returned(TestNic *nic)
{
    return ring_returned(&nic->tx);
}

/* ---- in */

void nic_receive(TestNic *nic, TestPacket packet)
{
    uint8_t buffer[2048];
    size_t size = packet_make(&packet, buffer);
    uint32_t length = cpu_to_be32(size);
    RingPart part = {
        .addr = guest_alloc(&nic->m->alloc, sizeof(buffer)),
        .size = sizeof(buffer),
        .written = true,
    };
    unsigned before = ring_returned(&nic->rx);
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;

    ring_send(&nic->rx, &part, 1);
    g_assert_cmpint(write(nic->host, &length, sizeof(length)), ==,
                    sizeof(length));
    g_assert_cmpint(write(nic->host, buffer, size), ==, size);
    while (ring_returned(&nic->rx) == before) {
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
    }
}

/* ---- monitor */

int64_t nic_number(TestNic *nic, const char *member)
{
    TestDisk device = { .m = nic->m, .id = nic->id };

    return disk_number(&device, member);
}

char *nic_service(TestNic *nic)
{
    /* The one device of the one resource. */
    return machine_string(nic->m, RESOURCE, "devices.0.service");
}

void nic_set_class(TestNic *nic, const char *class)
{
    machine_ok(nic->m, "idletime-set", "{'device': %s, 'class': %s}", nic->id,
               class);
    nic_settle(nic->m);
}
