/*
 * idletime-sim: options in; a table, or JSON lines, out.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim.h"
#include <getopt.h>

#define POLICIES_MAX 64
#define MS 1e6

typedef struct Options {
    SimParams params;
    SimPolicy policy[POLICIES_MAX];
    int policies;
    bool json;
    const char *name;
} Options;

static const char usage[] =
"usage: idletime-sim [options]\n"
"  --interval-ms LIST    schedulers to try (off,0,4,20,80):\n"
"                          NUMBER        preemption interval, milliseconds\n"
"                          off           no scheduler\n"
"                          auto:PERCENT  learned, with this budget\n"
"                          clairvoyant   knows the foreground's next request\n"
"                          vN:NUMBER     Eggert's variant N, 2 to 4, of 1\n"
"                          aimd:NUMBER   doubled by each collision, and\n"
"                                        NUMBER ms shorter each second\n"
"  --service-ms MS       service time of the device (5)\n"
"  --spread PERCENT      of service times, uniform (0)\n"
"  --noise-ms MS         added to service and thinking times, exponential (0)\n"
"  --path-ms MS          to the device, and back: each, half of it by chance (0)\n"
"  --stalls PERCENT      of these that take 20 ms more, exponential (0)\n"
"  --switch-ms MS        more for a request after one of the others: a seek (0)\n"
"  --transfer-ms MS      of 128 KiB of background data, added to its service (0)\n"
"  --piece-bytes N       of background requests, at most (131072)\n"
"  --channels N          requests that the device serves at a time (1)\n"
"  --foregrounds N       out of phase (1)\n"
"  --quantum-ms MS       one foreground burst in each (100)\n"
"  --intensity PERCENT   of each quantum, foreground (30)\n"
"  --jitter PERCENT      of the gap between bursts (0)\n"
"  --exponential         gaps between bursts are memoryless\n"
"  --poisson             no bursts: arrivals on their own, at the intensity\n"
"  --trace FILE          arrivals as recorded, over and over (MSR Cambridge)\n"
"  --depth N             foreground requests in service at most (1; no Poisson)\n"
"  --change-s S          then the foreground is another one: (0, never)\n"
"  --after-quantum-ms MS   of this quantum\n"
"  --after-intensity PERCENT  and this intensity\n"
"  --fg-think-ms MS      between two foreground requests of a burst (0.3)\n"
"  --fg-noise-ms MS      added to it, exponential (--noise-ms)\n"
"  --bg-think-ms MS      between two background requests (0.2)\n"
"  --participants N      background participants (1)\n"
"  --outstanding N       background requests of each (1)\n"
"  --max-inflight N      background requests in service (1)\n"
"  --max-hold-ms MS      deadline of a held request, 0 is never (5000)\n"
"  --safe-ms MS          interval while auto knows too little (20)\n"
"  --warm-up-s S         not in the results (0)\n"
"  --duration-s S        virtual time (60)\n"
"  --each-s S            with --json: a line for each such time\n"
"  --seed N              of everything random (1)\n"
"  --json NAME           one JSON line each instead of a table\n";

static void die(const char *option, const char *value)
{
    fprintf(stderr, "idletime-sim: --%s: bad value '%s'\n%s", option, value,
            usage);
    exit(2);
}

static double number(const char *option, const char *text, double low,
                     double high)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= low && value <= high)) {
        die(option, text);
    }
    return value;
}

static int64_t safe_ns = 20 * 1000 * 1000;

static SimPolicy parse_policy(const char *one)
{
    if (strcmp(one, "off") == 0) {
        return (SimPolicy) { .kind = SIM_UNCONTROLLED };
    }
    if (strcmp(one, "clairvoyant") == 0) {
        return (SimPolicy) { .kind = SIM_CLAIRVOYANT };
    }
    if (strncmp(one, "auto:", 5) == 0) {
        return (SimPolicy) {
            .kind = SIM_AUTO,
            .budget = number("interval-ms", one + 5, 0, 1000) / 100,
        };
    }
    if (one[0] == 'v' && one[1] >= '2' && one[1] <= '4' && one[2] == ':') {
        return (SimPolicy) {
            .kind = SIM_VARIANT, .variant = one[1] - '0',
            .interval_ns = number("interval-ms", one + 3, 0, 1e6) * MS,
        };
    }
    if (strncmp(one, "aimd:", 5) == 0) {
        return (SimPolicy) {
            .kind = SIM_AIMD, .interval_ns = safe_ns,
            .shrink = number("interval-ms", one + 5, 0, 1e6) / 1000,
        };
    }
    return (SimPolicy) {
        .kind = SIM_INTERVAL,
        .interval_ns = number("interval-ms", one, 0, 1e6) * MS,
    };
}

static void parse_policies(Options *o, char *list)
{
    o->policies = 0;
    for (char *one = strtok(list, ","); one; one = strtok(NULL, ",")) {
        if (o->policies == POLICIES_MAX) {
            die("interval-ms", one);
        }
        o->policy[o->policies++] = parse_policy(one);
    }
}

static const struct option options[] = {
    { "interval-ms", required_argument, NULL, 'i' },
    { "service-ms", required_argument, NULL, 's' },
    { "spread", required_argument, NULL, 'S' },
    { "noise-ms", required_argument, NULL, 'N' },
    { "fg-noise-ms", required_argument, NULL, 'T' },
    { "path-ms", required_argument, NULL, 'W' },
    { "stalls", required_argument, NULL, 'L' },
    { "switch-ms", required_argument, NULL, 'k' },
    { "transfer-ms", required_argument, NULL, 't' },
    { "piece-bytes", required_argument, NULL, 'B' },
    { "channels", required_argument, NULL, 'C' },
    { "foregrounds", required_argument, NULL, 'F' },
    { "quantum-ms", required_argument, NULL, 'q' },
    { "intensity", required_argument, NULL, 'p' },
    { "jitter", required_argument, NULL, 'j' },
    { "exponential", no_argument, NULL, 'e' },
    { "poisson", no_argument, NULL, 'o' },
    { "trace", required_argument, NULL, 'R' },
    { "depth", required_argument, NULL, 'D' },
    { "change-s", required_argument, NULL, 'g' },
    { "after-quantum-ms", required_argument, NULL, 'Q' },
    { "after-intensity", required_argument, NULL, 'P' },
    { "fg-think-ms", required_argument, NULL, 'f' },
    { "bg-think-ms", required_argument, NULL, 'b' },
    { "participants", required_argument, NULL, 'm' },
    { "outstanding", required_argument, NULL, 'n' },
    { "max-inflight", required_argument, NULL, 'c' },
    { "max-hold-ms", required_argument, NULL, 'h' },
    { "safe-ms", required_argument, NULL, 'a' },
    { "warm-up-s", required_argument, NULL, 'w' },
    { "duration-s", required_argument, NULL, 'd' },
    { "each-s", required_argument, NULL, 'E' },
    { "seed", required_argument, NULL, 'r' },
    { "json", required_argument, NULL, 'J' },
    { "help", no_argument, NULL, '?' },
    { 0 },
};

static void set_option(Options *o, int c, const char *name)
{
    SimParams *p = &o->params;

#define NUMBER(low, high) number(name, optarg, low, high)
    switch (c) {
    case 'i': parse_policies(o, optarg); break;
    case 's': p->service_ns = NUMBER(0.001, 1e5) * MS; break;
    case 'S': p->spread = NUMBER(0, 99) / 100; break;
    case 'N': p->noise_ns = p->fg_noise_ns = NUMBER(0, 1e5) * MS; break;
    case 'T': p->fg_noise_ns = NUMBER(0, 1e5) * MS; break;
    case 'L': p->stalls = NUMBER(0, 100) / 100; break;
    case 'W': p->path_ns = NUMBER(0, 1e5) * MS; break;
    case 'k': p->switch_ns = NUMBER(0, 1e5) * MS; break;
    case 't': p->transfer_ns = NUMBER(0, 1e5) * MS; break;
    case 'B': p->piece_bytes = NUMBER(4096, 1 << 30); break;
    case 'C': p->channels = NUMBER(1, SIM_CHANNELS_MAX); break;
    case 'F': p->foregrounds = NUMBER(1, SIM_FOREGROUNDS_MAX); break;
    case 'q': p->load.quantum_ns = NUMBER(0.01, 1e6) * MS; break;
    case 'p': p->load.intensity = NUMBER(0, 100) / 100; break;
    case 'j': p->load.jitter = NUMBER(0, 100) / 100; break;
    case 'e': p->load.gaps = SIM_GAPS_EXPONENTIAL; break;
    case 'o': p->load.gaps = SIM_POISSON; break;
    case 'R':
        p->load.gaps = SIM_TRACE;
        p->trace = sim_trace_read(optarg);
        break;
    case 'D': p->depth = NUMBER(1, 1024); break;
    case 'g': p->change_ns = NUMBER(0, 1e6) * 1e9; break;
    case 'Q': p->after.quantum_ns = NUMBER(0.01, 1e6) * MS; break;
    case 'P': p->after.intensity = NUMBER(0, 100) / 100; break;
    case 'f': p->fg_think_ns = NUMBER(0, 1e5) * MS; break;
    case 'b': p->bg_think_ns = NUMBER(0, 1e5) * MS; break;
    case 'm': p->participants = NUMBER(0, SIM_PARTICIPANTS_MAX); break;
    case 'n': p->outstanding = NUMBER(1, SIM_OUTSTANDING_MAX); break;
    case 'c': p->rule.max_inflight = NUMBER(1, 64); break;
    case 'h': p->rule.max_hold_ns = NUMBER(0, 1e7) * MS; break;
    case 'a': safe_ns = NUMBER(0, 1e6) * MS; break;
    case 'w': p->warm_up_ns = NUMBER(0, 1e6) * 1e9; break;
    case 'd': p->duration_ns = NUMBER(0.1, 1e6) * 1e9; break;
    case 'E': p->each_ns = NUMBER(1, 1e6) * 1e9; break;
    case 'r': p->seed = NUMBER(0, 9e15); break;
    case 'J': o->json = true; o->name = optarg; break;
    default: fputs(usage, stderr); exit(2);
    }
#undef NUMBER
}

static Options parse(int argc, char **argv)
{
    static char policies[] = "off,0,4,20,80";
    Options o = { .params = {
        .seed = 1, .piece_bytes = SIM_PIECE_BYTES, .duration_ns = 60e9,
        .service_ns = 5 * MS, .channels = 1,
        .load = { .quantum_ns = 100 * MS, .intensity = 0.3 },
        .after = { .quantum_ns = 100 * MS, .intensity = 0.3 },
        .fg_think_ns = 0.3 * MS, .bg_think_ns = 0.2 * MS,
        .foregrounds = 1, .participants = 1, .outstanding = 1, .depth = 1,
        .rule = { .max_hold_ns = 5000 * MS, .max_inflight = 1 },
    } };
    int c, index = 0;

    parse_policies(&o, policies);
    while ((c = getopt_long(argc, argv, "", options, &index)) != -1) {
        set_option(&o, c, options[index].name);
    }
    o.params.after.gaps = o.params.load.gaps;
    o.params.after.jitter = o.params.load.jitter;
    return o;
}

/* ---- output */

static void policy_name(const SimPolicy *p, char *name, size_t size)
{
    switch (p->kind) {
    case SIM_ALONE: snprintf(name, size, "alone"); break;
    case SIM_UNCONTROLLED: snprintf(name, size, "off"); break;
    case SIM_CLAIRVOYANT: snprintf(name, size, "clairvoyant"); break;
    case SIM_AUTO: snprintf(name, size, "auto %g%%", p->budget * 100); break;
    case SIM_VARIANT:
        snprintf(name, size, "v%d %g ms", p->variant, p->interval_ns / MS);
        break;
    case SIM_AIMD: snprintf(name, size, "aimd %g", p->shrink * 1000); break;
    default: snprintf(name, size, "%g ms", p->interval_ns / MS); break;
    }
}

static void print_head(void)
{
    printf("%-11s %8s %6s %6s %6s %6s %8s %8s ", "scheduler", "fg op/s",
           "kept%", "mean", "p99", "p99.9", "bg op/s", "promoted");
    for (int s = 0; s < IDLETIME_STATE__MAX; s++) {
        for (int e = 0; e < IDLETIME_EVENT__MAX; e++) {
            printf("  %4c[%c]", "IFPB"[s], "fbti"[e]);
        }
    }
    printf("\n");
}

static double ratio(double value, double base)
{
    return base > 0 ? value / base : 0;
}

static void print_row(const char *name, const SimResult *r,
                      const SimResult *alone)
{
    printf("%-11s %8.1f %6.1f %6.3f %6.2f %6.2f %8.1f %8" PRIu64 " ", name,
           r->fg_rate, 100 * ratio(r->fg_rate, alone->fg_rate),
           ratio(r->fg_mean_ns, alone->fg_mean_ns),
           ratio(r->fg_p99_ns, alone->fg_p99_ns),
           ratio(r->fg_p999_ns, alone->fg_p999_ns), r->bg_rate, r->promoted);
    for (int n = 0; n < IDLETIME_STATE__MAX * IDLETIME_EVENT__MAX; n++) {
        printf(" %7" PRIu64, r->count[n / 4][n % 4]);
    }
    printf("\n");
}

static void print_json(const Options *o, const SimPolicy *p, int64_t begin_ns,
                       const SimResult *r)
{
    const SimParams *q = &o->params;
    char name[32];

    policy_name(p, name, sizeof(name));
    printf("{\"workload\": \"%s\", \"scheduler\": \"%s\", \"kind\": %d, "
           "\"interval_ms\": %g, \"budget\": %g, \"begin_s\": %g, ",
           o->name, name, p->kind, p->interval_ns / MS, p->budget,
           begin_ns / 1e9);
    printf("\"service_ms\": %g, \"spread\": %g, \"noise_ms\": %g, "
           "\"path_ms\": %g, \"channels\": %d, "
           "\"foregrounds\": %d, \"quantum_ms\": %g, \"intensity\": %g, "
           "\"jitter\": %g, \"gaps\": %d, \"outstanding\": %d, "
           "\"max_inflight\": %u, \"duration_s\": %g, \"warm_up_s\": %g, "
           "\"seed\": %" PRIu64 ", ", q->service_ns / MS, q->spread,
           q->noise_ns / MS, q->path_ns / MS,
           q->channels, q->foregrounds, q->load.quantum_ns / MS,
           q->load.intensity, q->load.jitter, q->load.gaps, q->outstanding,
           q->rule.max_inflight, q->duration_ns / 1e9, q->warm_up_ns / 1e9,
           q->seed);
    printf("\"fg_rate\": %.3f, \"fg_mean_ms\": %.5f, \"fg_p99_ms\": %.5f, "
           "\"fg_p999_ms\": %.5f, \"bg_rate\": %.3f, \"bg_bytes\": %.0f, "
           "\"promoted\": %" PRIu64
           ", \"slowdown_seen\": %.5f, \"factor\": %.3f, \"changes\": %" PRIu64
           ", \"steps\": %" PRIu64 "}\n", r->fg_rate, r->fg_mean_ns / MS,
           r->fg_p99_ns / MS, r->fg_p999_ns / MS, r->bg_rate, r->bg_bytes,
           r->promoted,
           r->predicted, r->factor, r->changes, r->steps);
}

typedef struct Run {
    const Options *o;
    const SimPolicy *policy;
} Run;

static void print_each(const SimResult *result, int64_t begin_ns, void *opaque)
{
    const Run *run = opaque;

    print_json(run->o, run->policy, begin_ns, result);
    fflush(stdout);
}

static SimResult run(const Options *o, SimPolicy policy, const SimResult *alone)
{
    SimParams p = o->params;
    Run run = { o, &policy };
    SimResult result;
    char name[32];

    p.policy = policy;
    p.each_ns *= o->json;
    p.each = print_each;
    p.opaque = &run;
    result = sim_run(&p);
    if (o->json) {
        print_json(o, &policy, p.each_ns ? (p.duration_ns - 1) / p.each_ns *
                   p.each_ns : 0, &result);
    } else {
        policy_name(&policy, name, sizeof(name));
        print_row(name, &result, alone ? alone : &result);
    }
    fflush(stdout);
    return result;
}

int main(int argc, char **argv)
{
    Options o = parse(argc, argv);
    SimResult alone;

    if (!o.json) {
        print_head();
    }
    alone = run(&o, (SimPolicy) { .kind = SIM_ALONE }, NULL);
    for (int i = 0; i < o.policies; i++) {
        if (o.policy[i].kind == SIM_AUTO) {
            o.policy[i].interval_ns = safe_ns;
        }
        run(&o, o.policy[i], &alone);
    }
    return 0;
}
