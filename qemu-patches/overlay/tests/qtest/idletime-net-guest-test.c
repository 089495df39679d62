/*
 * Idletime machine tests: a device whose guest marks its packets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "idletime-nic.h"

/* virtio-net-idletime-ask.c: a quarter of tx_queue_size */
#define QUARTER         64
#define FULL_DEADLINE   (10 * MS)
#define GUEST           "idletime=" RESOURCE ",idletime-class=guest"

static void step(TestMachine *m, int64_t us)
{
    machine_step_us(m, us);
    nic_settle(m);
}

/* "fg", and "vm" of class guest. */
static TestMachine *guest_pair(const char *resource, const char *options,
                               TestNic **fg, TestNic **vm)
{
    TestMachine *m = machine_new();

    nic_resource(m, resource);
    *fg = machine_nic(m, "fg", "idletime=" RESOURCE);
    *vm = machine_nic(m, "vm", options);
    machine_start(m);
    nic_init(*fg);
    nic_init(*vm);
    return m;
}

static void done(TestMachine *m, TestNic *fg, TestNic *vm)
{
    nic_free(fg);
    nic_free(vm);
    machine_free(m);
}

/* Background of flow 1000, foreground of flow 2000. */
static void background(TestNic *nic, uint32_t number)
{
    nic_send(nic, (TestPacket) { .dscp = DSCP_LE, .number = number });
}

static void plain(TestNic *nic, uint32_t number)
{
    nic_send(nic, (TestPacket) { .port = 2000, .number = number });
}

static void test_pass(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);

    plain(vm, 1);
    background(vm, 2);
    plain(vm, 3);
    background(vm, 4);
    plain(vm, 5);
    assert_left(vm, 1, 3, 5);
    g_assert_cmpint(nic_number(vm, "held"), ==, 2);
    g_assert_cmpint(nic_number(vm, "foreground.requests"), ==, 3);
    step(m, INTERVAL_US - 1);
    assert_none_left(vm);
    step(m, 1);
    assert_left(vm, 2, 4);
    g_assert_cmpint(nic_number(vm, "background.requests"), ==, 2);
    g_assert_cmpint(nic_number(vm, "held"), ==, 0);
    done(m, fg, vm);
}

static void test_idle(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);

    background(vm, 1);
    assert_left(vm, 1);
    /* Its own foreground counts as anybody's. */
    plain(vm, 2);
    background(vm, 3);
    assert_left(vm, 2);
    step(m, INTERVAL_US);
    assert_left(vm, 3);
    done(m, fg, vm);
}

/* Held packets of the flow leave before its foreground packet. */
static void test_same_flow(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);

    plain(fg, 0);
    background(vm, 1);
    nic_send(vm, (TestPacket) { .dscp = DSCP_LE, .port = 3000, .number = 2 });
    background(vm, 3);
    assert_none_left(vm);
    nic_send(vm, (TestPacket) { .number = 4 });
    assert_left(vm, 1, 3, 4);
    g_assert_cmpint(nic_number(vm, "promotions.flow"), ==, 2);
    g_assert_cmpint(nic_number(vm, "held"), ==, 1);
    step(m, INTERVAL_US);
    assert_left(vm, 2);
    done(m, fg, vm);
}

static void test_dscp_list(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST ",idletime-dscp=8-9,,63,,9",
                                &fg, &vm);
    g_autofree char *usual = machine_string(m, RESOURCE, "devices.0.dscp");
    g_autofree char *list = machine_string(m, RESOURCE, "devices.1.dscp");

    g_assert_cmpstr(usual, ==, "1");
    g_assert_cmpstr(list, ==, "8-9,63");
    plain(fg, 0);
    for (int dscp = 0; dscp < 64; dscp++) {
        nic_send(vm, (TestPacket) { .dscp = dscp, .port = 4000 + dscp,
                                    .number = dscp });
    }
    for (int dscp = 0; dscp < 63; dscp++) {
        if (dscp != 8 && dscp != 9) {
            g_assert_cmpint(nic_next(vm), ==, dscp);
        }
    }
    assert_none_left(vm);
    step(m, INTERVAL_US);
    assert_left(vm, 8, 9, 63);
    done(m, fg, vm);
}

/* Headers in pieces of @split bytes, behind a tag. */
static void test_split(void)
{
    static const size_t split[] = { 1, 2, 7, 12, 13, 26, 30 };
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);
    TestPacket packet = { .dscp = DSCP_LE, .number = 7 };
    uint8_t frame[128], tagged[128];
    size_t size = packet_make(&packet, frame);

    memcpy(tagged, frame, 12);
    stl_be_p(tagged + 12, 0x81000005);
    memcpy(tagged + 16, frame + 12, size - 12);
    for (unsigned i = 0; i < ARRAY_SIZE(split); i++) {
        plain(fg, 0);
        nic_send_raw(vm, frame, size, split[i]);
        nic_send_raw(vm, tagged, size + 4, split[i]);
        assert_none_left(vm);
        step(m, INTERVAL_US);
        g_assert_cmpint(nic_got(vm, frame, sizeof(frame)), ==, size);
        g_assert_cmpint(nic_got(vm, frame, sizeof(frame)), ==, size + 4);
        memmove(frame + 12, frame + 16, size - 12);
    }
    done(m, fg, vm);
}

static void test_never_held(void)
{
    static const uint16_t types[] = { 0x0806, 0x88cc, 0x0000 };
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);
    TestPacket packet = { .dscp = DSCP_LE };
    uint8_t frame[128], got[128];
    size_t size = packet_make(&packet, frame);

    plain(fg, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
        stw_be_p(frame + 12, types[i]);
        nic_send_raw(vm, frame, size, 0);
        g_assert_cmpint(nic_got(vm, got, sizeof(got)), ==, size);
    }
    /* DHCP, marked; and a frame cut off in the IP header. */
    nic_send(vm, (TestPacket) { .dscp = DSCP_LE, .port = 68, .dest_port = 67 });
    g_assert_cmpint(nic_got(vm, got, sizeof(got)), ==, size);
    packet_make(&packet, frame);
    nic_send_raw(vm, frame, ETHERNET + 19, 0);
    g_assert_cmpint(nic_got(vm, got, sizeof(got)), ==, ETHERNET + 19);
    g_assert_cmpint(nic_number(vm, "foreground.requests"), ==, 5);
    done(m, fg, vm);
}

static void test_received(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);

    nic_receive(vm, (TestPacket) { .dscp = DSCP_LE });
    background(vm, 1);
    assert_left(vm, 1);
    nic_receive(vm, (TestPacket) { .number = 2 });
    background(vm, 3);
    assert_none_left(vm);
    step(m, INTERVAL_US);
    assert_left(vm, 3);
    done(m, fg, vm);
}

/*
 * Foreground passes however much is held; from a quarter of the ring on the
 * deadline is short.
 */
static void test_full(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);

    plain(fg, 0);
    for (int i = 0; i < QUARTER + 6; i++) {
        background(vm, i);
    }
    plain(vm, 1000);
    g_assert_cmpint(nic_number(vm, "held"), ==, QUARTER + 6);
    assert_left(vm, 1000);
    for (int i = 0; i < 10; i++) {
        step(m, FULL_DEADLINE - 1);
        plain(fg, 0);
        assert_none_left(vm);
        step(m, 1);
        plain(fg, 0);
        /* With the seventh it is less than a quarter. */
        g_assert_cmpint(nic_next(vm), ==, i < 7 ? i : -1);
        assert_none_left(vm);
    }
    done(m, fg, vm);
}

/* A driver that waits for most of its ring hears of each place then. */
static void test_room(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);
    const QVirtioBus *bus;
    QVirtQueue *vq;

    vm->more_features = 1ull << VIRTIO_RING_F_EVENT_IDX;
    nic_init(vm);
    vq = vm->tx.vq;
    bus = vm->pci->vdev.bus;
    qpci_msix_enable(vm->pci->pdev);
    qvirtqueue_pci_msix_setup(vm->pci, container_of(vq, QVirtQueuePCI, vq),
                              &m->alloc, 1);
    qvirtqueue_set_used_event(m->qts, vq, vq->size * 3 / 4);
    plain(vm, 1);
    assert_left(vm, 1);
    /* The very first is told. */
    g_assert_true(bus->get_queue_isr_status(&vm->pci->vdev, vq));
    for (int i = 0; i < QUARTER - 1; i++) {
        background(vm, i);
    }
    plain(vm, 2);
    assert_left(vm, 2);
    g_assert_false(bus->get_queue_isr_status(&vm->pci->vdev, vq));
    background(vm, 0);
    plain(vm, 3);
    assert_left(vm, 3);
    g_assert_true(bus->get_queue_isr_status(&vm->pci->vdev, vq));
    qpci_msix_disable(vm->pci->pdev);
    done(m, fg, vm);
}

static void test_class_change(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);

    plain(fg, 0);
    background(vm, 1);
    background(vm, 2);
    nic_set_class(vm, "foreground");
    assert_left(vm, 1, 2);
    g_assert_cmpint(nic_number(vm, "promotions.class-change"), ==, 2);
    nic_set_class(vm, "guest");
    background(vm, 3);
    background(vm, 4);
    /* What is held goes before what stays in the ring. */
    nic_set_class(vm, "background");
    plain(vm, 5);
    assert_none_left(vm);
    step(m, INTERVAL_US);
    assert_left(vm, 3, 4, 5);
    done(m, fg, vm);
}

/*
 * Packets come back in the order of the ring: foreground would come back
 * behind what is held, so that leaves too.
 */
static void test_in_order(void)
{
    TestNic *fg, *vm;
    TestMachine *m = guest_pair("", GUEST, &fg, &vm);

    plain(fg, 0);
    background(vm, 1);
    background(vm, 2);
    assert_none_left(vm);
    plain(vm, 3);
    assert_left(vm, 3, 1, 2);
    g_assert_cmpint(nic_returned(vm), ==, 3);
    g_assert_cmpint(nic_number(vm, "promotions.ring"), ==, 2);
    g_assert_cmpint(nic_number(vm, "held"), ==, 0);
    /* Foreground of the same flow leaves behind them, as ever. */
    background(vm, 4);
    nic_send(vm, (TestPacket) { .number = 5 });
    assert_left(vm, 4, 5);
    g_assert_cmpint(nic_returned(vm), ==, 5);
    done(m, fg, vm);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nic_add_of("idletime/net-guest/pass", false, test_pass);
    nic_add_of("idletime/net-guest/in-order", true, test_in_order);
    nic_add("idletime/net-guest/idle", test_idle);
    nic_add_of("idletime/net-guest/same-flow", false, test_same_flow);
    nic_add_of("idletime/net-guest/dscp-list", false, test_dscp_list);
    nic_add("idletime/net-guest/split", test_split);
    nic_add("idletime/net-guest/never-held", test_never_held);
    nic_add("idletime/net-guest/received", test_received);
    nic_add_of("idletime/net-guest/full", false, test_full);
    qtest_add_func("idletime/net-guest/room", test_room);
    nic_add("idletime/net-guest/class-change", test_class_change);
    return g_test_run();
}
