/*
 * Learner: one look and one admission, by number of foreground slots in use;
 * and a plan of windows, whole and by its steps.  By the thread's own clock:
 * others that run meanwhile are no cost of ours, but interrupts are counted,
 * and what a hypervisor takes.  So the same rounds are run several times, and
 * the fastest of each counts.  A reading of the clock takes 0.3 us.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "micro.h"
#include <time.h>
#include "idletime/learner/learner.h"

#define ROUNDS 20000
#define RUNS 5

static int64_t own_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void note_fastest(double *value, int run, double us)
{
    *value = run ? MIN(*value, us) : us;
}

/* Sorts. */
static void print_times(double *value, int n)
{
    double median = micro_median(value, n);

    printf("\"median_us\": %.3f, \"p99_us\": %.3f, \"p99.9_us\": %.3f, "
           "\"max_us\": %.3f}\n", median, value[n * 99 / 100],
           value[n * 999 / 1000], value[n - 1]);
    fflush(stdout);
}

typedef struct Tenants {
    IdletimeFgBoard *fg;
    IdletimeFgWriter writer[IDLETIME_SLOTS];
    uint64_t requests;
    uint64_t request_ns;
} Tenants;

static void tenants_begin(Tenants *t)
{
    memset(t, 0, sizeof(*t));
    t->fg = aligned_alloc(IDLETIME_PAGE_BYTES, sizeof(*t->fg));
    micro_must(t->fg, "memory");
    memset(t->fg, 0, sizeof(*t->fg));
    for (int i = 0; i < IDLETIME_SLOTS; i++) {
        t->writer[i] = (IdletimeFgWriter) { .line = &t->fg->line[i],
                                            .page = &t->fg->page[i] };
    }
}

/* @active of the slots have had a request since the last look. */
static void tenants_work(Tenants *t, int active, int64_t now_ns)
{
    for (int i = 0; i < active; i++) {
        int64_t begin_ns = now_ns - 15 * MS + i * 3 * MS / 1000;

        idletime_fg_begin(&t->writer[i], begin_ns, 4096);
        idletime_fg_end(&t->writer[i], begin_ns + 5 * MS);
        t->requests++;
        t->request_ns += 5 * MS;
    }
}

static bool run_rounds(Tenants *t, int slots, int active, int run,
                       double *value)
{
    static IdletimeLearner l;
    const IdletimeGoal goal = { .share = 0.03, .interval_ns = 20 * MS };
    int64_t now_ns = SEC;

    idletime_learner_init(&l, 0);
    for (int i = 0; i < ROUNDS; i++) {
        IdletimeTotals totals = { .quiet = true };
        IdletimeQuestion q = { .bytes = 4096 };
        int64_t begin_ns;

        /* Not so regular that the compiler or the branch predictor knows. */
        now_ns += 50 * MS + (i * 7919 % 1000) * 40000LL;
        tenants_work(t, active, now_ns);
        totals.fg_done = t->requests;
        totals.fg_request_ns = t->request_ns;
        q.fg_last_ns = now_ns - 10 * MS;
        q.now_ns = now_ns;
        if (i < 4) {
            idletime_learner_done(&l, &(IdletimeServed) {
                .bytes = 4096, .fg_idle = true, .since_ns = now_ns - 5 * MS,
            }, now_ns);
        }
        begin_ns = own_ns();
        idletime_learner_look(&l, &goal, t->fg, slots, &totals, now_ns);
        idletime_learner_admit(&l, &goal, &q);
        note_fastest(&value[i], run, (own_ns() - begin_ns) / 1e3);
    }
    return idletime_learner_ready(&l);
}

static void measure(int slots, int active)
{
    static double value[ROUNDS];
    bool ready = false;

    for (int run = 0; run < RUNS; run++) {
        static Tenants tenants;

        tenants_begin(&tenants);
        ready = run_rounds(&tenants, slots, active, run, value);
        free(tenants.fg);
    }
    printf("{\"what\": \"learner look and admission\", \"slots\": %d, "
           "\"active\": %d, \"rounds\": %d, \"fastest_of\": %d, "
           "\"ready\": %s, ", slots, active, ROUNDS, RUNS,
           ready ? "true" : "false");
    print_times(value, ROUNDS);
}

/* @seek_ms: what a used gap costs, as on a disk with an arm. */
static void measure_plan(double seek_ms)
{
    static double step[IDLETIME_BINS];
    static IdletimeHistogram h;
    static IdletimePlan plan;
    const IdletimeTerms terms = { 0.15 * MS, 5.0 * MS, seek_ms * MS };
    const IdletimeService service = { 5.0 * MS, MS, 0 };
    int steps = 0;

    idletime_histogram_init(&h);
    for (int i = 0; i < 1000; i++) {
        idletime_histogram_add(&h, (IdletimeHalfLife) { 1024, 1e12 },
                               (i % 6 ? 300000 : 60 * MS + i * 20000), 0);
    }
    for (int run = 0; run < RUNS * 20; run++) {
        bool over;

        steps = 0;
        idletime_plan_begin(&plan, &h, service, NULL, &terms);
        do {
            int64_t begin_ns = own_ns();

            over = idletime_plan_step(&plan, IDLETIME_LOOK_WORK) > 0;
            micro_must(steps < IDLETIME_BINS, "fewer steps than bins");
            note_fastest(&step[steps++], run, (own_ns() - begin_ns) / 1e3);
        } while (!over);
    }
    printf("{\"what\": \"learner plan's step\", \"seek_ms\": %g, "
           "\"bins\": %d, \"steps\": %d, \"fastest_of\": %d, ", seek_ms,
           IDLETIME_BINS, steps, RUNS * 20);
    print_times(step, steps);
}

void micro_learner(void)
{
    static const int slots[] = { 1, 16, 100, 1000 };

    printf("{\"what\": \"learner\", \"bytes\": %zu}\n",
           sizeof(IdletimeLearner));
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        measure(slots[i], 1);
        measure(slots[i], slots[i]);
    }
    measure_plan(0);
    measure_plan(3);
}
