/*
 * How many servers: each bound of channels.c, exactly.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/channels.h"

/* What has no level of its own, so that noting it changes no other. */
#define ELSEWHERE       IDLETIME_LEVELS
/* Foreground requests of a measurement. */
#define ENOUGH          4096

static IdletimeChannels begin(void)
{
    IdletimeChannels c;

    idletime_channels_init(&c);
    return c;
}

static IdletimeLevel level(double count, double mean_ns, double square)
{
    return (IdletimeLevel) { count, mean_ns, square };
}

/* Look at the levels again. */
static void judge(IdletimeChannels *c)
{
    idletime_channels_note(c, ELSEWHERE, 1000);
    c->level[ELSEWHERE].count = 0;
}

/* As many levels from @low to @high, all alike; slower beyond. */
static IdletimeChannels flat(uint32_t low, uint32_t high)
{
    IdletimeChannels c = begin();

    c.away = false;
    c.alone_ns = 1000;
    for (uint32_t n = low; n <= high; n++) {
        c.level[n] = level(100, 1000, 0);
    }
    judge(&c);
    return c;
}

/* ---- levels */

static void test_level(void)
{
    IdletimeChannels c = begin();

    idletime_channels_note(&c, 3, 100);
    g_assert_cmpfloat(c.level[3].count, ==, 1);
    g_assert_cmpfloat(c.level[3].mean_ns, ==, 100);
    g_assert_cmpfloat(c.level[3].square, ==, 0);
    idletime_channels_note(&c, 3, 200);
    g_assert_cmpfloat(c.level[3].mean_ns, ==, 150);
    g_assert_cmpfloat(c.level[3].square, ==, 2500);
    /* Of all: the first, then a 32nd of each. */
    g_assert_cmpfloat(c.mean_ns, ==, 100 + 100 / 32.0);
    /* The newest of 512 weighs a 512th. */
    c.level[3] = level(512, 1000, 0);
    idletime_channels_note(&c, 3, 1512);
    g_assert_cmpfloat(c.level[3].count, ==, 512);
    g_assert_cmpfloat(c.level[3].mean_ns, ==, 1001);
    g_assert_cmpfloat(c.level[3].square, ==, 511);
    c.level[3] = level(511, 1000, 0);
    idletime_channels_note(&c, 3, 1512);
    g_assert_cmpfloat(c.level[3].count, ==, 512);
}

/* Eight make a level known; the highest is half as much again as the lowest. */
static void test_limit(void)
{
    static const struct { uint32_t low, high, limit; } pair[] = {
        { 1, 1, 1 }, { 1, 2, 1 }, { 1, 3, 2 }, { 1, 95, 94 }, { 2, 2, 1 },
        { 2, 3, 2 }, { 3, 4, 1 }, { 4, 5, 1 }, { 4, 6, 5 }, { 63, 94, 1 },
        { 63, 95, 94 },
    };
    IdletimeChannels c;

    for (unsigned i = 0; i < G_N_ELEMENTS(pair); i++) {
        c = flat(pair[i].low, pair[i].high);
        g_assert_cmpuint(c.limit, ==, pair[i].limit);
        g_assert_cmpuint(c.wall, ==, 0);
    }
    /* The last level is one, too. */
    c = flat(1, 95);
    c.level[IDLETIME_LEVELS] = level(99, 1000, 0);
    idletime_channels_note(&c, IDLETIME_LEVELS, 1000);
    g_assert_cmpuint(c.limit, ==, IDLETIME_LEVELS - 1);
    c = begin();
    c.level[IDLETIME_LEVELS] = level(99, 1000, 0);
    idletime_channels_note(&c, 1, 1000);
    g_assert_cmpuint(c.limit, ==, 1);
    c = flat(1, 2);
    c.level[3] = level(7.9, 1000, 0);
    judge(&c);
    g_assert_cmpuint(c.limit, ==, 1);
    c.level[3].count = 8;
    judge(&c);
    g_assert_cmpuint(c.limit, ==, 2);
    /* A level of which nothing is known is passed over. */
    c = flat(1, 2);
    c.level[4] = level(8, 1000, 0);
    judge(&c);
    g_assert_cmpuint(c.limit, ==, 3);
}

/* Slower by more than half a percent, and than three standard errors. */
static void test_wall(void)
{
    static const struct { double mean, square, before; bool wall; } pair[] = {
        { 1004.9, 0, 0, false }, { 1005.1, 0, 0, true },
        { 900, 0, 0, false },
        /* 400 / 100: an error of 2, three of them 6. */
        { 1010.9, 400, 0, false }, { 1011.1, 400, 0, true },
        /* With 500 / 100 of those below: 9. */
        { 1013.9, 400, 500, false }, { 1014.1, 400, 500, true },
    };
    IdletimeChannels c;

    for (unsigned i = 0; i < G_N_ELEMENTS(pair); i++) {
        c = flat(1, 1);
        c.level[1].square = pair[i].before;
        c.level[4] = level(100, pair[i].mean, pair[i].square);
        judge(&c);
        g_assert_cmpuint(c.wall, ==, pair[i].wall ? 4 : 0);
        g_assert_cmpuint(c.limit, ==, pair[i].wall ? 1 : 3);
    }
    /* Those below are pooled: 100 of 1000 and 300 of 1004 are 1003. */
    c = flat(1, 1);
    c.level[2] = level(300, 1004, 0);
    c.level[3] = level(100, 1008.0, 0);
    judge(&c);
    g_assert_cmpuint(c.wall, ==, 0);
    c.level[3] = level(100, 1008.1, 0);
    judge(&c);
    g_assert_cmpuint(c.wall, ==, 3);
    /* Their squares, too: (100 * 700 + 300 * 300) / 400 / 400: an error of 1. */
    c.level[1].square = 700;
    c.level[2].square = 300;
    c.level[3].mean_ns = 1010.9;
    judge(&c);
    g_assert_cmpuint(c.wall, ==, 0);
    c.level[3].mean_ns = 1011.1;
    judge(&c);
    g_assert_cmpuint(c.wall, ==, 3);
    /* What is beyond the wall does not count, however fast it was. */
    c = flat(1, 4);
    c.level[5] = level(100, 2000, 0);
    for (uint32_t n = 6; n < 20; n++) {
        c.level[n] = level(100, 1000, 0);
    }
    judge(&c);
    g_assert_cmpuint(c.wall, ==, 5);
    g_assert_cmpuint(c.limit, ==, 3);
}

/* A wall loses an 8192nd with each request of ours, where there are several. */
static void test_wall_is_forgotten(void)
{
    IdletimeChannels c = flat(1, 4);

    c.level[5] = level(100, 2000, 0);
    judge(&c);
    g_assert_cmpfloat(c.level[5].count, ==, 100 * (1 - 1 / 8192.0));
    judge(&c);
    g_assert_cmpfloat(c.level[5].count, <, 100 * (1 - 1 / 8192.0));
    g_assert_cmpfloat(c.level[4].count, ==, 100);
    /* Two at a time are several. */
    c = flat(1, 3);
    c.level[4] = level(100, 2000, 0);
    judge(&c);
    g_assert_cmpuint(c.limit, ==, 2);
    g_assert_cmpfloat(c.level[4].count, ==, 100 * (1 - 1 / 8192.0));
    /* One server's is not. */
    c = flat(1, 1);
    c.level[2] = level(100, 2000, 0);
    judge(&c);
    g_assert_cmpuint(c.wall, ==, 2);
    g_assert_cmpfloat(c.level[2].count, ==, 100);
}

/* ---- what the foreground gets */

static void measure(IdletimeChannels *c, double each_ns, double share)
{
    idletime_channels_fg(c, ENOUGH, ENOUGH * each_ns, share);
}

/* It is measured without us first; a measurement is 4096 requests. */
static void test_measurement(void)
{
    IdletimeChannels c = begin();

    g_assert_true(c.away);
    idletime_channels_fg(&c, ENOUGH - 1, (ENOUGH - 1) * 1000.0, 0.25);
    g_assert_cmpfloat(c.alone_ns, ==, 0);
    idletime_channels_fg(&c, 1, 1000, 0.25);
    g_assert_cmpfloat(c.alone_ns, ==, 1000);
    g_assert_false(c.away);
    g_assert_cmpfloat(c.done, ==, 0);
    g_assert_cmpfloat(c.request_ns, ==, 0);
    measure(&c, 1200, 0.25);
    g_assert_cmpfloat(c.slowdown, ==, 1.2 - 1);
    /* 32 with us, then one without, of which half is believed. */
    for (int i = 1; i < 32; i++) {
        g_assert_false(c.away);
        g_assert_cmpuint(c.since_away, ==, i);
        measure(&c, 1200, 0.25);
    }
    g_assert_true(c.away);
    measure(&c, 1100, 0.25);
    g_assert_cmpfloat(c.alone_ns, ==, 1050);
    g_assert_false(c.away);
    g_assert_cmpuint(c.since_away, ==, 0);
}

/* With 257 of ours in it, it is none without us. */
static void test_given_up(void)
{
    IdletimeChannels c = begin();

    idletime_channels_fg(&c, 100, 100, 0.25);
    for (int i = 0; i < 256; i++) {
        idletime_channels_note(&c, 1, 1000);
    }
    g_assert_true(c.away);
    g_assert_cmpfloat(c.done, ==, 100);
    idletime_channels_note(&c, 1, 1000);
    g_assert_false(c.away);
    g_assert_cmpfloat(c.done, ==, 0);
    g_assert_cmpuint(c.own, ==, 0);
    /* What it is without us is not known yet: no slowdown, and again. */
    measure(&c, 5000, 0.25);
    g_assert_cmpfloat(c.slowdown, ==, 0);
    g_assert_true(c.away);
    g_assert_cmpuint(c.ceiling, ==, IDLETIME_LEVELS);
    for (int i = 0; i < 256; i++) {
        idletime_channels_note(&c, 1, 1000);
    }
    g_assert_true(c.away);
}

static void test_ceiling(void)
{
    IdletimeChannels c = flat(1, 16);

    g_assert_cmpuint(idletime_channels_limit(&c), ==, 15);
    /* The budget itself is none too much; more is. */
    measure(&c, 1250, 0.25);
    g_assert_cmpuint(c.ceiling, ==, IDLETIME_LEVELS);
    measure(&c, 1251, 0.25);
    g_assert_cmpuint(c.ceiling, ==, 14);
    measure(&c, 2000, 0.25);
    g_assert_cmpuint(c.ceiling, ==, 13);
    /* Half of the budget: neither; less: one up. */
    measure(&c, 1125, 0.25);
    g_assert_cmpuint(c.ceiling, ==, 13);
    measure(&c, 1124, 0.25);
    g_assert_cmpuint(c.ceiling, ==, 14);
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 14);
    /* Where the ceiling binds, one in nine is without us: 8 with. */
    g_assert_cmpuint(c.since_away, ==, 5);
    measure(&c, 1200, 0.25);
    measure(&c, 1200, 0.25);
    g_assert_false(c.away);
    measure(&c, 1200, 0.25);
    g_assert_true(c.away);
    /* Then two at a time are the most. */
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 2);
    measure(&c, 1000, 0.25);
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 14);
    /* It falls down to one, and no further. */
    for (int i = 0; i < 40; i++) {
        measure(&c, c.away ? 1000 : 2000, 0.25);
    }
    g_assert_cmpuint(c.ceiling, ==, 1);
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 1);
    /* A ceiling that is where the limit is does not bind. */
    c = flat(1, 16);
    c.ceiling = 15;
    c.since_away = 20;
    measure(&c, 1200, 0.25);
    g_assert_false(c.away);
    c.ceiling = 14;
    measure(&c, 1200, 0.25);
    g_assert_true(c.away);
    /* It rises to the number of levels, and no further. */
    c = flat(1, 16);
    c.ceiling = IDLETIME_LEVELS - 1;
    measure(&c, 1000, 0.25);
    g_assert_cmpuint(c.ceiling, ==, IDLETIME_LEVELS);
    measure(&c, 1000, 0.25);
    g_assert_cmpuint(c.ceiling, ==, IDLETIME_LEVELS);
}

/* What is beside the foreground on one server costs what is seen of it. */
static void test_dear(void)
{
    IdletimeChannels c = flat(1, 1);

    g_assert_cmpfloat(c.dear, ==, 1);
    measure(&c, 1250, 0.25);
    g_assert_cmpfloat(c.dear, ==, 1);
    /* Twice what it may be: twice as dear; four times as much at most. */
    measure(&c, 1500, 0.25);
    g_assert_cmpfloat(ABS(c.dear - 2), <, 1e-9);
    measure(&c, 9000, 0.25);
    g_assert_cmpfloat(ABS(c.dear - 0.9 * 2 * 4), <, 1e-9);
    measure(&c, 1100, 0.25);
    g_assert_cmpfloat(ABS(c.dear - 0.9 * 0.9 * 2 * 4), <, 1e-9);
    for (int i = 0; i < 40; i++) {
        measure(&c, 1000, 0.25);
    }
    g_assert_cmpfloat(c.dear, ==, 1);
    for (int i = 0; i < 40; i++) {
        measure(&c, c.away ? 1000 : 9000, 0.25);
    }
    g_assert_cmpfloat(c.dear, ==, 64);
}

/* ---- probes */

/* A tenth of what the budget earns, twenty requests' time at most. */
static void test_purse(void)
{
    IdletimeChannels c = begin();

    c.mean_ns = 1000;
    idletime_channels_earn(&c, 50000);
    g_assert_cmpfloat(c.purse_ns, ==, 5000);
    idletime_channels_earn(&c, 50000);
    g_assert_cmpfloat(c.purse_ns, ==, 10000);
    idletime_channels_earn(&c, 200000);
    g_assert_cmpfloat(c.purse_ns, ==, 20000);
}

/* A probe of level @n costs @price_ns, and is had with @need_ns, not less. */
static void assert_needs(const IdletimeChannels *before, uint32_t n,
                         double cost_ns, double price_ns, double need_ns)
{
    IdletimeChannels c = *before;
    double price;

    c.purse_ns = need_ns - 1;
    g_assert_false(idletime_channels_probe(&c, n, cost_ns, &price));
    c.purse_ns = need_ns;
    g_assert_true(idletime_channels_probe(&c, n, cost_ns, &price));
    g_assert_cmpfloat(price, ==, price_ns);
    g_assert_cmpfloat(c.purse_ns, ==, need_ns);
}

static void assert_price(const IdletimeChannels *before, uint32_t n,
                         double cost_ns, double price_ns)
{
    assert_needs(before, n, cost_ns, price_ns, price_ns);
}

static void assert_never(const IdletimeChannels *before, uint32_t n)
{
    IdletimeChannels c = *before;
    double price;

    c.purse_ns = 1e9;
    g_assert_false(idletime_channels_probe(&c, n, 1, &price));
}

static void test_probe(void)
{
    IdletimeChannels c = begin();

    c.mean_ns = 1000;
    c.level[2].count = 15;
    c.level[3].count = 16;
    assert_price(&c, 2, 100, 100);
    /*
     * What is known costs 16 times as much, and leaves enough for the next one
     * up; all cost a full purse at most.
     */
    assert_needs(&c, 3, 100, 1600, 1700);
    c.level[4].count = 16;
    c.level[5].count = 15;
    assert_price(&c, 3, 100, 1600);
    assert_needs(&c, 4, 100, 1600, 1700);
    c.level[4].count = 0;
    assert_price(&c, 3, 2000, 20000);
    assert_price(&c, 2, 30000, 20000);
    assert_price(&c, IDLETIME_LEVELS, 100, 100);
    /* Beyond all levels there is nothing to be known. */
    assert_price(&c, IDLETIME_LEVELS + 1, 100, 1600);
    assert_price(&c, UINT32_MAX, 100, 1600);
    /* Up to the wall, of which enough is known, and not past it. */
    c.wall = 2;
    assert_price(&c, 2, 100, 1600);
    assert_never(&c, 3);
    /* Several servers: two above the limit. */
    c = flat(1, 8);
    c.mean_ns = 1000;
    assert_price(&c, 9, 100, 100);
    assert_never(&c, 10);
    c.ceiling = 5;
    assert_price(&c, 7, 100, 1600);
    assert_never(&c, 8);
    /* One server: anywhere. */
    c = flat(1, 1);
    assert_price(&c, 40, 100, 100);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/channels/level", test_level);
    g_test_add_func("/channels/limit", test_limit);
    g_test_add_func("/channels/wall", test_wall);
    g_test_add_func("/channels/wall/forgotten", test_wall_is_forgotten);
    g_test_add_func("/channels/measurement", test_measurement);
    g_test_add_func("/channels/given-up", test_given_up);
    g_test_add_func("/channels/ceiling", test_ceiling);
    g_test_add_func("/channels/dear", test_dear);
    g_test_add_func("/channels/purse", test_purse);
    g_test_add_func("/channels/probe", test_probe);
    return g_test_run();
}
