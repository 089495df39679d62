/*
 * The union of idle gaps, from rings that are honest, late, fast or hostile.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/gaps.h"

#define SLOTS 8

typedef struct Board {
    IdletimeFgBoard *fg;
    IdletimeFgWriter w[SLOTS];
    IdletimeGaps gaps;
} Board;

static void board_begin(Board *b)
{
    b->fg = aligned_alloc(IDLETIME_PAGE_BYTES, sizeof(*b->fg));
    memset(b->fg, 0, sizeof(*b->fg));
    for (int i = 0; i < SLOTS; i++) {
        b->w[i] = (IdletimeFgWriter) { .line = &b->fg->line[i],
                                       .page = &b->fg->page[i] };
    }
    idletime_gaps_init(&b->gaps, INT64_MIN);
}

static void busy(Board *b, int slot, int64_t from, int64_t to)
{
    idletime_fg_begin(&b->w[slot], from, 512);
    idletime_fg_end(&b->w[slot], to);
}

static void look(Board *b, int64_t now)
{
    idletime_gaps_look(&b->gaps, b->fg, SLOTS, now);
}

static void assert_gap(const Board *b, uint32_t i, int64_t begin, int64_t end)
{
    g_assert_cmpuint(i, <, b->gaps.count);
    g_assert_cmpint(b->gaps.gap[i].begin_ns, ==, begin);
    g_assert_cmpint(b->gaps.gap[i].end_ns, ==, end);
}

static void test_union(void)
{
    Board b;

    board_begin(&b);
    /*
     *         100  200  300  400  500  600
     * slot 0   ####           #########
     * slot 1      #######          ####
     * union    ##########     #########
     */
    busy(&b, 0, 100, 200);
    busy(&b, 1, 150, 300);
    busy(&b, 0, 400, 600);
    look(&b, 610);
    g_assert_cmpuint(b.gaps.count, ==, 1);
    assert_gap(&b, 0, 300, 400);
    g_assert_cmpint(b.gaps.idle_since_ns, ==, 600);
    g_assert_cmpint(idletime_gaps_idle(&b.gaps, 650), ==, 100 + 50);
    g_assert_cmpint(idletime_gaps_busy(&b.gaps, 650), ==, b.gaps.busy_ns);
    /* Split over two looks, and seen while busy. */
    idletime_fg_begin(&b.w[2], 700, 512);
    look(&b, 720);
    assert_gap(&b, 0, 600, 700);
    g_assert_cmpint(b.gaps.busy, ==, 1);
    idletime_fg_end(&b.w[2], 730);
    look(&b, 740);
    g_assert_cmpuint(b.gaps.count, ==, 0);
    g_assert_cmpint(b.gaps.idle_since_ns, ==, 730);
    free(b.fg);
}

static void test_since(void)
{
    Board b;

    board_begin(&b);
    idletime_gaps_init(&b.gaps, 250);
    busy(&b, 0, 100, 200);
    busy(&b, 0, 240, 300);
    busy(&b, 0, 400, 500);
    look(&b, 500);
    /* The gap from 200 began before 250. */
    g_assert_cmpuint(b.gaps.count, ==, 1);
    assert_gap(&b, 0, 300, 400);
    free(b.fg);
}

/* More transitions than a ring holds: no gap is invented, later ones count. */
static void test_overrun(void)
{
    Board b;
    int64_t t = 1000;

    board_begin(&b);
    busy(&b, 0, 10, 20);
    look(&b, 30);
    for (int i = 0; i < 1000; i++, t += 100) {
        busy(&b, 0, t, t + 40);
    }
    look(&b, t);
    g_assert_cmpuint(b.gaps.overruns, ==, 1);
    g_assert_cmpuint(b.gaps.count, >, 64);
    for (uint32_t i = 0; i < b.gaps.count; i++) {
        g_assert_cmpint(b.gaps.gap[i].end_ns - b.gaps.gap[i].begin_ns, ==, 60);
    }
    free(b.fg);
}

/* Slots that fill their rings between two looks leave room for the others. */
static void test_share(void)
{
    Board b;
    int64_t t = 1000;

    board_begin(&b);
    for (int round = 0; round < 10; round++) {
        /* Seven with 240 entries each, more than a batch; one with two. */
        for (int i = 0; i < 120; i++, t += 100) {
            for (int slot = 0; slot < 7; slot++) {
                busy(&b, slot, t + slot, t + 40);
            }
        }
        busy(&b, 7, t + 10, t + 20);
        look(&b, t += 100);
        for (int slot = 0; slot < SLOTS; slot++) {
            g_assert_cmpuint(b.gaps.track[slot].read, ==,
                             b.fg->line[slot].ring_head);
        }
        /* A share is 128 entries, of which the newest 96 are read: */
        g_assert_cmpuint(b.gaps.length, ==, 7 * 96 + 2);
        /* 48 busy periods, and the first gap among them is known. */
        g_assert_cmpuint(b.gaps.count, ==, 48);
        for (uint32_t i = 0; i < 47; i++) {
            g_assert_cmpint(b.gaps.gap[i].end_ns - b.gaps.gap[i].begin_ns, ==,
                            60);
        }
        g_assert_cmpuint(b.gaps.overruns, ==, 7 * round);
    }
    free(b.fg);
}

/* A ring's bound: 255 are read, of 256 the newest 192. */
static void test_ring_bound(void)
{
    Board b;

    board_begin(&b);
    busy(&b, 0, 10, 20);
    look(&b, 30);
    for (int i = 0; i < 127; i++) {
        busy(&b, 0, 100 + 20 * i, 110 + 20 * i);
    }
    idletime_fg_begin(&b.w[0], 100 + 20 * 127, 512);
    look(&b, 10000);
    g_assert_cmpuint(b.gaps.length, ==, 255);
    g_assert_cmpuint(b.gaps.overruns, ==, 0);
    g_assert_cmpint(b.gaps.busy, ==, 1);
    g_assert_cmpint(idletime_gaps_idle(&b.gaps, 20000), ==, 80 + 127 * 10);
    idletime_fg_end(&b.w[0], 100 + 20 * 127 + 10);
    look(&b, 10000);
    for (int i = 0; i < 128; i++) {
        busy(&b, 0, 20000 + 20 * i, 20010 + 20 * i);
    }
    look(&b, 30000);
    g_assert_cmpuint(b.gaps.length, ==, 192);
    g_assert_cmpuint(b.gaps.overruns, ==, 1);
    free(b.fg);
}

/* What counts as idle: gaps that are over, and the one under way, at last. */
static void test_idle(void)
{
    Board b;

    board_begin(&b);
    /* Nothing was seen yet: no idle time is known. */
    look(&b, 50);
    g_assert_cmpint(idletime_gaps_idle(&b.gaps, 60), ==, 0);
    busy(&b, 0, 100, 200);
    idletime_fg_begin(&b.w[0], 300, 512);
    look(&b, 350);
    g_assert_cmpint(idletime_gaps_idle(&b.gaps, 400), ==, 100);
    g_assert_cmpint(b.gaps.busy_ns, ==, 100);
    g_assert_cmpint(idletime_gaps_busy(&b.gaps, 340), ==, 100 + 40);
    g_assert_cmpint(idletime_gaps_busy(&b.gaps, 290), ==, 100);
    idletime_fg_end(&b.w[0], 350);
    /* An entry of this very moment is taken, a later one at the next look. */
    look(&b, 349);
    g_assert_cmpint(b.gaps.busy, ==, 1);
    look(&b, 350);
    g_assert_cmpint(b.gaps.busy, ==, 0);
    g_assert_cmpuint(b.gaps.refused, ==, 0);
    free(b.fg);

    board_begin(&b);
    busy(&b, 0, 100, 200);
    look(&b, 200);
    g_assert_cmpint(b.gaps.idle_since_ns, ==, 200);
    g_assert_cmpint(idletime_gaps_idle(&b.gaps, 200), ==, 0);
    g_assert_cmpint(idletime_gaps_idle(&b.gaps, 201), ==, 1);
    free(b.fg);
}

static void test_dead(void)
{
    Board b;

    board_begin(&b);
    busy(&b, 0, 100, 200);
    idletime_fg_begin(&b.w[1], 300, 512);
    look(&b, 400);
    g_assert_cmpuint(b.gaps.busy, ==, 1);
    idletime_gaps_dead(&b.gaps, 1);
    g_assert_cmpuint(b.gaps.busy, ==, 0);
    /* Nobody knows when it stopped: the gap that begins there is not whole. */
    busy(&b, 0, 500, 600);
    busy(&b, 0, 700, 800);
    look(&b, 900);
    g_assert_cmpuint(b.gaps.count, ==, 1);
    assert_gap(&b, 0, 600, 700);
    /* The slot is claimed anew. */
    memset(&b.fg->line[1], 0, sizeof(b.fg->line[1]));
    b.w[1] = (IdletimeFgWriter) { .line = &b.fg->line[1],
                                  .page = &b.fg->page[1] };
    look(&b, 950);
    busy(&b, 1, 1000, 1100);
    look(&b, 1200);
    g_assert_cmpuint(b.gaps.count, ==, 1);
    assert_gap(&b, 0, 800, 1000);
    free(b.fg);
}

/*
 * Against a reference that paints each nanosecond: random honest slots, looks
 * at random times.
 */
static void test_reference(void)
{
    enum { SPAN = 20000 };
    uint64_t random = test_seed();

    for (int round = 0; round < 200; round++) {
        static uint8_t painted[SPAN];
        int64_t next[SLOTS], until[SLOTS] = { 0 }, idle = 0;
        int64_t last_look = 0;
        uint32_t seen = 0, expected = 0;
        Board b;

        board_begin(&b);
        memset(painted, 0, sizeof(painted));
        for (int i = 0; i < SLOTS; i++) {
            next[i] = test_range(&random, 1, 500);
        }
        for (int64_t t = 1; t < SPAN; t++) {
            for (int i = 0; i < SLOTS; i++) {
                if (until[i] == t) {
                    idletime_fg_end(&b.w[i], t);
                    next[i] = t + test_range(&random, 1, 800);
                } else if (next[i] == t && until[i] <= t) {
                    idletime_fg_begin(&b.w[i], t, 512);
                    until[i] = t + test_range(&random, 1, 200);
                }
                painted[t] |= until[i] > t;
            }
            if (t - last_look > 300 && test_random(&random) % 100 == 0) {
                look(&b, t);
                seen += b.gaps.count;
                for (uint32_t g = 0; g < b.gaps.count; g++) {
                    idle += b.gaps.gap[g].end_ns - b.gaps.gap[g].begin_ns;
                }
                last_look = t;
            }
        }
        look(&b, SPAN);
        seen += b.gaps.count;
        for (uint32_t g = 0; g < b.gaps.count; g++) {
            idle += b.gaps.gap[g].end_ns - b.gaps.gap[g].begin_ns;
        }
        /* Whole gaps: those between two busy times. */
        {
            int64_t from = 0, painted_idle = 0;

            for (int64_t t = 1; t < SPAN; t++) {
                if (painted[t - 1] && !painted[t]) {
                    from = t;
                } else if (!painted[t - 1] && painted[t] && from) {
                    painted_idle += t - from;
                    expected++;
                }
            }
            g_assert_cmpint(idle, ==, painted_idle);
        }
        g_assert_cmpuint(seen, ==, expected);
        g_assert_cmpuint(b.gaps.overruns, ==, 0);
        free(b.fg);
    }
}

/* Rings and heads of noise: bounded, sane, and the honest slot still counts. */
static void test_hostile(void)
{
    uint64_t random = test_seed();
    Board b;

    board_begin(&b);
    for (int64_t round = 1; round < 3000; round++) {
        int64_t now = round * 10000;

        for (int i = 1; i < SLOTS; i++) {
            uint64_t *ring = b.fg->page[i].ring;

            for (int k = 0; k < 8; k++) {
                ring[test_random(&random) % IDLETIME_RING] =
                    test_random(&random) >> test_random(&random) % 64;
            }
            b.fg->line[i].ring_head = test_random(&random) % 3 ?
                b.fg->line[i].ring_head + test_random(&random) % 600 :
                test_random(&random) >> test_random(&random) % 64;
        }
        busy(&b, 0, now - 5000, now - 4000);
        look(&b, now);
        g_assert_cmpint(b.gaps.busy, >=, 0);
        g_assert_cmpint(b.gaps.busy, <=, SLOTS);
        g_assert_cmpuint(b.gaps.length, <=, IDLETIME_GAPS_BATCH);
        g_assert_cmpuint(b.gaps.count, <=, b.gaps.length);
        g_assert_cmpint(b.gaps.now_ns, <=, now);
        for (uint32_t g = 0; g < b.gaps.count; g++) {
            g_assert_cmpint(b.gaps.gap[g].begin_ns, <, b.gaps.gap[g].end_ns);
            g_assert_cmpint(b.gaps.gap[g].end_ns, <=, now);
        }
    }
    free(b.fg);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/gaps/union", test_union);
    g_test_add_func("/gaps/since", test_since);
    g_test_add_func("/gaps/overrun", test_overrun);
    g_test_add_func("/gaps/share", test_share);
    g_test_add_func("/gaps/ring-bound", test_ring_bound);
    g_test_add_func("/gaps/idle", test_idle);
    g_test_add_func("/gaps/dead", test_dead);
    g_test_add_func("/gaps/reference", test_reference);
    g_test_add_func("/gaps/hostile", test_hostile);
    return g_test_run();
}
