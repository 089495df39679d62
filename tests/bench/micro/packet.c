/*
 * A packet's way: the foreground's event, with its time stamp; and what class
 * guest pays to look at a packet.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "micro.h"
#include "idletime/packet/packet.h"
#include "idletime/gate/stamp.h"

#define BATCHES 1000
#define BATCH 50000

/* As QEMU's cpu_get_host_ticks(). */
static int64_t ticks(void)
{
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    static int64_t calls;

    return calls++;
#endif
}

static int64_t limit_of_stamp(void)
{
    int64_t start_ns = micro_clock_ns(), start = ticks();

    while (micro_clock_ns() - start_ns < IDLETIME_STAMP_NS) {
        /* Only time passes. */
    }
    return ticks() - start;
}

static double events_ns(IdletimeFgWriter *w, IdletimeStamp *stamp, int count)
{
    int64_t begin_ns = micro_clock_ns(), now_ns;

    for (int i = 0; i < count; i++) {
        now_ns = idletime_stamp(stamp, ticks(), micro_clock_ns);
        idletime_fg_begin(w, now_ns, 1514);
        idletime_fg_end(w, now_ns);
        __asm__ volatile("" ::: "memory");
    }
    return (double)(micro_clock_ns() - begin_ns) / count;
}

static double parses_ns(int count)
{
    /* Headers in one piece, payload in another, as Linux guests do. */
    static uint8_t head[12 + 14 + 20 + 32] = { [24] = 8, [26] = 0x45,
                                               [35] = 6, [58] = 0x80 };
    static uint8_t payload[1448];
    struct iovec iov[] = { { head, sizeof(head) }, { payload, 1448 } };
    int64_t begin_ns = micro_clock_ns();
    IdletimePacket packet;

    for (int i = 0; i < count; i++) {
        idletime_packet_parse(iov, 2, 12, &packet);
        __asm__ volatile("" : : "r"(&packet) : "memory");
    }
    return (double)(micro_clock_ns() - begin_ns) / count;
}

static void report(const char *what, double *value)
{
    /* Sorts. */
    double median = micro_median(value, BATCHES);

    printf("{\"what\": \"%s\", \"batches\": %d, \"a_batch\": %d, "
           "\"median_ns\": %.2f, \"p99_ns\": %.2f}\n", what, BATCHES, BATCH,
           median, value[BATCHES * 99 / 100]);
    fflush(stdout);
}

void micro_packet(Bench *bench)
{
    IdletimeSlot slot = micro_claim(&bench->fg);
    IdletimeStamp plain = { 0 }, stamp = { .limit = limit_of_stamp() };
    static double value[BATCHES];
    IdletimeFgWriter writer;

    idletime_fg_attach(&writer, &bench->fg, &slot);
    for (int i = 0; i < BATCHES; i++) {
        value[i] = events_ns(&writer, &stamp, BATCH);
    }
    report("foreground packet event", value);
    for (int i = 0; i < BATCHES; i++) {
        value[i] = events_ns(&writer, &plain, BATCH / 10);
    }
    report("foreground packet event, clock read each time", value);
    for (int i = 0; i < BATCHES; i++) {
        value[i] = parses_ns(BATCH);
    }
    report("classify a packet", value);
    idletime_slot_release(&bench->fg, &slot);
}
