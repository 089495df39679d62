/*
 * The learner in a closed loop with a modelled disk: what it does changes what
 * it sees.  Promises, where the golden files only say that nothing changed.
 * And the contenders that only the simulator has.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim-impl.h"

#define MS 1e6

static int failures;

static void check(const char *what, double value, double low, double high)
{
    bool ok = value >= low && value <= high;

    printf("%s %s: %.4g (%g to %g)\n", ok ? "ok" : "not ok", what, value, low,
           high);
    failures += !ok;
}

/* ---- N servers, arrivals on their own */

#define RUNS 8

typedef struct Run {
    SimResult alone, result, foreseen;
    double slower;              /* mean, percent */
} Run;

static SimParams servers(int n, double service_ms, double intensity)
{
    return (SimParams) {
        .seed = 1, .piece_bytes = SIM_PIECE_BYTES, .duration_ns = 6e9,
        .warm_up_ns = 4e9, .service_ns = service_ms * MS, .channels = n,
        .load = { .gaps = SIM_POISSON, .quantum_ns = 100 * MS,
                  .intensity = intensity },
        .bg_think_ns = 0.005 * MS, .foregrounds = 1, .participants = 1,
        .outstanding = 32, .depth = 1,
        .rule = { .max_hold_ns = 5000 * MS, .max_inflight = 64 },
    };
}

static Run run(SimParams p, double budget)
{
    Run r;

    p.policy = (SimPolicy) { .kind = SIM_ALONE };
    r.alone = sim_run(&p);
    p.policy = (SimPolicy) { .kind = SIM_CLAIRVOYANT };
    r.foreseen = sim_run(&p);
    p.policy = (SimPolicy) { .kind = SIM_AUTO, .budget = budget,
                             .interval_ns = 20 * MS };
    r.result = sim_run(&p);
    r.slower = 100 * (r.result.fg_mean_ns / r.alone.fg_mean_ns - 1);
    return r;
}

/*
 * One server stays free: background takes at most the rest, and gets a good
 * part of what one who knows all arrivals gets.
 */
static void test_servers(void)
{
    Run r = run(servers(16, 0.1, 0.5), 0.05);

    check("16 servers: limit", r.result.limit, 14, 16);
    check("16 servers: background of clairvoyant's",
          r.result.bg_rate / r.foreseen.bg_rate, 0.75, 1);
    check("16 servers, 5 %: slower", r.slower, 0, 5);
    r = run(servers(4, 0.2, 0.3), 0.05);
    check("4 servers: limit", r.result.limit, 3, 3);
    check("4 servers: background of clairvoyant's",
          r.result.bg_rate / r.foreseen.bg_rate, 0.5, 1);
    check("4 servers, 5 %: slower", r.slower, 0, 5);
    /* The smallest that is parallel: two at a time, and one stays free. */
    r = run(servers(3, 0.2, 0.2), 0.05);
    check("3 servers: limit", r.result.limit, 2, 2);
    check("3 servers: background of clairvoyant's",
          r.result.bg_rate / r.foreseen.bg_rate, 0.45, 1);
    check("3 servers, 5 %: slower", r.slower, 0, 5);
}

/* What the foreground really gets has the last word, whatever is flat. */
static void test_slowdown(void)
{
    Run few = run(servers(16, 0.1, 0.5), 0.01);
    Run many = run(servers(16, 0.1, 0.5), 0.05);

    check("16 servers, 1 %: slower", few.slower, 0, 1.5);
    check("16 servers, 1 %: ceiling", few.result.ceiling, 5, 14);
    check("16 servers, 1 % of 5 %: background",
          few.result.bg_rate / many.result.bg_rate, 0.4, 0.85);
}

/*
 * One server is told from several: nothing starts beside the foreground.  It
 * takes some seconds until the credit has paid for the beginning, and what a
 * collision costs here is learned from few: runs differ, by 0 to 9 %.
 */
static void test_one_server(void)
{
    SimParams p = servers(1, 0.2, 0.3);
    double slower = 0;

    p.duration_ns = 60e9;
    p.warm_up_ns = 20e9;
    /* Deadlines are no part of the budget: 32 would leave at a time. */
    p.rule.max_hold_ns = 0;
    for (p.seed = 1; p.seed <= RUNS; p.seed++) {
        Run r = run(p, 0.05);

        check("1 server: limit", r.result.limit, 1, 1);
        slower += r.slower / RUNS;
    }
    check("1 server, 5 %: slower in the mean", slower, 1, 6);
}

/* ---- a queue: what a collision costs */

/* The mail server's disk; what the learner saw is what there was. */
static void test_trace(const char *path)
{
    static const double budget[] = { 0.1, 0.2, 0.3 };

    for (int i = 0; i < 3; i++) {
        SimParams p = {
            .seed = 1, .piece_bytes = SIM_PIECE_BYTES, .duration_ns = 60e9,
            .service_ns = 5 * MS, .channels = 1, .path_ns = 0.075 * MS,
            .stalls = 0.05 / 100, .load = { .gaps = SIM_TRACE },
            .trace = sim_trace_read(path), .depth = 8,
            .bg_think_ns = 0.48 * MS, .foregrounds = 1, .participants = 1,
            .outstanding = 1,
            .rule = { .max_hold_ns = 5000 * MS, .max_inflight = 1 },
        };
        Run r = run(p, budget[i]);
        char what[64];

        snprintf(what, sizeof(what), "trace, %g %%: delay factor",
                 100 * budget[i]);
        check(what, r.result.factor, 1.5, 5);
        snprintf(what, sizeof(what), "trace, %g %%: slower",
                 100 * budget[i]);
        check(what, r.slower, 2, 100 * budget[i] + 1);
        snprintf(what, sizeof(what), "trace, %g %%: seen of slower",
                 100 * budget[i]);
        check(what, 100 * r.result.predicted / r.slower, 0.85, 1.25);
        free(p.trace.at_ns);
    }
}

/*
 * Arrivals on their own: at both loads all of a budget can be spent, on a disk
 * that is behind a path, too, where a fourth of what is reckoned is not paid.
 */
static void test_memoryless(void)
{
    static const double load[] = { 0.3, 0.6, 0.3, 0.6 };
    static const double path_ms[] = { 0, 0, 0.35, 0.35 };

    for (int i = 0; i < 4; i++) {
        SimParams p = servers(1, 5, load[i]);
        char what[64];
        Run r;

        p.duration_ns = 600e9;
        p.warm_up_ns = 0;
        p.outstanding = 1;
        p.rule.max_inflight = 1;
        p.path_ns = path_ms[i] * 1e6;
        r = run(p, 0.1);
        snprintf(what, sizeof(what), "load %g, path %g ms, 10 %%: slower",
                 load[i], path_ms[i]);
        check(what, r.slower, 8.5, 11);
        snprintf(what, sizeof(what), "load %g, path %g ms, 10 %%: seen of it",
                 load[i], path_ms[i]);
        check(what, 100 * r.result.predicted / r.slower, 0.9, 1.1);
    }
}

static SimParams one_at_a_time(double intensity)
{
    SimParams p = servers(1, 5, intensity);

    p.load.gaps = SIM_GAPS_EXPONENTIAL;
    p.fg_think_ns = 0.05 * MS;
    p.outstanding = 1;
    p.rule.max_inflight = 1;
    p.duration_ns = 600e9;
    return p;
}

/*
 * One request at a time, some much longer than others: nobody waits behind
 * another, and that is what is charged.
 */
static void test_spread(void)
{
    SimParams p = one_at_a_time(0.3);
    Run r;

    p.spread = 0.9;
    r = run(p, 0.05);
    check("spread, 5 %: delay factor", r.result.factor, 0.9, 1.02);
    check("spread, 5 %: slower", r.slower, 4, 6.5);
}

/*
 * Four VMs, each with one request at a time: who waits behind one that was
 * delayed is another VM's.
 */
static void test_foregrounds(void)
{
    SimParams p = one_at_a_time(0.05);
    Run r;

    p.load.quantum_ns = 50 * MS;
    p.foregrounds = 4;
    r = run(p, 0.05);
    check("four foregrounds, 5 %: delay factor", r.result.factor, 1.3, 2);
    check("four foregrounds, 5 %: slower", r.slower, 4, 5.8);
    check("four foregrounds, 5 %: seen of it",
          100 * r.result.predicted / r.slower, 0.85, 1.15);
}

/*
 * Two requests at a time, behind a host that stalls now and then: bursts differ
 * in length, and that is not taken for a seek back.
 */
static void test_two_at_a_time(void)
{
    for (int seed = 1; seed <= 4; seed++) {
        SimParams p = one_at_a_time(0.3);
        char what[64];
        Run r;

        p.seed = seed;
        p.load.gaps = SIM_GAPS_EVEN;
        p.load.quantum_ns = 300 * MS;
        p.load.jitter = 0.3;
        p.depth = 2;
        p.path_ns = 0.075 * MS;
        p.stalls = 0.0005;
        p.fg_think_ns = 0.15 * MS;
        p.fg_noise_ns = 0.25 * MS;
        p.bg_think_ns = 0.48 * MS;
        p.duration_ns = 120e9;
        r = run(p, 0.03);
        snprintf(what, sizeof(what), "two at a time, seed %d: background of "
                 "clairvoyant's", seed);
        check(what, r.result.bg_rate / r.foreseen.bg_rate, 0.8, 1.1);
        snprintf(what, sizeof(what), "two at a time, seed %d, 3 %%: slower",
                 seed);
        check(what, r.slower, 1, 3.2);
    }
}

/*
 * Arrivals on their own, on a disk with an arm and a host that comes late: a
 * request waits for others several times as long as for the arm.
 */
static void test_arm(void)
{
    static const double budget[] = { 0.03, 0.1 };

    for (int seed = 1; seed <= 3; seed++) {
        for (int i = 0; i < 2; i++) {
            SimParams p = servers(1, 1, 0.4);
            char what[64];
            Run r;

            p.seed = seed;
            p.switch_ns = 0.5 * MS;
            p.noise_ns = p.fg_noise_ns = 0.3 * MS;
            p.outstanding = 1;
            p.rule.max_inflight = 1;
            p.duration_ns = 300e9;
            r = run(p, budget[i]);
            snprintf(what, sizeof(what), "an arm, seed %d, %g %%: paid of it",
                     seed, 100 * budget[i]);
            check(what, r.slower / budget[i] / 100, 0.6, 1.12);
        }
    }
}

/*
 * A foreground that is there before us and never pauses, so that there is no
 * idle disk from which to learn: what is allowed is spent, no more, and from
 * the first second on.
 */
static void test_no_pauses(void)
{
    static const int depths[] = { 1, 4, 16 };

    for (int i = 0; i < 3; i++) {
        SimParams p = servers(1, 5, 1);
        char what[64];
        Run r;

        p.load.gaps = SIM_GAPS_EVEN;
        p.load.quantum_ns = 10e9;
        p.fg_think_ns = 0.3 * MS;
        p.bg_think_ns = 0.2 * MS;
        p.outstanding = 1;
        p.rule = (IdletimeRule) { .max_inflight = 1 };
        p.depth = depths[i];
        p.duration_ns = 10e9;
        p.warm_up_ns = 0;
        r = run(p, 0.03);
        snprintf(what, sizeof(what), "no pauses, depth %d, 3 %%: slower, "
                 "first 10 s", p.depth);
        check(what, r.slower, 0, 3.5);
        p.duration_ns = 120e9;
        p.warm_up_ns = 60e9;
        r = run(p, 0.1);
        snprintf(what, sizeof(what), "no pauses, depth %d, 10 %%: slower",
                 p.depth);
        check(what, r.slower, 5, 10.5);
        snprintf(what, sizeof(what), "no pauses, depth %d, 10 %%: background/s",
                 p.depth);
        check(what, r.result.bg_rate, 9, 25);
    }
}

/* ---- what else there could be: only contenders in comparisons */

static SimResult contender(int outstanding, SimPolicy policy)
{
    SimParams p = servers(1, 5, 0.3);

    p.load.gaps = SIM_GAPS_EVEN;
    p.fg_think_ns = 0.3 * MS;
    p.bg_think_ns = 0.2 * MS;
    p.duration_ns = 60e9;
    p.outstanding = outstanding;
    p.rule = (IdletimeRule) { .max_inflight = 1 };
    p.policy = policy;
    return sim_run(&p);
}

static SimResult variant(int outstanding, int number)
{
    SimPolicyKind kind = number == 1 ? SIM_INTERVAL : SIM_VARIANT;

    return contender(outstanding, (SimPolicy) {
        .kind = kind, .variant = number, .interval_ns = 5 * MS,
    });
}

/*
 * Variants differ in what follows a background request: the next one waits (4
 * outstanding) or none does (1 outstanding, that thinks).  Disk of 5 ms: with
 * an interval after each request it gets half of what is left.
 */
static void test_variants(void)
{
    double many[5], one[5];

    for (int number = 1; number <= 4; number++) {
        many[number] = variant(4, number).bg_rate;
        one[number] = variant(1, number).bg_rate;
    }
    check("one waits: variant 2 of 1", many[2] / many[1], 1, 1);
    check("one waits: variant 3 of 1", many[3] / many[1], 0.4, 0.6);
    check("one waits: variant 4 of 3", many[4] / many[3], 1, 1);
    check("none waits: variant 3 of 1", one[3] / one[1], 1, 1);
    check("none waits: variant 2 of 1", one[2] / one[1], 0.4, 0.6);
    check("none waits: variant 4 of 2", one[4] / one[2], 1, 1);
}

/* It shrinks to where a burst pays, then doubles: more so the faster it does. */
static void test_aimd(void)
{
    SimResult slow = contender(1, (SimPolicy) {
        .kind = SIM_AIMD, .interval_ns = 20 * MS, .shrink = 0.001 });
    SimResult fast = contender(1, (SimPolicy) {
        .kind = SIM_AIMD, .interval_ns = 20 * MS, .shrink = 0.3 });

    check("AIMD, slow of fast: background", slow.bg_rate / fast.bg_rate,
          0, 0.5);
    check("AIMD, slow of fast: foreground's latency",
          slow.fg_mean_ns / fast.fg_mean_ns, 0.4, 0.95);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test-closed-loop TRACE\n");
        return 2;
    }
    test_servers();
    test_slowdown();
    test_one_server();
    test_trace(argv[1]);
    test_memoryless();
    test_spread();
    test_foregrounds();
    test_two_at_a_time();
    test_arm();
    test_no_pauses();
    test_variants();
    test_aimd();
    return failures > 0;
}
