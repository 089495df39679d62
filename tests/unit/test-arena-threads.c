/*
 * Arena under the thread sanitizer: foreground writers, a background reader,
 * another background participant, all on one mapping.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"

#define WRITERS 3
#define REQUESTS 20000

static const IdletimeRule rule = { 1000, 5 * SEC, 1 };

typedef struct Stage {
    IdletimeArena open;
    IdletimeBoard fg, bg;
    Tenant tenant[WRITERS];
    Peer peer[2];
    uint32_t running;           /* writers */
    uint32_t in_hand;
} Stage;

static void *write_foreground(void *data)
{
    Tenant *tenant = data;

    for (int i = 1; i <= REQUESTS; i++) {
        idletime_fg_begin(&tenant->writer, i * 10, 512);
        idletime_fg_end(&tenant->writer, i * 10 + 5);
    }
    return NULL;
}

static void turn_taken(Peer *peer, uint32_t *in_hand, int64_t now_ns)
{
    IdletimeGrant grant;

    if (!idletime_token_take(&peer->scan, &rule, now_ns, &grant)) {
        return;
    }
    g_assert_cmpuint(__atomic_add_fetch(in_hand, 1, __ATOMIC_SEQ_CST), ==, 1);
    idletime_bg_started(&peer->scan);
    idletime_bg_done(&peer->scan, 10);
    __atomic_sub_fetch(in_hand, 1, __ATOMIC_SEQ_CST);
    idletime_token_give(&peer->scan, grant);
}

typedef struct Reader {
    Peer *peer;
    Stage *stage;
} Reader;

static void *read_boards(void *data)
{
    Reader *reader = data;
    Peer *peer = reader->peer;
    uint64_t started = 0;

    for (int i = 0; i < REQUESTS / 20 ||
         __atomic_load_n(&reader->stage->running, __ATOMIC_ACQUIRE); i++) {
        IdletimeView view = idletime_scan(&peer->scan, &rule, SEC);
        int next = idletime_scan_next(&peer->scan, view.fg_last_ns, SEC);

        g_assert_cmpuint(view.fg_started, >=, started);
        g_assert_cmpuint(view.fg_in_service, <=, WRITERS);
        started = view.fg_started;
        idletime_bg_enter(&peer->scan, rule.interval_ns, INT64_MAX, 100);
        turn_taken(peer, &reader->stage->in_hand, SEC);
        if (next >= 0) {
            idletime_bg_wake(peer->scan.bg, next);
        }
        idletime_bg_leave(&peer->scan);
    }
    return NULL;
}

static void join_all(Stage *stage, const Arena *arena)
{
    IdletimeError err;

    stage->open = must_enter(arena);
    stage->fg = must_open(&stage->open, IDLETIME_BOARD_FOREGROUND, true);
    stage->bg = must_open(&stage->open, IDLETIME_BOARD_BACKGROUND, true);
    for (int i = 0; i < WRITERS; i++) {
        Tenant *t = &stage->tenant[i];

        g_assert_true(idletime_slot_claim(&stage->fg, &t->slot, "t", &err));
        idletime_fg_attach(&t->writer, &stage->fg, &t->slot);
    }
    for (int i = 0; i < 2; i++) {
        Peer *p = &stage->peer[i];

        g_assert_true(idletime_slot_claim(&stage->bg, &p->slot, "p", &err));
        p->scan = (IdletimeScan) { .fg = &stage->fg, .bg = &stage->bg,
                                   .self = p->slot.index };
    }
}

static void leave_all(Stage *stage)
{
    for (int i = 0; i < WRITERS; i++) {
        idletime_slot_release(&stage->fg, &stage->tenant[i].slot);
    }
    for (int i = 0; i < 2; i++) {
        idletime_slot_release(&stage->bg, &stage->peer[i].slot);
    }
    idletime_board_close(&stage->fg);
    idletime_board_close(&stage->bg);
    idletime_arena_close(&stage->open);
}

static void test_threads(void)
{
    Arena arena = arena_new();
    Stage stage = { .running = 1 };
    GThread *writer[WRITERS], *reader[2];
    Reader of[2] = { { &stage.peer[0], &stage }, { &stage.peer[1], &stage } };
    IdletimeView view;

    join_all(&stage, &arena);
    for (int i = 0; i < 2; i++) {
        reader[i] = g_thread_new("reader", read_boards, &of[i]);
    }
    for (int i = 0; i < WRITERS; i++) {
        writer[i] = g_thread_new("writer", write_foreground, &stage.tenant[i]);
    }
    for (int i = 0; i < WRITERS; i++) {
        g_thread_join(writer[i]);
    }
    __atomic_store_n(&stage.running, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++) {
        g_thread_join(reader[i]);
    }
    view = idletime_scan(&stage.peer[0].scan, &rule, SEC);
    g_assert_cmpuint(view.fg_started, ==, WRITERS * REQUESTS);
    g_assert_cmpuint(view.fg_in_service, ==, 0);
    g_assert_cmpint(view.fg_last_ns, ==, REQUESTS * 10 + 5);
    leave_all(&stage);
    arena_remove(&arena);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/threads/writers-and-readers", test_threads);
    return g_test_run();
}
