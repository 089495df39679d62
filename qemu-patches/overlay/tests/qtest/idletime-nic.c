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

/* ---- machine */

TestNic *machine_nic_on(TestMachine *m, const char *id, unsigned slot,
                        const char *netdev, const char *options)
{
    TestNic *nic = g_new0(TestNic, 1);

    nic->m = m;
    nic->id = g_strdup(id);
    nic->slot = slot;
    nic->host = -1;
    machine_args(m, "-netdev %s,id=%s-net", netdev, id);
    machine_args(m, "-device virtio-net-pci,id=%s,netdev=%s-net,addr=0x%x,"
                 "ioeventfd=off%s%s", id, id, nic->slot, *options ? "," : "",
                 options);
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
    QVirtQueue *vq[] = { nic->rx, nic->tx };

    for (unsigned i = 0; i < ARRAY_SIZE(vq); i++) {
        if (vq[i] && nic->adopted) {
            g_free(container_of(vq[i], QVirtQueuePCI, vq));
        } else if (vq[i]) {
            qvirtqueue_cleanup(nic->pci->vdev.bus, vq[i], &nic->m->alloc);
        }
    }
    nic->rx = nic->tx = NULL;
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
                        (1ull << VIRTIO_NET_F_CTRL_VQ);

    nic_forget(nic);
    nic->pci = virtio_pci_new(nic->m->bus, &address);
    g_assert_nonnull(nic->pci);
    qvirtio_pci_device_enable(nic->pci);
    qvirtio_start_device(&nic->pci->vdev);
    qvirtio_set_features(&nic->pci->vdev,
                         qvirtio_get_features(&nic->pci->vdev) &
                         ~(unwanted & ~nic->more_features));
    nic->rx = qvirtqueue_setup(&nic->pci->vdev, &nic->m->alloc, 0);
    nic->tx = qvirtqueue_setup(&nic->pci->vdev, &nic->m->alloc, TX);
    qvirtio_set_driver_ok(&nic->pci->vdev);
}

static QVirtQueue *adopt(TestNic *nic, QVirtQueue *from)
{
    QVirtQueuePCI *vq = g_memdup2(container_of(from, QVirtQueuePCI, vq),
                                  sizeof(*vq));

    vq->vq.vdev = &nic->pci->vdev;
    return &vq->vq;
}

void nic_adopt(TestNic *nic, const TestNic *from)
{
    nic->pci = g_memdup2(from->pci, sizeof(*from->pci));
    nic->pci->pdev = g_memdup2(from->pci->pdev, sizeof(*from->pci->pdev));
    nic->pci->pdev->bus = nic->m->bus;
    nic->rx = adopt(nic, from->rx);
    nic->tx = adopt(nic, from->tx);
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

void nic_send_whole(TestNic *nic, const void *data, size_t size)
{
    QTestState *qts = nic->m->qts;
    uint64_t addr = guest_alloc(&nic->m->alloc, size);
    uint32_t head;

    qtest_bufwrite(qts, addr, data, size);
    head = qvirtqueue_add(qts, nic->tx, addr, size, false, false);
    qvirtqueue_kick(qts, &nic->pci->vdev, nic->tx, head);
    nic_settle(nic->m);
}

void nic_send_raw(TestNic *nic, const void *data, size_t size, size_t split)
{
    QTestState *qts = nic->m->qts;
    uint64_t addr = guest_alloc(&nic->m->alloc, NIC_HEADER + size);
    size_t total = NIC_HEADER + size;
    size_t step = split ?: total;
    uint32_t head = 0;

    if (nic->tx->num_free < total / step + 1) {
        qvirtqueue_reset_pool(nic->tx);
    }
    qtest_memset(qts, addr, 0, NIC_HEADER);
    if (size) {
        qtest_bufwrite(qts, addr + NIC_HEADER, data, size);
    }
    for (size_t at = 0; at < total; at += step) {
        uint32_t d = qvirtqueue_add(qts, nic->tx, addr + at,
                                    MIN(step, total - at), false,
                                    at + step < total);

        head = at ? head : d;
    }
    qvirtqueue_kick(qts, &nic->pci->vdev, nic->tx, head);
    nic_settle(nic->m);
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
    /* The index is the second word of the used ring. */
    return (uint16_t)qtest_readw(nic->m->qts, nic->tx->used + 2);
}

/* ---- in */

void nic_receive(TestNic *nic, TestPacket packet)
{
    uint8_t buffer[2048];
    size_t size = packet_make(&packet, buffer);
    uint32_t length = cpu_to_be32(size);
    uint64_t addr = guest_alloc(&nic->m->alloc, 2048);
    uint32_t head = qvirtqueue_add(nic->m->qts, nic->rx, addr, 2048, true,
                                   false);

    qvirtqueue_kick(nic->m->qts, &nic->pci->vdev, nic->rx, head);
    g_assert_cmpint(write(nic->host, &length, sizeof(length)), ==,
                    sizeof(length));
    g_assert_cmpint(write(nic->host, buffer, size), ==, size);
    qvirtio_wait_used_elem(nic->m->qts, &nic->pci->vdev, nic->rx, head, NULL,
                           15 * G_USEC_PER_SEC);
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
