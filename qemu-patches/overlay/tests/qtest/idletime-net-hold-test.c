/*
 * Idletime machine tests: when held packets are released.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Times in the comments are milliseconds after the last foreground event.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "idletime-nic.h"

/* virtio-net-idletime-life.c */
#define DEADLINE_US     (100 * MS)
/* resource.c */
#define UPLINK_US       (5 * MS)

static void step(TestMachine *m, int64_t us)
{
    machine_step_us(m, us);
    nic_settle(m);
}

static void done(TestMachine *m, TestNic *fg, TestNic *bg)
{
    nic_free(fg);
    nic_free(bg);
    machine_free(m);
}

static void number(TestNic *nic, uint32_t n)
{
    nic_send(nic, (TestPacket) { .number = n });
}

static void test_idle(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("", &fg, &bg);

    number(bg, 1);
    assert_left(bg, 1);
    g_assert_cmpint(nic_number(bg, "held"), ==, 0);
    g_assert_cmpint(nic_number(bg, "background.requests"), ==, 1);
    /* 14 + 20 + 8 + 4 */
    g_assert_cmpint(nic_number(bg, "background.bytes"), ==, 46);
    g_assert_cmpint(nic_number(bg, "foreground.requests"), ==, 0);
    done(m, fg, bg);
}

static void test_interval(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("", &fg, &bg);

    number(fg, 1);
    assert_left(fg, 1);
    g_assert_cmpint(nic_number(fg, "foreground.bytes"), ==, 46);
    number(bg, 2);
    number(bg, 3);
    step(m, INTERVAL_US - 1);
    assert_none_left(bg);
    g_assert_cmpint(nic_returned(bg), ==, 0);
    step(m, 1);
    assert_left(bg, 2, 3);
    g_assert_cmpint(nic_returned(bg), ==, 2);
    g_assert_cmpint(nic_number(bg, "hold.max-us"), ==, INTERVAL_US);
    done(m, fg, bg);
}

/* What the operator did not set is the standard of uplinks. */
static void test_standard(void)
{
    TestMachine *m = machine_new();
    TestNic *fg, *bg;

    machine_resource(m, RESOURCE, "auto=on");
    machine_resource(m, "given", "interval-us=20000,max-inflight=1");
    fg = machine_nic(m, "fg", "idletime=" RESOURCE);
    bg = machine_nic(m, "bg", "idletime=" RESOURCE
                     ",idletime-class=background");
    machine_args(m, "-netdev hubport,id=spare,hubid=7 -device virtio-net-pci,"
                 "netdev=spare,idletime=given");
    machine_start(m);
    nic_init(fg);
    nic_init(bg);
    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==, UPLINK_US);
    g_assert_cmpint(machine_number(m, RESOURCE, "max-inflight"), ==, 2);
    g_assert_cmpint(machine_number(m, "given", "interval-us"), ==, 20000);
    g_assert_cmpint(machine_number(m, "given", "max-inflight"), ==, 1);
    number(fg, 1);
    number(bg, 2);
    step(m, UPLINK_US - 1);
    assert_none_left(bg);
    step(m, 1);
    assert_left(bg, 2);
    done(m, fg, bg);
}

/*
 * 10 Mbit/s: a full packet is on the link for 1538 * 8 / 10 us; less, by the
 * clock, as the link was idle before.
 */
#define PACKET_US       1231
#define CREDIT_US       250

static int64_t interval_after(TestMachine *m, TestNic *bg, int packets)
{
    for (int i = 0; i < packets; i++) {
        nic_send(bg, (TestPacket) { .payload = 1514 - ETHERNET - IP4 - UDP });
        step(m, PACKET_US);
    }
    return machine_number(m, RESOURCE, "interval-us");
}

/* Four packets' time. */
static void test_auto(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("auto=on,rate-bps=10000000", &fg, &bg);
    int64_t us;

    g_assert_cmpint(interval_after(m, bg, 15), ==, INTERVAL_US);
    us = interval_after(m, bg, 1);
    g_assert_cmpint(us, >, 4 * (PACKET_US - CREDIT_US - 1));
    g_assert_cmpint(us, <=, 4 * (PACKET_US - CREDIT_US));
    number(fg, 1);
    number(bg, 2);
    for (int i = 0; i < 16; i++) {
        g_assert_cmpint(nic_next(bg), ==, 0);
    }
    step(m, us - 1);
    assert_none_left(bg);
    /* It is not a whole number of microseconds. */
    step(m, 2);
    assert_left(bg, 2);
    done(m, fg, bg);
}

static void test_received(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("", &fg, &bg);

    nic_receive(fg, (TestPacket) { .number = 1 });
    number(bg, 2);
    step(m, INTERVAL_US - 1);
    assert_none_left(bg);
    step(m, 1);
    assert_left(bg, 2);
    /* What the background receives holds nobody. */
    nic_receive(bg, (TestPacket) { .number = 3 });
    number(bg, 4);
    assert_left(bg, 4);
    /* Nor what is sent to all: anybody could hold all others by it. */
    nic_receive(fg, (TestPacket) { .number = 5, .to_all = true });
    number(bg, 6);
    assert_left(bg, 6);
    done(m, fg, bg);
}

/* One packet at the head each 100 ms, while the foreground goes on. */
static void test_deadline(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("", &fg, &bg);

    number(fg, 0);
    number(bg, 1);
    number(bg, 2);
    for (int ms = 0; ms < 199; ms++) {
        step(m, MS);
        number(fg, 0);
        if (ms == 98) {
            assert_none_left(bg);
        }
    }
    assert_left(bg, 1);
    g_assert_cmpint(nic_number(bg, "promotions.deadline"), ==, 1);
    done(m, fg, bg);
}

static void test_class_change(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("", &fg, &bg);

    number(fg, 0);
    number(bg, 1);
    assert_none_left(bg);
    nic_set_class(bg, "foreground");
    assert_left(bg, 1);
    number(bg, 2);
    assert_left(bg, 2);
    nic_set_class(bg, "background");
    number(bg, 3);
    assert_none_left(bg);
    step(m, INTERVAL_US);
    assert_left(bg, 3);
    done(m, fg, bg);
}

/* With a rate, what the foreground sent has to be sent first. */
static void test_foreground_bytes(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("interval-us=0,rate-bps=800000", &fg, &bg);

    number(bg, 0);
    assert_left(bg, 0);
    /* 46 + 24 bytes at 10 us a byte, less a credit of 250 us. */
    step(m, 700 - 250);
    /* The first look; one that finds the clock at its first time counts. */
    number(bg, 1);
    assert_left(bg, 1);
    step(m, 10 * MS);
    nic_send(fg, (TestPacket) { .payload = 1000 });
    /* 14 + 20 + 8 + 1000 = 1042 bytes since the last look, 10 ms ago. */
    number(bg, 2);
    step(m, 420 - 1);
    assert_none_left(bg);
    step(m, 1);
    assert_left(bg, 2);
    done(m, fg, bg);
}

/* It leaves at its deadline though the link is still busy. */
static void test_deadline_while_busy(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("interval-us=0,rate-bps=800000,max-hold-ms=5",
                              &fg, &bg);

    number(bg, 0);
    assert_left(bg, 0);
    step(m, 700 - 250);
    number(bg, 1);
    assert_left(bg, 1);
    step(m, 10 * MS);
    /* 3 * 1042 bytes at 10 us: 31 ms since the last look, 10 ms ago. */
    for (int i = 0; i < 3; i++) {
        nic_send(fg, (TestPacket) { .payload = 1000 });
    }
    number(bg, 2);
    step(m, 5 * MS - 1);
    assert_none_left(bg);
    g_assert_cmpint(nic_number(bg, "promotions.deadline"), ==, 0);
    step(m, 1);
    assert_left(bg, 2);
    done(m, fg, bg);
}

/*
 * What passes has 1 Mbit/s, saved up for 2048 bytes.  A short frame takes
 * 60 + 24 bytes of it: 24 of them pass, and leave 32.
 */
#define PASS_FRAMES     24

static void arp(TestNic *nic, uint32_t n)
{
    uint8_t frame[64];
    size_t size = packet_make(&(TestPacket) { .number = n }, frame);

    stw_be_p(frame + 12, 0x0806);
    nic_send_raw(nic, frame, size, 0);
}

static void assert_pass(TestNic *nic, int frames)
{
    for (int i = 0; i < frames; i++) {
        arp(nic, i);
        g_assert_cmpint(nic_next(nic), ==, i);
    }
}

static void test_allowance(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("", &fg, &bg);

    number(fg, 0);
    assert_pass(bg, PASS_FRAMES);
    g_assert_cmpint(nic_number(bg, "passed"), ==, PASS_FRAMES);
    /* 52 more bytes are 416 us. */
    step(m, 415);
    arp(bg, 100);
    assert_none_left(bg);
    g_assert_cmpint(nic_number(bg, "held"), ==, 1);
    step(m, INTERVAL_US);
    assert_left(bg, 100);
    /* It was longer, but no more is saved up. */
    step(m, 1000 * MS);
    number(fg, 0);
    assert_pass(bg, PASS_FRAMES);
    step(m, 416);
    assert_pass(bg, 1);
    arp(bg, 101);
    assert_none_left(bg);
    done(m, fg, bg);
}

/* Without a tap the rate tells when a packet has left. */
static void test_clock(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("rate-bps=8000000", &fg, &bg);

    /* 70 bytes at 1 us each, less a credit of 250 us: five are free. */
    for (int i = 0; i < 8; i++) {
        number(bg, i);
    }
    /* -250 + 4 * 70 = 30 > 0: the fourth is in service. */
    assert_left(bg, 0, 1, 2, 3);
    g_assert_cmpint(nic_number(bg, "in-service"), ==, 1);
    step(m, 29);
    assert_none_left(bg);
    step(m, 1);
    assert_left(bg, 4);
    step(m, 70);
    assert_left(bg, 5);
    step(m, 140);
    assert_left(bg, 6, 7);
    done(m, fg, bg);
}

/* A frame that is not cut takes its own time, however long it is. */
static void test_clock_of_large(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nic_pair("rate-bps=8000000", &fg, &bg);

    nic_send(bg, (TestPacket) { .payload = 8972, .number = 1 });
    assert_left(bg, 1);
    number(bg, 2);
    /* 14 + 20 + 8 + 8972 + 24 bytes at 1 us each, less a credit of 250 us. */
    step(m, 9038 - 250 - 1);
    assert_none_left(bg);
    step(m, 1);
    assert_left(bg, 2);
    done(m, fg, bg);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nic_add("idletime/net-hold/idle", test_idle);
    nic_add("idletime/net-hold/interval", test_interval);
    nic_add("idletime/net-hold/standard", test_standard);
    nic_add("idletime/net-hold/auto", test_auto);
    nic_add("idletime/net-hold/received", test_received);
    nic_add("idletime/net-hold/deadline", test_deadline);
    nic_add("idletime/net-hold/class-change", test_class_change);
    nic_add("idletime/net-hold/clock", test_clock);
    nic_add("idletime/net-hold/clock-of-large", test_clock_of_large);
    nic_add("idletime/net-hold/foreground-bytes",
                   test_foreground_bytes);
    nic_add("idletime/net-hold/deadline-while-busy",
            test_deadline_while_busy);
    nic_add("idletime/net-hold/allowance", test_allowance);
    return g_test_run();
}
