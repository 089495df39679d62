/*
 * Idletime machine tests: a network device with vhost becomes background, and
 * foreground again.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime-vhost.h"

#define ON              "idletime=" RESOURCE ",idletime-class="
#define MANY            200

/* ---- foreground, background, and back */

static void test_path(const void *class)
{
    VhostBench b = vhost_bench(LONG_INTERVAL, "");

    assert_by_vhost(&b, 1);
    nic_attach(b.vm, "foreground");
    g_assert_cmpint(nic_number(b.vm, "seen"), ==, 0);
    assert_by_vhost(&b, 2);
    g_assert_cmpint(nic_number(b.vm, "foreground.requests"), ==, 0);

    nic_set_class(b.vm, class);
    assert_by_qemu(&b, 10);
    vhost_step(&b, LONG_INTERVAL_US);
    assert_left_held(&b, 10);
    assert_by_qemu(&b, 20);

    /* Held ones leave in order, before those that vhost sends. */
    nic_set_class(b.vm, "foreground");
    assert_left_held(&b, 20);
    g_assert_cmpint(nic_number(b.vm, "seen"), ==, 0);
    g_assert_cmpint(nic_number(b.vm, "held"), ==, 0);
    assert_by_vhost(&b, 30);

    nic_set_class(b.vm, class);
    assert_by_qemu(&b, 40);
    nic_detach(b.vm);
    nic_await_detached(b.vm);
    assert_left_held(&b, 40);
    assert_by_vhost(&b, 50);
    vhost_await_returned(&b, 4 + 3 * NIC_HELD);
    vhost_done(&b);
}

static void test_properties(void)
{
    VhostBench b = vhost_bench(LONG_INTERVAL, ON "background");

    assert_by_qemu(&b, 1);
    nic_detach(b.vm);
    nic_await_detached(b.vm);
    assert_left_held(&b, 1);
    assert_by_vhost(&b, 10);
    vhost_done(&b);
    b = vhost_bench(LONG_INTERVAL, ON "foreground");
    g_assert_cmpint(nic_number(b.vm, "seen"), ==, 0);
    assert_by_vhost(&b, 1);
    vhost_done(&b);
}

/* ---- nothing is lost on the way */

static void test_none_lost_out(const void *class)
{
    VhostBench b = vhost_bench("interval-us=0", "");

    nic_attach(b.vm, "foreground");
    for (int i = 0; i < MANY; i++) {
        vhost_send(&b, i);
        if (i % 10 == 5) {
            nic_set_class(b.vm, i / 10 % 2 ? "foreground" : class);
        }
    }
    for (int i = 0; i < MANY; i++) {
        g_assert_cmpint(vhost_awaited(&b), ==, i);
    }
    vhost_await_returned(&b, MANY);
    vhost_done(&b);
}

static void post_buffers(TestNic *nic, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        RingPart part = {
            .addr = guest_alloc(&nic->m->alloc, 2048),
            .size = 2048,
            .written = true,
        };

        ring_send(&nic->rx, &part, 1);
    }
}

/* The host sends by the tap while the path changes. */
static void test_none_lost_in(void)
{
    int64_t end_us = g_get_monotonic_time() + 60 * G_USEC_PER_SEC;
    VhostBench b = vhost_bench("interval-us=0", "");
    uint8_t frame[2048];
    unsigned got = 0;

    nic_attach(b.vm, "foreground");
    post_buffers(b.vm, MANY);
    for (int i = 0; i < MANY; i++) {
        size_t size = packet_make(&(TestPacket) { .number = i }, frame);

        g_assert_cmpint(write(b.watched, frame, size), ==, size);
        if (i % 10 == 5) {
            nic_set_class(b.vm, i / 10 % 2 ? "foreground" : "background");
        }
    }
    while (got < MANY) {
        got = ring_returned(&b.vm->rx);
        nic_settle(b.m);
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
    }
    vhost_done(&b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!vhost_possible()) {
        return 0;
    }
    qtest_add_data_func("idletime/net-vhost/path/background", "background",
                        test_path);
    qtest_add_data_func("idletime/net-vhost/path/guest", "guest", test_path);
    qtest_add_func("idletime/net-vhost/properties", test_properties);
    qtest_add_data_func("idletime/net-vhost/none-lost/background",
                        "background", test_none_lost_out);
    qtest_add_data_func("idletime/net-vhost/none-lost/guest", "guest",
                        test_none_lost_out);
    qtest_add_func("idletime/net-vhost/none-lost/in", test_none_lost_in);
    return g_test_run();
}
