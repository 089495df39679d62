/*
 * idletime-sim: options in, one table out.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim.h"
#include <getopt.h>

#define INTERVALS_MAX 32
#define MS 1e6

typedef struct Options {
    SimParams params;
    int64_t interval_ns[INTERVALS_MAX];
    int intervals;
} Options;

static const char usage[] =
"usage: idletime-sim [options]\n"
"  --interval-ms LIST    intervals to try (0,4,20,80); 'off' has no scheduler\n"
"  --service-ms MS       service time of the device (5)\n"
"  --quantum-ms MS       one foreground burst in each (100)\n"
"  --intensity PERCENT   of each quantum, foreground (30)\n"
"  --jitter PERCENT      of the gap between bursts (0)\n"
"  --exponential         gaps between bursts are memoryless\n"
"  --fg-think-ms MS      between two foreground requests of a burst (0.3)\n"
"  --bg-think-ms MS      between two background requests (0.2)\n"
"  --participants N      background participants (1)\n"
"  --outstanding N       background requests of each (1)\n"
"  --max-inflight N      background requests in service (1)\n"
"  --max-hold-ms MS      deadline of a held request, 0 is never (5000)\n"
"  --duration-s S        virtual time (60)\n"
"  --seed N              of jitter and exponential gaps (1)\n";

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

static void parse_intervals(Options *o, char *list)
{
    o->intervals = 0;
    for (char *one = strtok(list, ","); one; one = strtok(NULL, ",")) {
        if (o->intervals == INTERVALS_MAX) {
            die("interval-ms", one);
        }
        o->interval_ns[o->intervals++] = strcmp(one, "off") ?
            (int64_t)(number("interval-ms", one, 0, 1e6) * MS) :
            SIM_UNCONTROLLED;
    }
}

static const struct option options[] = {
    { "interval-ms", required_argument, NULL, 'i' },
    { "service-ms", required_argument, NULL, 's' },
    { "quantum-ms", required_argument, NULL, 'q' },
    { "intensity", required_argument, NULL, 'p' },
    { "jitter", required_argument, NULL, 'j' },
    { "exponential", no_argument, NULL, 'e' },
    { "fg-think-ms", required_argument, NULL, 'f' },
    { "bg-think-ms", required_argument, NULL, 'b' },
    { "participants", required_argument, NULL, 'm' },
    { "outstanding", required_argument, NULL, 'n' },
    { "max-inflight", required_argument, NULL, 'c' },
    { "max-hold-ms", required_argument, NULL, 'h' },
    { "duration-s", required_argument, NULL, 'd' },
    { "seed", required_argument, NULL, 'r' },
    { "help", no_argument, NULL, '?' },
    { 0 },
};

static void set_option(Options *o, int c, const char *name)
{
    SimParams *p = &o->params;

#define NUMBER(low, high) number(name, optarg, low, high)
    switch (c) {
    case 'i': parse_intervals(o, optarg); break;
    case 's': p->service_ns = NUMBER(0.001, 1e5) * MS; break;
    case 'q': p->quantum_ns = NUMBER(0.01, 1e6) * MS; break;
    case 'p': p->intensity = NUMBER(0, 100) / 100; break;
    case 'j': p->jitter = NUMBER(0, 100) / 100; break;
    case 'e': p->exponential = true; break;
    case 'f': p->fg_think_ns = NUMBER(0, 1e5) * MS; break;
    case 'b': p->bg_think_ns = NUMBER(0, 1e5) * MS; break;
    case 'm': p->participants = NUMBER(0, SIM_PARTICIPANTS_MAX); break;
    case 'n': p->outstanding = NUMBER(1, SIM_OUTSTANDING_MAX); break;
    case 'c': p->rule.max_inflight = NUMBER(1, 64); break;
    case 'h': p->rule.max_hold_ns = NUMBER(0, 1e7) * MS; break;
    case 'd': p->duration_ns = NUMBER(0.1, 1e5) * 1e9; break;
    case 'r': p->seed = NUMBER(0, 9e15); break;
    default: fputs(usage, stderr); exit(2);
    }
#undef NUMBER
}

static Options parse(int argc, char **argv)
{
    static char intervals[] = "off,0,4,20,80";
    Options o = { .params = {
        .seed = 1, .duration_ns = 60e9, .quantum_ns = 100 * MS,
        .service_ns = 5 * MS, .fg_think_ns = 0.3 * MS,
        .bg_think_ns = 0.2 * MS, .intensity = 0.3,
        .participants = 1, .outstanding = 1,
        .rule = { .max_hold_ns = 5000 * MS, .max_inflight = 1 },
    } };
    int c, index = 0;

    parse_intervals(&o, intervals);
    while ((c = getopt_long(argc, argv, "", options, &index)) != -1) {
        set_option(&o, c, options[index].name);
    }
    return o;
}

static void print_head(void)
{
    printf("%-10s %8s %6s %6s %6s %8s %8s ", "interval", "fg op/s", "kept%",
           "mean", "p99", "bg op/s", "promoted");
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
    printf("%-10s %8.1f %6.1f %6.2f %6.2f %8.1f %8" PRIu64 " ", name,
           r->fg_rate, 100 * ratio(r->fg_rate, alone->fg_rate),
           ratio(r->fg_mean_ns, alone->fg_mean_ns),
           ratio(r->fg_p99_ns, alone->fg_p99_ns), r->bg_rate, r->promoted);
    for (int n = 0; n < IDLETIME_STATE__MAX * IDLETIME_EVENT__MAX; n++) {
        printf(" %7" PRIu64, r->count[n / 4][n % 4]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    Options o = parse(argc, argv);
    SimParams p = o.params;
    SimResult alone, result;
    char name[32];

    p.participants = 0;
    alone = sim_run(&p);
    print_head();
    print_row("alone", &alone, &alone);
    for (int i = 0; i < o.intervals; i++) {
        p = o.params;
        p.rule.interval_ns = o.interval_ns[i];
        result = sim_run(&p);
        snprintf(name, sizeof(name), "%g ms", o.interval_ns[i] / MS);
        print_row(o.interval_ns[i] < 0 ? "off" : name, &result, &alone);
    }
    return 0;
}
