/*
 * What background may cost: budget, channels and service times, each against
 * its definition.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/learner.h"

/* ---- budget */

static void look(IdletimeBudget *b, double request, double cost, int64_t now)
{
    IdletimeTotals totals = b->last;

    totals.fg_done += 1;
    totals.fg_request_ns += request;
    totals.bg_cost_ns += cost;
    totals.quiet = true;
    idletime_budget_look(b, 0.05, 5.0 * MS, &totals, 0, now);
}

static void test_bucket(void)
{
    IdletimeBudget b;
    int64_t now = 0;

    idletime_budget_init(&b);
    look(&b, 0, 0, now);
    look(&b, 0, 0, ++now);
    /* 24 collisions of 5 ms is full, one of them to begin with. */
    g_assert_cmpfloat(ABS(b.cap_ns - 120 * MS), <, 1);
    g_assert_cmpfloat(ABS(b.credit_ns - 5 * MS), <, 1);
    /* 100 ms of foreground earn 5 ms. */
    look(&b, 100.0 * MS, 0, now += 100 * MS);
    g_assert_cmpfloat(ABS(b.credit_ns - 10 * MS), <, 1);
    /* An hour earns no more than the cap. */
    look(&b, 3600.0 * SEC, 0, now += 3600 * SEC);
    g_assert_cmpfloat(b.credit_ns, ==, b.cap_ns);
    /* Cost is spent, and does not earn. */
    look(&b, 10.0 * MS, 10.0 * MS, now += 10 * MS);
    g_assert_cmpfloat(ABS(b.credit_ns - 110 * MS), <, 1);
    g_assert_cmpfloat(idletime_budget_slowdown(&b), <, 1e-4);
    /* A participant that leaves takes its sum: neither earned nor spent. */
    b.last.fg_request_ns += 1000 * SEC;
    b.last.bg_cost_ns += 1000 * SEC;
    look(&b, -500.0 * SEC, -500.0 * SEC, now += MS);
    g_assert_cmpfloat(ABS(b.credit_ns - 110 * MS), <, 1);
}

/* Random spending that obeys the credit: the mean stays within the budget. */
static void test_budget_invariant(void)
{
    uint64_t random = test_seed();

    for (int round = 0; round < 50; round++) {
        double request = 0, cost = 0;
        IdletimeBudget b;
        int64_t now = 0;

        idletime_budget_init(&b);
        look(&b, 0, 0, now);
        look(&b, 0, 0, ++now);
        for (int i = 0; i < 5000; i++) {
            double wait = test_uniform(&random) * 5 * MS;
            bool collide = b.credit_ns > 0 && test_random(&random) % 2;

            request += 5.0 * MS;
            cost += collide ? wait : 0;
            look(&b, 5.0 * MS + (collide ? wait : 0), collide ? wait : 0,
                 now += 20 * MS);
        }
        g_assert_cmpfloat(cost, <=, 0.05 * request + b.cap_ns / 24 + 5.0 * MS);
    }
}

/* ---- channels */

/* A request that starts as number @n; without @random its mean time. */
static void serve(IdletimeChannels *c, uint64_t *random, unsigned servers,
                  uint32_t n)
{
    double mean = n <= servers ? 1 : 1 + (double)(n - servers) / servers;
    double chance = random ? test_uniform(random) : 0.5;

    idletime_channels_note(c, n, 0.1 * MS * (mean + 0.2 * chance));
}

static void test_channels(void)
{
    uint64_t random = test_seed();

    for (unsigned servers = 1; servers <= 32; servers *= 2) {
        IdletimeChannels c;

        idletime_channels_init(&c);
        for (int i = 0; i < 1000 * 40; i++) {
            serve(&c, &random, servers, 1 + i % 40);
        }
        /* One stays free; what is flat up to 1 or 2 says nothing. */
        g_assert_cmpuint(idletime_channels_limit(&c), ==, MAX(servers, 2) - 1);
    }
}

/* Where it is always busy and never faster, nothing is learned. */
static void test_channels_one_level(void)
{
    uint64_t random = test_seed();
    IdletimeChannels c;

    idletime_channels_init(&c);
    for (int i = 0; i < 1000; i++) {
        serve(&c, &random, 1, 9);
    }
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 1);
    /* The foreground gets slower: the ceiling falls. */
    for (int i = 0; i < 400; i++) {
        serve(&c, &random, 16, 1 + i % 16);
    }
}

/* May one be started, and what that takes of the purse. */
static bool probe(IdletimeChannels *c, uint32_t n, double cost_ns)
{
    double price_ns;

    if (!idletime_channels_probe(c, n, cost_ns, &price_ns)) {
        return false;
    }
    c->purse_ns -= price_ns;
    return true;
}

/* One server: where it is known to be slower, a probe is dear. */
static void test_channels_wall(void)
{
    uint64_t random = test_seed();
    IdletimeChannels c;
    int probes = 0;

    idletime_channels_init(&c);
    for (int i = 0; i < 20000; i++) {
        serve(&c, &random, 1, 1);
        /* A tenth of it for probes: one in ten services. */
        idletime_channels_earn(&c, 0.1 * MS);
        if (probe(&c, 2, 0.1 * MS)) {
            serve(&c, &random, 1, 2);
            probes++;
        }
    }
    /* 8 until it is known, then one in 160: 125 of 20,000, not 2,000. */
    g_assert_cmpint(probes, >, 60);
    g_assert_cmpint(probes, <, 150);
}

static void test_channels_ceiling(void)
{
    uint64_t random = test_seed();
    IdletimeChannels c;
    uint32_t before;

    idletime_channels_init(&c);
    for (int i = 0; i < 20000; i++) {
        serve(&c, &random, 16, 1 + i % 20);
    }
    before = idletime_channels_limit(&c);
    g_assert_cmpuint(before, ==, 15);
    idletime_channels_fg(&c, 5000, 5000 * 0.10 * MS, 0.05);
    idletime_channels_fg(&c, 5000, 5000 * 0.10 * MS, 0.05);
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 15);
    idletime_channels_fg(&c, 5000, 5000 * 0.12 * MS, 0.05);
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 14);
}

/*
 * The host was busy while 13 was tried: a wall that is none.  Seen 100 times
 * it is forgotten after 8,192 ln(100/8) = 20,700 requests; the true
 * one, at 17, is found again each time.
 */
static void test_channels_false_wall(void)
{
    uint64_t random = test_seed();
    IdletimeChannels c;

    /* Without chance, which makes a wall of its own once in 1,000 times. */
    idletime_channels_init(&c);
    for (int i = 0; i < 1200; i++) {
        serve(&c, NULL, 16, 1 + i % 12);
    }
    for (int i = 0; i < 100; i++) {
        serve(&c, NULL, 12, 13);
    }
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 11);
    for (int i = 0; i < 80000; i++) {
        uint32_t limit = idletime_channels_limit(&c);

        serve(&c, &random, 16, 1 + i % limit);
        idletime_channels_earn(&c, 0.1 * MS);
        if (probe(&c, limit + 2, 0.1 * MS)) {
            serve(&c, &random, 16, limit + 2);
        }
        if (probe(&c, limit + 1, 0.1 * MS)) {
            serve(&c, &random, 16, limit + 1);
        }
        g_assert_cmpuint(idletime_channels_limit(&c), <=, 17);
    }
    g_assert_cmpuint(idletime_channels_limit(&c), >=, 15);
    g_assert_cmpuint(idletime_channels_limit(&c), <=, 16);
}

/* Numbers come from shared memory: those that have no level change nothing. */
static void test_channels_bounds(void)
{
    static IdletimeChannels c, before;

    idletime_channels_init(&c);
    before = c;
    idletime_channels_note(&c, 0, MS);
    idletime_channels_note(&c, IDLETIME_LEVELS + 1, MS);
    idletime_channels_note(&c, UINT32_MAX, MS);
    g_assert_cmpmem(&c, sizeof(c), &before, sizeof(before));
    idletime_channels_note(&c, IDLETIME_LEVELS, MS);
    idletime_channels_note(&c, 1, MS);
    g_assert_cmpfloat(c.level[IDLETIME_LEVELS].count, ==, 1);
    g_assert_cmpfloat(c.level[1].count, ==, 1);
}

/* One step down for each measurement that is too slow, one up again. */
static void test_channels_steps(void)
{
    uint64_t random = test_seed();
    static const struct { double ms; uint32_t limit; } step[] = {
        { 0.12, 14 }, { 0.12, 13 }, { 0.1035, 13 }, { 0.101, 14 },
        { 0.101, 15 }, { 0.101, 15 },
    };
    IdletimeChannels c;

    idletime_channels_init(&c);
    for (int i = 0; i < 20000; i++) {
        serve(&c, &random, 16, 1 + i % 20);
    }
    g_assert_cmpuint(c.limit, ==, 15);
    /* With too many of ours, then without us: what it is compared with. */
    idletime_channels_fg(&c, 5000, 5000 * 0.15 * MS, 0.05);
    idletime_channels_fg(&c, 5000, 5000 * 0.10 * MS, 0.05);
    g_assert_cmpfloat(ABS(c.alone_ns - 0.10 * MS), <, 1e-6);
    for (unsigned i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
        idletime_channels_fg(&c, 5000, 5000 * step[i].ms * MS, 0.05);
        g_assert_cmpuint(idletime_channels_limit(&c), ==, step[i].limit);
        g_assert_cmpfloat(ABS(c.slowdown - (step[i].ms / 0.10 - 1)), <, 1e-9);
    }
    /* Two steps above the limit are probed, three are not; never the wall. */
    c.purse_ns = 20 * c.mean_ns;
    c.wall = 0;
    g_assert_false(probe(&c, 18, 1));
    g_assert_true(probe(&c, 17, 1));
    c.wall = 16;
    g_assert_false(probe(&c, 17, 1));
    g_assert_true(probe(&c, 16, 1));
}

/* Measurements of 5,000 requests of @ns, as many as @n. */
static void foreground(IdletimeChannels *c, int n, double ns)
{
    for (int i = 0; i < n; i++) {
        idletime_channels_fg(c, 5000, 5000 * ns, 0.05);
    }
}

/*
 * Its requests become three times as large.  That is not our doing, and the
 * background is not shut off for good: of 32 measurements one, and of 8 where
 * the ceiling binds, is without us and shows it.
 */
static void test_channels_away(void)
{
    uint64_t random = test_seed();
    IdletimeChannels c;
    uint32_t away = 0;

    idletime_channels_init(&c);
    for (int i = 0; i < 20000; i++) {
        serve(&c, &random, 16, 1 + i % 20);
    }
    for (int i = 0; i < 330; i++) {
        foreground(&c, 1, 0.10 * MS);
        away += idletime_channels_limit(&c) == 2;
    }
    g_assert_cmpuint(away, ==, 10);
    foreground(&c, 20, 0.30 * MS);
    g_assert_cmpuint(idletime_channels_limit(&c), <, 8);
    foreground(&c, 80, 0.30 * MS);
    g_assert_cmpuint(idletime_channels_limit(&c), >=, 14);
}

/* It stopped while we were away for it: nothing to wait for. */
static void test_channels_away_alone(void)
{
    uint64_t random = test_seed();
    IdletimeChannels c;

    idletime_channels_init(&c);
    for (int i = 0; i < 20000; i++) {
        serve(&c, &random, 16, 1 + i % 20);
    }
    do {
        foreground(&c, 1, 0.10 * MS);
    } while (idletime_channels_limit(&c) != 2);
    for (int i = 0; i < 300; i++) {
        serve(&c, &random, 16, 2);
    }
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 15);
}

/* ---- service times */

/* A request in fifty meets a stalled host; then the device becomes slower. */
static void test_stalls(void)
{
    uint64_t random = test_seed();
    IdletimeServiceTimes s = { 0 };

    for (int i = 0; i < 1000; i++) {
        idletime_service_note(&s, 4096, (5 + 0.2 * test_uniform(&random)) * MS +
                                      (i % 50 == 49) * 40 * MS);
    }
    /* 5.1 ms; each stall counts for a quarter of that: 0.025 ms on average. */
    g_assert_cmpfloat(idletime_service_any(&s).mean_ns, >, 5.05 * MS);
    g_assert_cmpfloat(idletime_service_any(&s).mean_ns, <, 5.3 * MS);
    g_assert_cmpfloat(idletime_service_believed(&s, 4096, 45 * MS), <, 8 * MS);
    g_assert_cmpfloat(idletime_service_believed(&s, 4096, 5 * MS), ==, 5 * MS);
    /* Of a size never seen all is believed. */
    g_assert_cmpfloat(idletime_service_believed(&s, 65536, 45 * MS), ==,
                      45 * MS);
    for (int i = 0; i < 200; i++) {
        idletime_service_note(&s, 4096, 20 * MS);
    }
    g_assert_cmpfloat(idletime_service_any(&s).mean_ns, >, 18 * MS);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budget/bucket", test_bucket);
    g_test_add_func("/budget/invariant", test_budget_invariant);
    g_test_add_func("/service/stalls", test_stalls);
    g_test_add_func("/channels/servers", test_channels);
    g_test_add_func("/channels/one-level", test_channels_one_level);
    g_test_add_func("/channels/wall", test_channels_wall);
    g_test_add_func("/channels/ceiling", test_channels_ceiling);
    g_test_add_func("/channels/wall/false", test_channels_false_wall);
    g_test_add_func("/channels/bounds", test_channels_bounds);
    g_test_add_func("/channels/steps", test_channels_steps);
    g_test_add_func("/channels/away", test_channels_away);
    g_test_add_func("/channels/away/alone", test_channels_away_alone);
    return g_test_run();
}
