/*
 * Gaps: exact values at the bounds, of times, rings and batches.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/gaps.h"

#define SLOTS 6

typedef struct Board {
    IdletimeFgBoard *fg;
    IdletimeFgWriter w[SLOTS];
    IdletimeGaps gaps;
} Board;

static Board *board(int64_t since_ns)
{
    static Board b;

    free(b.fg);
    b.fg = aligned_alloc(IDLETIME_PAGE_BYTES, sizeof(*b.fg));
    memset(b.fg, 0, sizeof(*b.fg));
    for (int i = 0; i < SLOTS; i++) {
        b.w[i] = (IdletimeFgWriter) { .line = &b.fg->line[i],
                                      .page = &b.fg->page[i] };
    }
    idletime_gaps_init(&b.gaps, since_ns);
    return &b;
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

static void assert_gaps(const Board *b, uint32_t n, int64_t begin, int64_t end)
{
    g_assert_cmpuint(b->gaps.count, ==, n);
    if (n) {
        g_assert_cmpint(b->gaps.gap[n - 1].begin_ns, ==, begin);
        g_assert_cmpint(b->gaps.gap[n - 1].end_ns, ==, end);
    }
}

/* An entry that a writer may have written, honest or not. */
static void scribble(Board *b, int slot, int64_t at, bool is_busy)
{
    uint64_t *head = &b->fg->line[slot].ring_head;

    b->fg->page[slot].ring[*head % IDLETIME_RING] = (uint64_t)at << 1 | is_busy;
    ++*head;
}

/* ---- the union */

/* One ends as the other begins: no gap; a nanosecond later there is one. */
static void test_touching(void)
{
    Board *b = board(INT64_MIN);

    busy(b, 0, 100, 200);
    busy(b, 1, 200, 300);
    busy(b, 0, 301, 400);
    look(b, 400);
    assert_gaps(b, 1, 300, 301);
    g_assert_cmpint(b->gaps.idle_ns, ==, 1);
    g_assert_cmpint(b->gaps.busy_ns, ==, 100 + 100 + 99);
    /* Two that overlap are one busy period. */
    b = board(INT64_MIN);
    busy(b, 0, 100, 250);
    busy(b, 1, 200, 300);
    look(b, 400);
    g_assert_cmpint(b->gaps.busy_ns, ==, 200);
    g_assert_cmpint(b->gaps.busy, ==, 0);
}

/* A gap that begins at the first moment that counts is whole. */
static void test_whole(void)
{
    Board *b = board(200);

    busy(b, 0, 100, 200);
    busy(b, 0, 300, 400);
    look(b, 500);
    assert_gaps(b, 1, 200, 300);
    b = board(201);
    busy(b, 0, 100, 200);
    busy(b, 0, 300, 400);
    look(b, 500);
    assert_gaps(b, 0, 0, 0);
    /* It was idle all the same. */
    g_assert_cmpint(b->gaps.idle_ns, ==, 100);
    /* What was before the first busy time is known to nobody. */
    b = board(INT64_MIN);
    g_assert_cmpint(idletime_gaps_idle(&b->gaps, INT64_MAX - 1), ==, 0);
    idletime_fg_begin(&b->w[0], 50, 1);
    look(b, 60);
    g_assert_cmpint(b->gaps.idle_ns, ==, 0);
    g_assert_cmpint(idletime_gaps_idle(&b->gaps, 70), ==, 0);
    g_assert_cmpint(b->gaps.busy_since_ns, ==, 50);
}

/* A writer was preempted: its times count as of the last one merged. */
static void test_late(void)
{
    Board *b = board(INT64_MIN);

    busy(b, 0, 100, 200);
    look(b, 250);
    busy(b, 1, 120, 180);
    busy(b, 0, 300, 400);
    look(b, 450);
    assert_gaps(b, 1, 200, 300);
    g_assert_cmpint(b->gaps.busy_ns, ==, 200);
    g_assert_cmpint(b->gaps.now_ns, ==, 400);
    /* Late by its begin alone. */
    busy(b, 1, 350, 430);
    look(b, 450);
    assert_gaps(b, 0, 0, 0);
    g_assert_cmpint(b->gaps.busy_ns, ==, 230);
    g_assert_cmpint(b->gaps.idle_since_ns, ==, 430);
}

static void test_idle(void)
{
    Board *b = board(INT64_MIN);

    busy(b, 0, 100, 200);
    look(b, 300);
    /* Asked for a time before the end: nothing yet. */
    g_assert_cmpint(idletime_gaps_idle(&b->gaps, 199), ==, 0);
    g_assert_cmpint(idletime_gaps_idle(&b->gaps, 200), ==, 0);
    g_assert_cmpint(idletime_gaps_idle(&b->gaps, 250), ==, 50);
    idletime_fg_begin(&b->w[0], 260, 1);
    look(b, 300);
    g_assert_cmpint(idletime_gaps_idle(&b->gaps, 300), ==, 60);
}

/* ---- what cannot be true */

/* A ring that was overrun by entries of a time to come: forgotten at once. */
static void test_overrun_by_the_future(void)
{
    Board *b = board(INT64_MIN);

    busy(b, 0, 100, 200);
    look(b, 250);
    for (unsigned i = 0; i < 2 * IDLETIME_RING; i++) {
        scribble(b, 1, INT64_MAX / 4, true);
    }
    look(b, 300);
    g_assert_cmpint(b->gaps.whole_from_ns, ==, 300);
    busy(b, 0, 400, 500);
    busy(b, 0, 600, 700);
    look(b, 800);
    assert_gaps(b, 1, 500, 600);
}

static void test_refused(void)
{
    Board *b = board(INT64_MIN);

    busy(b, 0, 100, 200);
    look(b, 1000);
    scribble(b, 0, 300, false);         /* idle again */
    look(b, 1000);
    g_assert_cmpuint(b->gaps.refused, ==, 1);
    scribble(b, 0, 199, true);          /* before its own last one */
    look(b, 1000);
    g_assert_cmpuint(b->gaps.refused, ==, 2);
    scribble(b, 0, 1001 + IDLETIME_GAPS_AHEAD_NS, true);      /* far ahead */
    look(b, 1000);
    g_assert_cmpuint(b->gaps.refused, ==, 3);
    g_assert_cmpint(b->gaps.busy, ==, 0);
    scribble(b, 0, 200, true);          /* as soon as it was idle */
    look(b, 1000);
    g_assert_cmpuint(b->gaps.refused, ==, 3);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    scribble(b, 0, 400, true);          /* busy again */
    scribble(b, 0, 1000, false);        /* now */
    look(b, 1000);
    g_assert_cmpuint(b->gaps.refused, ==, 4);
    g_assert_cmpint(b->gaps.busy, ==, 0);
    g_assert_cmpint(b->gaps.idle_since_ns, ==, 1000);
    g_assert_cmpuint(b->gaps.track[0].read, ==, b->fg->line[0].ring_head);
}

/* What is written while a look reads the rings is taken by the next one. */
static void test_ahead(void)
{
    Board *b = board(INT64_MIN);

    busy(b, 0, 100, 200);
    scribble(b, 0, 1000, true);
    scribble(b, 0, 1001, false);
    scribble(b, 0, 1000 + IDLETIME_GAPS_AHEAD_NS, true);
    busy(b, 1, 1005, 1010);
    look(b, 1000);
    assert_gaps(b, 1, 200, 1000);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    look(b, 1000);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    look(b, 1007);
    assert_gaps(b, 1, 1001, 1005);
    look(b, 2000);
    g_assert_cmpint(b->gaps.busy, ==, 0);
    g_assert_cmpint(b->gaps.idle_since_ns, ==, 1010);
    look(b, 1000 + IDLETIME_GAPS_AHEAD_NS);
    assert_gaps(b, 1, 1010, 1000 + IDLETIME_GAPS_AHEAD_NS);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    g_assert_cmpuint(b->gaps.refused, ==, 0);
}

/* ---- a ring that came round */

/* @n busy periods of 10 ns each 100 ns, the first at @from. */
static int64_t many(Board *b, int slot, int64_t from, int n)
{
    for (int i = 0; i < n; i++, from += 100) {
        busy(b, slot, from, from + 10);
    }
    return from;
}

/* The oldest that is left says what the slot was before it. */
static void test_resume(void)
{
    Board *b = board(INT64_MIN);
    int64_t end;

    /* Idle before, idle when we resume. */
    busy(b, 0, 100, 200);
    look(b, 250);
    end = many(b, 0, 1000, 200);
    look(b, end);
    g_assert_cmpuint(b->gaps.overruns, ==, 1);
    /* 192 entries: 96 busy periods, and the gaps between them. */
    assert_gaps(b, 95, end - 190, end - 100);
    g_assert_cmpint(b->gaps.gap[0].begin_ns, ==, end - 9600 + 10);
    g_assert_cmpint(b->gaps.whole_from_ns, ==, end - 9600);
    g_assert_cmpint(b->gaps.busy, ==, 0);
    /* Busy when we resume: the time until its end is busy. */
    idletime_fg_begin(&b->w[0], end, 1);
    look(b, end);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    idletime_fg_end(&b->w[0], end + 10);
    end = many(b, 0, end + 100, 150);
    idletime_fg_begin(&b->w[0], end, 1);
    look(b, end + 5);
    g_assert_cmpuint(b->gaps.overruns, ==, 2);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    /* The oldest entry that is left is an end. */
    g_assert_cmpint(b->gaps.whole_from_ns, ==, end - 9600 + 10);
    assert_gaps(b, 96, end - 90, end);
    g_assert_cmpint(b->gaps.gap[0].begin_ns, ==, end - 9600 + 10);
    /* Was busy, is idle when we resume. */
    idletime_fg_end(&b->w[0], end + 10);
    end = many(b, 0, end + 100, 150);
    look(b, end);
    g_assert_cmpuint(b->gaps.overruns, ==, 3);
    g_assert_cmpint(b->gaps.busy, ==, 0);
    assert_gaps(b, 95, end - 190, end - 100);
}

/* Idle before, busy when we resume: busy from there on, no gap before it. */
static void test_resume_busy(void)
{
    Board *b = board(INT64_MIN);
    int64_t end;

    busy(b, 0, 100, 200);
    look(b, 250);
    end = many(b, 0, 1000, 150);
    idletime_fg_begin(&b->w[0], end, 1);
    look(b, end + 5);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    assert_gaps(b, 96, end - 90, end);
    g_assert_cmpint(b->gaps.gap[0].begin_ns, ==, end - 9600 + 10);
    g_assert_cmpint(b->gaps.busy_ns, ==, 100 + 95 * 10);
}

/* A first look at a ring that came round is no overrun of ours. */
static void test_first_look(void)
{
    Board *b = board(INT64_MIN);
    int64_t end = many(b, 0, 1000, 200);

    look(b, end);
    g_assert_cmpuint(b->gaps.overruns, ==, 0);
    g_assert_cmpuint(b->gaps.length, ==, 192);
    /* The writer is at work on the oldest: it is not read. */
    b = board(INT64_MIN);
    many(b, 0, 1000, 127);
    idletime_fg_begin(&b->w[0], 90000, 1);
    look(b, 100000);
    g_assert_cmpuint(b->gaps.length, ==, 255);
    b = board(INT64_MIN);
    many(b, 0, 1000, 128);
    look(b, 100000);
    g_assert_cmpuint(b->gaps.length, ==, 192);
}

/* A slot that was given to somebody else begins again. */
static void test_given_away(void)
{
    Board *b = board(INT64_MIN);

    busy(b, 0, 100, 200);
    busy(b, 0, 300, 400);
    idletime_fg_begin(&b->w[0], 500, 1);
    look(b, 550);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    b->fg->line[0].ring_head = 0;
    scribble(b, 0, 600, true);
    scribble(b, 0, 700, false);
    scribble(b, 0, 800, true);
    scribble(b, 0, 900, false);
    look(b, 1000);
    /* Nobody knows when the one before was over. */
    assert_gaps(b, 1, 700, 800);
    g_assert_cmpint(b->gaps.whole_from_ns, ==, 501);
    g_assert_cmpuint(b->gaps.track[0].read, ==, 4);
    g_assert_cmpuint(b->gaps.overruns, ==, 0);
    g_assert_cmpint(b->gaps.busy, ==, 0);
}

/* ---- the batch */

/* All slots that have news have the same share; those without take none. */
static void test_share(void)
{
    Board *b = board(INT64_MIN);
    int64_t end = 1000;

    /* Five of 210 entries each: 204 are a share, of which 153 are read. */
    for (int i = 0; i < 5; i++) {
        end = many(b, i, 1000 + i, 105);
    }
    look(b, end);
    g_assert_cmpuint(b->gaps.length, ==, 5 * 153);
    for (int i = 0; i < 5; i++) {
        g_assert_cmpuint(b->gaps.track[i].read, ==, 210);
    }
    /* Four of them: 255, so all are read. */
    for (int i = 0; i < 4; i++) {
        many(b, i, end + i, 105);
    }
    look(b, 2 * end);
    g_assert_cmpuint(b->gaps.length, ==, 4 * 210);
    g_assert_cmpuint(b->gaps.overruns, ==, 0);
    /* Nobody: no work. */
    look(b, 3 * end);
    g_assert_cmpuint(b->gaps.length, ==, 0);
    g_assert_cmpuint(b->gaps.count, ==, 0);
}

/* Slots in use alone are read, and no more than there are. */
static void test_slots(void)
{
    Board *b = board(INT64_MIN);

    busy(b, 0, 100, 200);
    busy(b, 5, 300, 400);
    idletime_gaps_look(&b->gaps, b->fg, 5, 1000);
    g_assert_cmpuint(b->gaps.length, ==, 2);
    idletime_gaps_look(&b->gaps, b->fg, UINT32_MAX, 1000);
    g_assert_cmpuint(b->gaps.length, ==, 2);
    assert_gaps(b, 1, 200, 300);
}

/* The last slot is one, too: what it does not end is ended. */
static void test_dead(void)
{
    Board *b = board(INT64_MIN);
    const uint32_t last = IDLETIME_SLOTS - 1;
    IdletimeFgWriter w = { .line = &b->fg->line[last],
                           .page = &b->fg->page[last] };

    busy(b, 0, 10, 20);
    idletime_fg_begin(&w, 100, 1);
    idletime_gaps_look(&b->gaps, b->fg, IDLETIME_SLOTS, 200);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    idletime_gaps_dead(&b->gaps, 0);
    g_assert_cmpint(b->gaps.busy, ==, 1);
    idletime_gaps_dead(&b->gaps, last);
    g_assert_cmpint(b->gaps.busy, ==, 0);
    g_assert_cmpint(b->gaps.whole_from_ns, ==, 101);
    idletime_gaps_dead(&b->gaps, last);
    g_assert_cmpint(b->gaps.busy, ==, 0);
    /* No slot: some slot, and no memory that is not ours. */
    idletime_gaps_dead(&b->gaps, UINT32_MAX);
}

/* Many slots, in any order: sorted by time. */
static void test_order(void)
{
    static IdletimeFgWriter w[IDLETIME_SLOTS];
    uint64_t random = test_seed();
    Board *b = board(INT64_MIN);

    for (uint32_t i = 0; i < IDLETIME_SLOTS; i++) {
        int64_t at = 1000 * (1 + test_random(&random) % 100000);

        w[i] = (IdletimeFgWriter) { .line = &b->fg->line[i],
                                    .page = &b->fg->page[i] };
        idletime_fg_begin(&w[i], at, 1);
    }
    idletime_gaps_look(&b->gaps, b->fg, IDLETIME_SLOTS, SEC);
    g_assert_cmpuint(b->gaps.length, ==, IDLETIME_SLOTS);
    for (uint32_t i = 1; i < IDLETIME_SLOTS; i++) {
        g_assert_cmpuint(b->gaps.batch[i - 1], <=, b->gaps.batch[i]);
    }
    g_assert_cmpint(b->gaps.busy, ==, IDLETIME_SLOTS);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/gaps/touching", test_touching);
    g_test_add_func("/gaps/whole", test_whole);
    g_test_add_func("/gaps/late", test_late);
    g_test_add_func("/gaps/idle/bounds", test_idle);
    g_test_add_func("/gaps/refused", test_refused);
    g_test_add_func("/gaps/ahead", test_ahead);
    g_test_add_func("/gaps/overrun-by-the-future",
                    test_overrun_by_the_future);
    g_test_add_func("/gaps/resume", test_resume);
    g_test_add_func("/gaps/resume/busy", test_resume_busy);
    g_test_add_func("/gaps/first-look", test_first_look);
    g_test_add_func("/gaps/given-away", test_given_away);
    g_test_add_func("/gaps/share/bounds", test_share);
    g_test_add_func("/gaps/slots", test_slots);
    g_test_add_func("/gaps/dead/last", test_dead);
    g_test_add_func("/gaps/order", test_order);
    return g_test_run();
}
