/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The link emulator's self-test: times in a comment before they are asserted. */
#include "linkmodel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void expect(const char *what, int64_t got, int64_t wanted)
{
    if (got != wanted) {
        fprintf(stderr, "linkmodel-test: %s: %" PRId64 ", not %" PRId64 "\n",
                what, got, wanted);
        exit(1);
    }
}

/* 100 Mbit/s, 1250 bytes: 100 us a packet; 10 ms of propagation. */
static void test_serial(void)
{
    LinkModel link = { .rate_bps = 100000000, .delay_ns = 10000000 };

    expect("first", link_arrive(&link, 1000, 1250), 1000 + 100000 + 10000000);
    expect("waits for the first", link_arrive(&link, 50000, 1250),
           1000 + 200000 + 10000000);
    expect("idle link", link_arrive(&link, 5000000, 1250),
           5000000 + 100000 + 10000000);
}

/* 8 Mbit/s: 1 us a byte; 2000 bytes fit. At 500, 500 of 1000 are left. */
static void test_bound(void)
{
    LinkModel link = { .rate_bps = 8000000, .queue_bytes = 2000 };

    expect("one", link_arrive(&link, 0, 1000), 1000000);
    expect("two", link_arrive(&link, 0, 1000), 2000000);
    expect("full", link_arrive(&link, 0, 1), LINK_DROPPED);
    expect("full but for 500", link_arrive(&link, 500000, 501), LINK_DROPPED);
    expect("500 fit", link_arrive(&link, 500000, 500), 2500000);
    expect("a drop takes no time", link_arrive(&link, 2500000, 1000), 3500000);
}

/* Without a rate only the delay is left, and order. */
static void test_delay_only(void)
{
    LinkModel link = { .delay_ns = 7, .queue_bytes = 1 };

    expect("one", link_arrive(&link, 5, 65535), 12);
    expect("two at once", link_arrive(&link, 5, 65535), 12);
}

/* No overflow: 64 KiB at 1 bit/s are 6 days. */
static void test_slow(void)
{
    LinkModel link = { .rate_bps = 1 };

    expect("slow", link_arrive(&link, 0, 65535), 524280000000000);
}

int main(void)
{
    test_serial();
    test_bound();
    test_delay_only();
    test_slow();
    return 0;
}
