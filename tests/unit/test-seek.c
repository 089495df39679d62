/*
 * What a seek back costs, told from gaps that were used and gaps that were
 * left alone, against a disk that is known.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/seek.h"

#define SERVICE (15.0 * MS)
#define PROCESSES_MAX 8

/* Bursts, one request after the other; the background runs in each gap. */
typedef struct Disk {
    int requests;               /* of a burst; 0: six */
    double each_ns;             /* of each; 0: SERVICE */
    double back_ns;             /* more after background */
    double first_ns;            /* more after any pause */
    double delay_ns;            /* collision of every second return */
    double spread;              /* of service times */
    int processes;              /* of the background: an equal share each */
    int changes;                /* one is seen every so many gaps; 0: never */
    bool late;                  /* one of them has seen less than the others */
} Disk;

typedef struct Result {
    double paid_ns, true_ns;    /* for returns */
    int used, alone;            /* gaps */
    IdletimeSeek s[PROCESSES_MAX];
} Result;

static double service(const Disk *d, uint64_t *random)
{
    double each_ns = d->each_ns > 0 ? d->each_ns : SERVICE;

    return each_ns * (1 + d->spread * (2 * test_uniform(random) - 1));
}

/* One look of everybody; the request that was met was of the first one. */
static void look(const Disk *d, Result *r, IdletimeSpan span, bool ran,
                 double delay_ns)
{
    for (int i = 0; i < d->processes; i++) {
        IdletimeTurn turn = {
            .started = ran ? d->processes : 0, .own = ran,
            .delay_ns = i == 0 ? delay_ns : 0, .met = delay_ns > 0,
            .settled = !ran,
        };

        idletime_seek_look(&r->s[i], &span, &turn, SERVICE);
    }
}

static void burst(const Disk *d, Result *r, bool alone, int n,
                  uint64_t *random)
{
    double delay_ns = !alone && n % 2 ? d->delay_ns : 0;

    for (int i = 0; i < d->processes; i++) {
        r->paid_ns += idletime_seek_share(&r->s[i], 0, 0) * r->s[i].cost_ns;
    }
    for (int i = 0; i < (d->requests ? d->requests : 6); i++) {
        IdletimeSpan span = { .done = 1, .quiet = true };

        span.worked_ns = service(d, random) +
                         (i == 0 ? d->first_ns + delay_ns : 0) +
                         (i == 0 && !alone ? d->back_ns : 0);
        look(d, r, span, false, i == 0 ? delay_ns : 0);
    }
}

static void go_on(const Disk *d, Result *r, int gaps)
{
    uint64_t random = test_seed();

    for (int n = 0; n < gaps; n++) {
        uint64_t gap = n * 400LL * MS + test_range(&random, 0, MS);
        bool alone = true;

        for (int i = 0; i < d->processes; i++) {
            bool away = idletime_seek_away(&r->s[i], SERVICE, gap);

            /* Who has seen the same draws the same lot. */
            g_assert_true(d->late || i == 0 || away == alone);
            alone &= away;
            if (d->changes && n % d->changes == 0) {
                idletime_seek_doubt(&r->s[i]);
            }
        }
        r->used += !alone;
        r->alone += alone;
        r->true_ns += alone ? 0 : d->back_ns;
        if (!alone) {
            IdletimeSpan span = { .background = true };

            look(d, r, span, true, 0);
        }
        burst(d, r, alone, n, &random);
    }
}

static Result run(const Disk *d, int gaps)
{
    Result r = { 0 };

    go_on(d, &r, gaps);
    return r;
}

static void test_seek(void)
{
    Disk d = { .back_ns = 9 * MS, .spread = 0.3, .processes = 1 };
    Result r = run(&d, 4000);

    g_assert_cmpfloat(r.paid_ns / r.true_ns, >, 0.85);
    g_assert_cmpfloat(r.paid_ns / r.true_ns, <, 1.15);
    /* A sixteenth is left alone, and more at the beginning. */
    g_assert_cmpint(r.alone, <, 4000 / 10);
    /* It is found within the first hundred gaps. */
    r = run(&d, 100);
    g_assert_cmpfloat(r.s[0].cost_ns, >, 4 * MS);
}

/* The first start in a gap is paid, those after it are free. */
static void test_price(void)
{
    IdletimeSeek s = { .cost_ns = 9 * MS };
    IdletimeSpan span = { .background = true };

    g_assert_cmpfloat(idletime_seek_price(&s), ==, 9 * MS);
    idletime_seek_look(&s, &span, &(IdletimeTurn) { .started = 1, .own = 1 },
                       SERVICE);
    g_assert_cmpfloat(idletime_seek_price(&s), ==, 0);
}

/* What begins a burst takes longer whatever we do: we do not pay for that. */
static void test_first_is_slow(void)
{
    Disk d = { .first_ns = 9 * MS, .spread = 0.3, .processes = 1 };
    Result r = run(&d, 4000);

    g_assert_cmpfloat(r.paid_ns, <, 4000 * 0.05 * SERVICE);
    g_assert_cmpint(r.alone, <, 4000 / 20);
}

/* No arm, and a host that needs a moment to wake up: no gap is left alone. */
static void test_fixed(void)
{
    Disk d = { .first_ns = MS / 2, .spread = 0.1, .processes = 1 };
    Result r = run(&d, 1000);

    g_assert_cmpfloat(r.paid_ns, ==, 0);
    g_assert_cmpint(r.alone, ==, 0);
}

/*
 * Single requests: there is none after foreground to compare with.  A gap in
 * sixteen is left alone, and no more; an arm is found all the same.
 */
static void test_single(void)
{
    Disk d = { .requests = 1, .spread = 0.1, .processes = 1 };
    Result r = run(&d, 1000);

    g_assert_cmpfloat(r.paid_ns, <, 1000 * 0.02 * SERVICE);
    g_assert_cmpint(r.alone, <, 1000 / 10);
    /* 1,000 say 0.86 with a standard deviation of 0.05. */
    d.back_ns = 9 * MS;
    r = run(&d, 4000);
    g_assert_cmpfloat(r.paid_ns / r.true_ns, >, 0.7);
    g_assert_cmpfloat(r.paid_ns / r.true_ns, <, 1.1);
    g_assert_cmpint(r.alone, <, 4000 / 10);
}

/* Collisions are paid where they are seen. */
static void test_collisions(void)
{
    Disk d = { .delay_ns = 10 * MS, .spread = 0.1, .processes = 1 };
    Result r = run(&d, 1000);

    g_assert_cmpfloat(r.paid_ns, ==, 0);
    d.back_ns = 9 * MS;
    r = run(&d, 1000);
    g_assert_cmpfloat(r.paid_ns / r.true_ns, >, 0.8);
    g_assert_cmpfloat(r.paid_ns / r.true_ns, <, 1.2);
}

/* Eight processes that see the same pay once, together. */
static void test_processes(void)
{
    Disk d = { .back_ns = 9 * MS, .delay_ns = 10 * MS, .spread = 0.3,
               .processes = PROCESSES_MAX };
    Result r = run(&d, 4000);

    g_assert_cmpfloat(r.paid_ns / r.true_ns, >, 0.8);
    g_assert_cmpfloat(r.paid_ns / r.true_ns, <, 1.2);
}

/*
 * Who comes later learns what it is, though the others pay for it already.  400
 * gaps, as one is left alone only where all do, and the others do a sixteenth.
 */
static void test_late(void)
{
    Disk d = { .back_ns = 9 * MS, .spread = 0.3, .processes = 3 };
    Result r = run(&d, 1000);

    r.s[0] = (IdletimeSeek) { 0 };
    d.late = true;
    go_on(&d, &r, 400);
    g_assert_cmpfloat(r.s[0].cost_ns, >, 6 * MS);
}

/* Changes that leave the disk as it is: what the arm costs stays known. */
static void test_doubt(void)
{
    Disk d = { .back_ns = 9 * MS, .spread = 0.3, .processes = 1,
               .changes = 25 };
    Result r = run(&d, 4000);

    g_assert_cmpfloat(r.paid_ns / r.true_ns, >, 0.85);
    g_assert_cmpfloat(r.paid_ns / r.true_ns, <, 1.15);
    g_assert_cmpint(r.alone, <, 4000 / 10);
}

/* After 4,000 gaps another foreground; what is paid from @from to @to then. */
static double paid_after(const Disk *before, const Disk *after, bool doubt,
                         int from, int to)
{
    Result r = run(before, 4000);

    if (doubt) {
        idletime_seek_doubt(&r.s[0]);
    }
    go_on(after, &r, from);
    r.paid_ns = r.true_ns = 0;
    go_on(after, &r, to - from);
    return r.paid_ns / r.true_ns;
}

/*
 * The foreground's requests take another time, and so does the way back: it is
 * learned within some hundred gaps, and what was learned before misleads nobody.
 */
static void test_other(const void *opaque)
{
    const Disk *after = opaque;
    Disk before = { .back_ns = 9 * MS, .spread = 0.3, .processes = 1 };
    double paid = paid_after(&before, after, false, 700, 1500);

    g_assert_cmpfloat(paid, >, 0.8);
    g_assert_cmpfloat(paid, <, 1.25);
}

/* What begins a burst took longer, and does so no more; or the reverse. */
static void test_other_first(void)
{
    Disk slow = { .back_ns = 9 * MS, .first_ns = 9 * MS, .spread = 0.3,
                  .processes = 1 };
    Disk fast = { .back_ns = 9 * MS, .spread = 0.3, .processes = 1 };

    g_assert_cmpfloat(paid_after(&slow, &fast, true, 1500, 3000), >, 0.75);
    g_assert_cmpfloat(paid_after(&fast, &slow, true, 1500, 3000), <, 1.2);
}

static const Disk shorter = { .each_ns = 5 * MS, .back_ns = 9 * MS,
                              .spread = 0.3, .processes = 1 };
static const Disk shorter_nearer = { .each_ns = 5 * MS, .back_ns = 3 * MS,
                                     .spread = 0.3, .processes = 1 };
static const Disk longer = { .each_ns = 30 * MS, .back_ns = 9 * MS,
                             .spread = 0.3, .processes = 1 };

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/seek/arm", test_seek);
    g_test_add_func("/seek/price", test_price);
    g_test_add_func("/seek/first-is-slow", test_first_is_slow);
    g_test_add_func("/seek/fixed", test_fixed);
    g_test_add_func("/seek/single", test_single);
    g_test_add_func("/seek/collisions", test_collisions);
    g_test_add_func("/seek/processes", test_processes);
    g_test_add_func("/seek/late", test_late);
    g_test_add_func("/seek/doubt", test_doubt);
    g_test_add_func("/seek/other-first", test_other_first);
    g_test_add_data_func("/seek/shorter", &shorter, test_other);
    g_test_add_data_func("/seek/shorter-nearer", &shorter_nearer, test_other);
    g_test_add_data_func("/seek/longer", &longer, test_other);
    return g_test_run();
}
