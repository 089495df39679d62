/*
 * Idletime machine tests: of which packets an uplink's interval is learned.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Those that had the link alone.  16 of them are enough, so the 16th tells
 * whether a packet counts.
 */
#include "qemu/osdep.h"
#include "idletime-nic.h"

#define PAYLOAD         (1514 - ETHERNET - IP4 - UDP)
/* 1538 * 8 bits at 10 Mbit/s */
#define PACKET_US       1231
/* virtio-net-idletime-life.c */
#define DEADLINE_US     (100 * MS)

static void step(TestMachine *m, int64_t us)
{
    machine_step_us(m, us);
    nic_settle(m);
}

static void background(TestNic *bg)
{
    nic_send(bg, (TestPacket) { .payload = PAYLOAD });
}

static void foreground_packet(TestNic *fg)
{
    nic_send(fg, (TestPacket) { .number = 1 });
    g_assert_cmpint(nic_next(fg), ==, 1);
}

/* It leaves now, and the link has sent it. */
static void sent(TestMachine *m, TestNic *bg)
{
    g_assert_cmpint(nic_next(bg), ==, 0);
    step(m, PACKET_US);
    g_assert_cmpint(nic_number(bg, "in-service"), ==, 0);
}

/* A link that has sent 15 packets of the background alone. */
static TestMachine *nearly_known(TestNic **fg, TestNic **bg)
{
    TestMachine *m = nic_pair("auto=on,rate-bps=10000000", fg, bg);

    for (int i = 0; i < 15; i++) {
        background(*bg);
        sent(m, *bg);
    }
    return m;
}

static bool is_known(TestMachine *m)
{
    return machine_number(m, RESOURCE, "interval-us") != INTERVAL_US;
}

/* It is not; with one more that is alone it is. */
static void done(TestMachine *m, TestNic *fg, TestNic *bg)
{
    g_assert_false(is_known(m));
    step(m, INTERVAL_US);
    background(bg);
    sent(m, bg);
    g_assert_true(is_known(m));
    nic_free(fg);
    nic_free(bg);
    machine_free(m);
}

/* The foreground comes while it is in service. */
static void test_met(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nearly_known(&fg, &bg);

    background(bg);
    foreground_packet(fg);
    sent(m, bg);
    done(m, fg, bg);
}

/* It reached its deadline in the midst of foreground. */
static void test_promoted(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nearly_known(&fg, &bg);

    foreground_packet(fg);
    background(bg);
    for (int us = MS; us < DEADLINE_US; us += MS) {
        step(m, MS);
        foreground_packet(fg);
    }
    assert_none_left(bg);
    step(m, MS);
    g_assert_cmpint(nic_number(bg, "promotions.deadline"), ==, 1);
    sent(m, bg);
    done(m, fg, bg);
}

/* An interval after the foreground it is alone. */
static void test_alone(void)
{
    TestNic *fg, *bg;
    TestMachine *m = nearly_known(&fg, &bg);

    foreground_packet(fg);
    background(bg);
    step(m, INTERVAL_US - 1);
    assert_none_left(bg);
    step(m, 1);
    sent(m, bg);
    g_assert_true(is_known(m));
    nic_free(fg);
    nic_free(bg);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nic_add("idletime/net-alone/met", test_met);
    nic_add("idletime/net-alone/promoted", test_promoted);
    nic_add("idletime/net-alone/alone", test_alone);
    return g_test_run();
}
