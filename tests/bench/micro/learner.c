/*
 * Learner: one look and one permit, by number of foreground slots in use; and
 * the windows built anew, which is done at most a hundred times a second.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "micro.h"
#include "idletime/learner/learner.h"

#define ROUNDS 2000

typedef struct Tenants {
    IdletimeFgBoard *fg;
    IdletimeFgWriter writer[IDLETIME_SLOTS];
    uint64_t requests;
    uint64_t request_ns;
} Tenants;

static void tenants_begin(Tenants *t)
{
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

static void measure(Tenants *t, int slots, int active)
{
    static double value[ROUNDS];
    static IdletimeLearner l;
    const IdletimeGoal goal = { .share = 0.03, .interval_ns = 20 * MS };
    int64_t now_ns = SEC;
    bool ready;

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
        begin_ns = micro_clock_ns();
        idletime_learner_read(&l, t->fg, slots, now_ns);
        idletime_learner_look(&l, &goal, &totals, now_ns);
        idletime_learner_admit(&l, &goal, &q);
        value[i] = (micro_clock_ns() - begin_ns) / 1e3;
    }
    ready = idletime_learner_ready(&l);
    printf("{\"what\": \"learner look and permit\", \"slots\": %d, "
           "\"active\": %d, \"rounds\": %d, \"ready\": %s, "
           "\"median_us\": %.3f, ", slots, active, ROUNDS,
           ready ? "true" : "false", micro_median(value, ROUNDS));
    printf("\"p99_us\": %.3f}\n", value[ROUNDS * 99 / 100]);
    fflush(stdout);
}

/* @switch_ms: what a used gap costs, as on a disk with an arm. */
static void measure_build(double switch_ms)
{
    static double value[ROUNDS];
    static IdletimeHistogram h;
    static IdletimeWindows w;
    const IdletimeTerms terms = { 0.15 * MS, 1, 5.0 * MS, switch_ms * MS };

    idletime_histogram_init(&h);
    for (int i = 0; i < 1000; i++) {
        idletime_histogram_add(&h, (IdletimeHalfLife) { 1024, 1e12 },
                               (i % 6 ? 300000 : 60 * MS + i * 20000), 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin_ns = micro_clock_ns();

        idletime_windows_build(&w, &h, (IdletimeService) { 5.0 * MS, MS, 0 },
                               NULL, &terms);
        value[i] = (micro_clock_ns() - begin_ns) / 1e3;
    }
    printf("{\"what\": \"learner windows\", \"switch_ms\": %g, \"bins\": %d, "
           "\"rounds\": %d, \"median_us\": %.3f, ", switch_ms, IDLETIME_BINS,
           ROUNDS, micro_median(value, ROUNDS));
    printf("\"p99_us\": %.3f}\n", value[ROUNDS * 99 / 100]);
}

void micro_learner(void)
{
    static const int slots[] = { 1, 16, 100, 1000 };
    static Tenants tenants;

    printf("{\"what\": \"learner\", \"bytes\": %zu}\n",
           sizeof(IdletimeLearner));
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        tenants_begin(&tenants);
        measure(&tenants, slots[i], 1);
        free(tenants.fg);
        tenants_begin(&tenants);
        measure(&tenants, slots[i], slots[i]);
        free(tenants.fg);
    }
    measure_build(0);
    measure_build(3);
}
