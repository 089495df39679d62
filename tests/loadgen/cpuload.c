/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cpuload: a load of the processor that is busy for a fixed part of every
 * quantum.
 *
 * In each quantum it does pieces of work back to back until `intensity`
 * percent of the quantum have passed, and then sleeps until the next one
 * starts. A piece is always as much work, some hundreds of microseconds; its
 * latency is how long it took by the clock. Output is idleload's.
 */
#define _GNU_SOURCE
#include "pace.h"
#include "parse.h"
#include "samples.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PIECE = 20000,
};

typedef struct Cpu {
    const char *latency_file;
    unsigned intensity, quantum_ms;
    double seconds;
} Cpu;

static const struct option options[] = {
    { "latency-file", required_argument, NULL, 'l' },
    { "intensity", required_argument, NULL, 'i' },
    { "quantum-ms", required_argument, NULL, 'q' },
    { "seconds", required_argument, NULL, 's' },
    { NULL, 0, NULL, 0 },
};

static Cpu parse(int argc, char **argv)
{
    Cpu cpu = { .intensity = 100, .quantum_ms = 100, .seconds = 10 };
    int key;

    while ((key = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (key) {
        case 'l': cpu.latency_file = optarg; break;
        case 'i': cpu.intensity = number("intensity", optarg, 1, 100); break;
        case 'q': cpu.quantum_ms = number("quantum-ms", optarg, 1, 10000); break;
        case 's': cpu.seconds = duration(optarg); break;
        default: exit(2);
        }
    }
    return cpu;
}

/* Its result is used, or the compiler would leave the work out. */
static void work(uint64_t *state)
{
    for (unsigned i = 0; i < PIECE; i++) {
        next_random(state);
    }
}

static void run(const Cpu *cpu, int64_t begin_ns, Samples *samples,
                uint64_t *state)
{
    int64_t quantum_ns = cpu->quantum_ms * (int64_t)NS_PER_MS;
    int64_t busy_ns = quantum_ns / 100 * cpu->intensity;
    int64_t end_ns = begin_ns + (int64_t)(cpu->seconds * NS_PER_S);
    int64_t now = now_ns();

    while (!stop_requested && now < end_ns) {
        int64_t quantum = begin_ns + (now - begin_ns) / quantum_ns * quantum_ns;

        if (cpu->intensity < 100 && now - quantum >= busy_ns) {
            sleep_until(quantum + quantum_ns);
            now = now_ns();
            continue;
        }
        work(state);
        add_sample(samples, begin_ns, now, now_ns());
        now = now_ns();
    }
}

int main(int argc, char **argv)
{
    Cpu cpu = parse(argc, argv);
    Samples samples = { 0 };
    uint64_t state = 1;
    int64_t begin_ns = now_ns();
    double seconds;

    catch_stop();
    run(&cpu, begin_ns, &samples, &state);
    seconds = (double)(now_ns() - begin_ns) / NS_PER_S;
    if (cpu.latency_file) {
        write_latencies(cpu.latency_file, &samples);
    }
    printf("{\"intensity_percent\": %u, \"quantum_ms\": %u, \"state\": %" PRIu64
           ", \"operations\": %zu, \"seconds\": %.6f, "
           "\"operations_per_second\": %.3f", cpu.intensity, cpu.quantum_ms,
           state, samples.count, seconds, samples.count / seconds);
    print_latencies(&samples);
    puts("}");
    free(samples.at);
    return 0;
}
