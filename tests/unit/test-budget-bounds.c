/*
 * Budget: exact values at the bounds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/budget.h"

#define COLLISION       (5.0 * MS)
#define SHARE           0.25

static void near(double got, double want)
{
    g_assert_cmpfloat(ABS(got - want), <=, 1e-6 * MAX(ABS(want), 1));
}

typedef struct Purse {
    IdletimeBudget b;
    IdletimeTotals t;
    int64_t now;
} Purse;

static void look(Purse *p, double request_ns, double cost_ns, int64_t idle_ns,
                 int64_t later_ns)
{
    p->now += later_ns;
    p->t.fg_request_ns += request_ns;
    p->t.bg_cost_ns += cost_ns;
    idletime_budget_look(&p->b, SHARE, COLLISION, &p->t, idle_ns, p->now);
}

/* After a first look, at 1000 s, with sums that are old. */
static Purse purse(void)
{
    Purse p = { .t = { .fg_done = 77, .fg_request_ns = 5 * SEC,
                       .bg_cost_ns = 3 * SEC }, .now = 1000 * SEC };

    idletime_budget_init(&p.b);
    look(&p, 0, 0, 5 * SEC, 0);
    return p;
}

/* What was before the first look is neither earned nor spent. */
static void test_first_look(void)
{
    Purse p = purse();

    g_assert_true(p.b.started);
    near(p.b.request_ns, 0);
    near(p.b.cost_ns, 0);
    near(p.b.credit_ns, COLLISION);
    near(p.b.cap_ns, 24 * COLLISION);
    /* Sums that shrink are those of one who left. */
    near(idletime_grown(80, 77), 3);
    near(idletime_grown(70, 80), 0);
    look(&p, -1.0 * SEC, -1.0 * SEC, 0, MS);
    near(p.b.request_ns, 0);
    near(p.b.cost_ns, 0);
    look(&p, MS, 0, 0, MS);
    near(p.b.request_ns, MS);
}

static void test_earn(void)
{
    Purse p = purse();

    /* 12 ms of which 4 are ours: a quarter of 8, less 4. */
    look(&p, 12 * MS, 4 * MS, 0, MS);
    near(p.b.credit_ns, 5 * MS + 2 * MS - 4 * MS);
    near(p.b.request_ns, 12 * MS);
    near(p.b.cost_ns, 4 * MS);
    near(idletime_budget_slowdown(&p.b), 0.5);
    /* It may owe as much as it may have. */
    look(&p, 0, 500 * MS, 0, MS);
    near(p.b.credit_ns, -120 * MS);
    look(&p, 1.0 * SEC, 0, 0, MS);
    near(p.b.credit_ns, 120 * MS);
    /* All cost, and no foreground time: no slowdown to speak of. */
    p = purse();
    near(idletime_budget_slowdown(&p.b), 0);
    look(&p, 4 * MS, 4 * MS, 0, MS);
    near(idletime_budget_slowdown(&p.b), 0);
}

/* Away for more than a second: a collision in 15 s. */
static void test_away(void)
{
    Purse p = purse();

    look(&p, 0, 0, SEC, 3 * SEC);
    g_assert_cmpfloat(p.b.credit_ns, ==, COLLISION);
    look(&p, 0, 0, 3 * SEC, 3 * SEC);
    near(p.b.credit_ns, COLLISION * (1 + 2 / 15.0));
    look(&p, 0, 0, 30 * SEC, 3 * SEC);
    near(p.b.credit_ns, COLLISION * (1 + 5 / 15.0));
    /* A clock that runs back earns nothing. */
    look(&p, 0, 0, 30 * SEC, -3 * SEC);
    near(p.b.credit_ns, COLLISION * (1 + 5 / 15.0));
}

/* A collision's size becomes known, and changes. */
static void test_cap(void)
{
    IdletimeBudget b;
    IdletimeTotals t = { 0 };

    idletime_budget_init(&b);
    idletime_budget_look(&b, SHARE, 0, &t, 0, SEC);
    near(b.credit_ns, 0);
    idletime_budget_look(&b, SHARE, COLLISION, &t, 0, 2 * SEC);
    near(b.credit_ns, COLLISION);
    idletime_budget_look(&b, SHARE, 10 * COLLISION, &t, 0, 3 * SEC);
    near(b.credit_ns, COLLISION);
    near(b.cap_ns, 240 * COLLISION);
    idletime_budget_look(&b, SHARE, COLLISION / 16, &t, 0, 4 * SEC);
    near(b.credit_ns, COLLISION);
    idletime_budget_look(&b, SHARE, COLLISION / 48, &t, 0, 5 * SEC);
    near(b.credit_ns, COLLISION / 2);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budget/first-look", test_first_look);
    g_test_add_func("/budget/earn", test_earn);
    g_test_add_func("/budget/away", test_away);
    g_test_add_func("/budget/cap", test_cap);
    return g_test_run();
}
