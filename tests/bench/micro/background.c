/*
 * Background: one look and one decision, by number of slots in use.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "micro.h"

#define SAMPLES 400
/* More than the last level cache of a server core. */
#define EVICT_BYTES (64 << 20)
#define EVICT_SAMPLES 50

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 1 };

typedef struct Crowd {
    IdletimeSlot fg[IDLETIME_SLOTS], bg[IDLETIME_SLOTS];
    IdletimeFgWriter writer[IDLETIME_SLOTS];
    int slots;
} Crowd;

static void crowd_grow(Bench *bench, Crowd *crowd, int slots)
{
    for (; crowd->slots < slots; crowd->slots++) {
        int i = crowd->slots;

        crowd->fg[i] = micro_claim(&bench->fg);
        idletime_fg_attach(&crowd->writer[i], &bench->fg, &crowd->fg[i]);
        if (i) {        /* slot 0 of the background board is ours */
            crowd->bg[i] = micro_claim(&bench->bg);
        }
    }
}

/* Each line was written by its owner since the last look. */
static void crowd_write(Crowd *crowd)
{
    int64_t now_ns = micro_clock_ns() - SEC;

    for (int i = 0; i < crowd->slots; i++) {
        idletime_fg_begin(&crowd->writer[i], now_ns, 4096);
        idletime_fg_end(&crowd->writer[i], now_ns);
    }
}

/* No line is in a cache: the look after a long pause on a busy host. */
static void crowd_evict(Crowd *crowd)
{
    static uint8_t *other;

    if (!other) {
        other = malloc(EVICT_BYTES);
    }
    memset(other, crowd->slots, EVICT_BYTES);
    __asm__ volatile("" : : "r"(other) : "memory");
}

static double decide_us(Bench *bench, IdletimeCore *core)
{
    int64_t begin_ns = micro_clock_ns();
    IdletimeView view = idletime_scan(&bench->scan, &rule, begin_ns);

    idletime_core_ask(core, &rule, &view, begin_ns, begin_ns);
    return (micro_clock_ns() - begin_ns) / 1e3;
}

static void measure(Bench *bench, Crowd *crowd, const char *lines,
                    void (*prepare)(Crowd *crowd), int samples)
{
    static double value[SAMPLES];
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };
    IdletimeCore core;

    idletime_core_init(&core, &nothing);
    for (int i = 0; i < samples; i++) {
        if (prepare) {
            prepare(crowd);
        }
        value[i] = decide_us(bench, &core);
    }
    printf("{\"what\": \"background decision\", \"slots\": %d, "
           "\"lines\": \"%s\", \"samples\": %d, \"median_us\": %.3f, ",
           crowd->slots, lines, samples, micro_median(value, samples));
    printf("\"p99_us\": %.3f}\n", value[samples * 99 / 100]);
    fflush(stdout);
}

/* One participant in service: its owner is asked after, once a look. */
static void measure_busy(Bench *bench, Crowd *crowd)
{
    IdletimeFgWriter *last = &crowd->writer[crowd->slots - 1];

    idletime_fg_begin(last, micro_clock_ns(), 4096);
    measure(bench, crowd, "one in service", NULL, SAMPLES);
    idletime_fg_end(last, micro_clock_ns() - SEC);
}

void micro_background(Bench *bench)
{
    static const int slots[] = { 1, 16, 100, 1000 };
    Crowd *crowd = calloc(1, sizeof(*crowd));

    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        crowd_grow(bench, crowd, slots[i]);
        crowd_write(crowd);
        measure(bench, crowd, "idle", NULL, SAMPLES);
        measure(bench, crowd, "just written", crowd_write, SAMPLES);
        measure(bench, crowd, "evicted", crowd_evict, EVICT_SAMPLES);
        measure_busy(bench, crowd);
    }
    for (int i = 0; i < crowd->slots; i++) {
        idletime_slot_release(&bench->fg, &crowd->fg[i]);
        if (i) {
            idletime_slot_release(&bench->bg, &crowd->bg[i]);
        }
    }
    free(crowd);
}
