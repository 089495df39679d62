/*
 * Learner: what an observer's ring shows, late, out of order or replaced.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/gaps.h"

typedef struct Ring {
    IdletimeFgBoard *fg;
    IdletimeObserved *page;
    IdletimeGaps gaps;
} Ring;

static void ring_begin(Ring *r)
{
    r->fg = aligned_alloc(IDLETIME_PAGE_BYTES, sizeof(*r->fg));
    r->page = aligned_alloc(IDLETIME_OBSERVED_BYTES, sizeof(*r->page));
    memset(r->fg, 0, sizeof(*r->fg));
    memset(r->page, 0, sizeof(*r->page));
    idletime_gaps_init(&r->gaps, INT64_MIN);
    r->gaps.observed = r->page;
}

static void ring_end(Ring *r)
{
    free(r->fg);
    free(r->page);
}

static void put(Ring *r, uint64_t place, int64_t at_ns, bool busy)
{
    r->page->ring[place % IDLETIME_OBSERVED_RING] = (uint64_t)at_ns << 1 | busy;
}

static void add(Ring *r, int64_t at_ns, bool busy)
{
    put(r, r->page->ring_head++, at_ns, busy);
}

static void look(Ring *r, int64_t now_ns)
{
    idletime_gaps_look(&r->gaps, r->fg, 1, now_ns);
}

static void assert_gap(const Ring *r, uint32_t i, int64_t begin, int64_t end)
{
    g_assert_cmpuint(i, <, r->gaps.count);
    g_assert_cmpint(r->gaps.gap[i].begin_ns, ==, begin);
    g_assert_cmpint(r->gaps.gap[i].end_ns, ==, end);
}

/*
 *           100  200  300  400
 * slot        ####
 * observer       #######     ###
 */
static void test_union(void)
{
    IdletimeFgWriter w;
    Ring r;

    ring_begin(&r);
    w = (IdletimeFgWriter) { .line = r.fg->line, .page = r.fg->page };
    idletime_fg_begin(&w, 120, 1);
    idletime_fg_end(&w, 200);
    add(&r, 150, true);
    add(&r, 300, false);
    add(&r, 400, true);
    look(&r, 500);
    g_assert_cmpuint(r.gaps.count, ==, 1);
    assert_gap(&r, 0, 300, 400);
    g_assert_cmpint(r.gaps.busy, ==, 1);
    idletime_gaps_dead(&r.gaps, IDLETIME_GAPS_OBSERVER);
    g_assert_cmpint(r.gaps.busy, ==, 0);
    ring_end(&r);
}

/* A place that is taken and not written: what is there is of a round ago. */
static void test_late(void)
{
    const int64_t late = 10 * SEC;
    Ring r;

    ring_begin(&r);
    for (int i = 0; i < IDLETIME_OBSERVED_RING; i++) {
        add(&r, (i + 1) * 10 * MS, !(i % 2));
        look(&r, (i + 1) * 10 * MS);
    }
    r.page->ring_head++;
    add(&r, late + 5 * MS, false);
    look(&r, late + 6 * MS);
    g_assert_cmpuint(r.gaps.count, ==, 0);
    g_assert_cmpuint(r.gaps.refused, ==, 0);
    put(&r, r.page->ring_head - 2, late, true);
    look(&r, late + 7 * MS);
    g_assert_cmpuint(r.gaps.count, ==, 1);
    /* 256 entries: the last idle one is of 2.56 s. */
    assert_gap(&r, 0, 2560 * MS, late);
    g_assert_cmpint(r.gaps.busy, ==, 0);
    ring_end(&r);
}

/* Never written: after so many others it is passed over. */
static void test_lost(void)
{
    Ring r;

    ring_begin(&r);
    add(&r, 10 * MS, true);
    add(&r, 20 * MS, false);
    r.page->ring_head++;
    for (int i = 3; i < 100; i++) {
        add(&r, i * 10 * MS, i % 2);
    }
    look(&r, 2 * SEC);
    g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 100);
    /* 20 ms to 30 ms, and 48 gaps more. */
    g_assert_cmpuint(r.gaps.count, ==, 49);
    assert_gap(&r, 0, 20 * MS, 30 * MS);
    ring_end(&r);
}

/* The places of two processors are in another order than their times. */
static void test_out_of_order(void)
{
    Ring r;

    ring_begin(&r);
    add(&r, 100, true);
    add(&r, 205, true);
    add(&r, 200, false);
    add(&r, 300, false);
    look(&r, 400);
    g_assert_cmpuint(r.gaps.count, ==, 1);
    assert_gap(&r, 0, 200, 205);
    g_assert_cmpint(r.gaps.busy, ==, 0);
    g_assert_cmpuint(r.gaps.refused, ==, 0);
    ring_end(&r);
}

/* Written after this look read its clock: of the next look. */
static void test_early(void)
{
    Ring r;

    ring_begin(&r);
    add(&r, 100, true);
    add(&r, 200, false);
    add(&r, 300, true);
    look(&r, 250);
    g_assert_cmpint(r.gaps.busy, ==, 0);
    look(&r, 350);
    g_assert_cmpint(r.gaps.busy, ==, 1);
    g_assert_cmpuint(r.gaps.count, ==, 1);
    assert_gap(&r, 0, 200, 300);
    ring_end(&r);
}

/* Another observer begins with an empty ring; the old one ended busy. */
static void test_new_observer(void)
{
    Ring r;

    ring_begin(&r);
    add(&r, 100, true);
    add(&r, 200, false);
    add(&r, 300, true);
    look(&r, 400);
    g_assert_cmpint(r.gaps.busy, ==, 1);
    memset(r.page, 0, sizeof(*r.page));
    look(&r, 500);
    g_assert_cmpint(r.gaps.busy, ==, 0);
    add(&r, 600, true);
    add(&r, 700, false);
    look(&r, 800);
    g_assert_cmpint(r.gaps.busy, ==, 0);
    /* That one ended busy: when, nobody knows, so there is no gap of it. */
    g_assert_cmpuint(r.gaps.count, ==, 0);
    ring_end(&r);
}

/* A place that is taken and was never written: nothing is read from there. */
static void test_empty_place(void)
{
    Ring r;

    ring_begin(&r);
    r.page->ring_head = 1;
    add(&r, 10, true);
    look(&r, 20);
    g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 0);
    g_assert_cmpuint(r.gaps.length, ==, 0);
    g_assert_cmpuint(r.gaps.refused, ==, 0);
    put(&r, 0, 5, true);
    put(&r, 1, 10, false);
    look(&r, 20);
    g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 2);
    g_assert_cmpint(r.gaps.busy_ns, ==, 5);
    ring_end(&r);
}

/* A millisecond before the last one is late, more is of the round before. */
static void test_how_late(void)
{
    for (int i = 0; i < 2; i++) {
        Ring r;

        ring_begin(&r);
        add(&r, 10 * MS, true);
        add(&r, 20 * MS, false);
        look(&r, 30 * MS);
        g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 2);
        add(&r, 19 * MS - i, true);
        look(&r, 30 * MS);
        g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 3 - i);
        g_assert_cmpuint(r.gaps.refused, ==, 1 - i);
        ring_end(&r);
        /* Of this very look; one later is of the next. */
        ring_begin(&r);
        add(&r, 10 * MS + i, true);
        look(&r, 10 * MS);
        g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 1 - i);
        ring_end(&r);
    }
}

/* 64 may be writing at a time: the 65th says that this one never will be. */
static void test_writers(void)
{
    Ring r;

    ring_begin(&r);
    add(&r, 10 * MS, true);
    add(&r, 20 * MS, false);
    r.page->ring_head++;
    for (int i = 1; i < 64; i++) {
        add(&r, (20 + i) * MS, i % 2);
    }
    look(&r, SEC);
    g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 2);
    add(&r, 84 * MS, false);
    look(&r, SEC);
    g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 67);
    ring_end(&r);
}

/* Beside slots: it has their share of a batch, and its entries stay apart. */
static void test_share(void)
{
    static IdletimeFgWriter w[IDLETIME_SLOTS];
    Ring r;

    ring_begin(&r);
    for (int i = 0; i < IDLETIME_SLOTS; i++) {
        w[i] = (IdletimeFgWriter) { .line = &r.fg->line[i],
                                    .page = &r.fg->page[i] };
    }
    /* Four slots of 210 entries: 255 are a share, with an observer 204. */
    for (int i = 0; i < 4; i++) {
        for (int k = 1; k <= 105; k++) {
            idletime_fg_begin(&w[i], k * 1000 + i, 1);
            idletime_fg_end(&w[i], k * 1000 + 10);
        }
    }
    add(&r, 500, true);
    add(&r, 700, false);
    add(&r, 600, false);
    add(&r, 650, true);
    idletime_gaps_look(&r.gaps, r.fg, 4, SEC);
    g_assert_cmpuint(r.gaps.length, ==, 4 * 153 + 4);
    g_assert_cmpuint(r.gaps.refused, ==, 0);
    g_assert_cmpuint(r.gaps.batch[0] >> 1, ==, 500);
    g_assert_cmpuint(r.gaps.batch[3] >> 1, ==, 700);
    /* Without news it has no share. */
    for (int i = 0; i < 4; i++) {
        for (int k = 201; k <= 305; k++) {
            idletime_fg_begin(&w[i], k * 1000 + i, 1);
            idletime_fg_end(&w[i], k * 1000 + 10);
        }
    }
    idletime_gaps_look(&r.gaps, r.fg, 4, SEC);
    g_assert_cmpuint(r.gaps.length, ==, 4 * 210);
    ring_end(&r);
}

/* All slots have news: the batch is full, and it is read at the next look. */
static void test_full_batch(void)
{
    static IdletimeFgWriter w;
    Ring r;

    ring_begin(&r);
    for (int i = 0; i < IDLETIME_SLOTS; i++) {
        w = (IdletimeFgWriter) { .line = &r.fg->line[i],
                                 .page = &r.fg->page[i] };
        idletime_fg_begin(&w, 1000 + i, 1);
    }
    add(&r, 5000, true);
    idletime_gaps_look(&r.gaps, r.fg, IDLETIME_SLOTS, SEC);
    g_assert_cmpuint(r.gaps.length, ==, IDLETIME_GAPS_BATCH);
    g_assert_cmpuint(r.gaps.track[IDLETIME_GAPS_OBSERVER].read, ==, 0);
    idletime_gaps_look(&r.gaps, r.fg, IDLETIME_SLOTS, SEC);
    g_assert_cmpuint(r.gaps.length, ==, 1);
    g_assert_cmpint(r.gaps.busy, ==, IDLETIME_SLOTS + 1);
    ring_end(&r);
}

static void test_hostile_ring(void)
{
    uint64_t seed = test_seed();
    Ring r;

    ring_begin(&r);
    for (int i = 1; i < 3000; i++) {
        int64_t last = INT64_MIN;

        for (size_t n = 0; n < sizeof(*r.page) / 8; n += test_range(&seed, 1,
                                                                    40)) {
            ((uint64_t *)r.page)[n] = UINT64_MAX - (test_random(&seed) & 7);
            ((uint64_t *)r.page)[n] >>= test_range(&seed, 0, 1) ? 0 :
                                        test_range(&seed, 0, 63);
        }
        look(&r, i * MS);
        g_assert_true(r.gaps.busy == 0 || r.gaps.busy == 1);
        for (uint32_t n = 0; n < r.gaps.count; n++) {
            g_assert_cmpint(r.gaps.gap[n].begin_ns, >=, last);
            last = r.gaps.gap[n].end_ns;
            g_assert_cmpint(r.gaps.gap[n].begin_ns, <=, last);
            g_assert_cmpint(last, <=, i * MS);
        }
    }
    ring_end(&r);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/observed/ring/union", test_union);
    g_test_add_func("/observed/ring/late", test_late);
    g_test_add_func("/observed/ring/lost", test_lost);
    g_test_add_func("/observed/ring/out-of-order", test_out_of_order);
    g_test_add_func("/observed/ring/early", test_early);
    g_test_add_func("/observed/ring/new-observer", test_new_observer);
    g_test_add_func("/observed/ring/empty-place", test_empty_place);
    g_test_add_func("/observed/ring/how-late", test_how_late);
    g_test_add_func("/observed/ring/writers", test_writers);
    g_test_add_func("/observed/ring/share", test_share);
    g_test_add_func("/observed/ring/full-batch", test_full_batch);
    g_test_add_func("/observed/ring/hostile", test_hostile_ring);
    return g_test_run();
}
