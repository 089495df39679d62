/*
 * Idletime machine tests: how long a held request waits at most.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * max-hold-ms, and then those that are overdue for longer, one after another
 * at the cap.  Foreground is in service all the time here, so nothing leaves
 * but by its deadline.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include <sys/mman.h>
#include "idletime-machine.h"
#include "idletime/arena/arena.h"

#define HOLD_US     (100 * MS)
#define GUEST_US    (500 * MS)      /* the head of a guest's list */

/* A busy foreground, and @n more disks of @class: "a", "b". */
static TestMachine *busy(const char *resource, const char *class, TestDisk **fg,
                         TestDisk **d, unsigned n)
{
    g_autofree char *options = g_strdup_printf("idletime=" RESOURCE
                                               ",idletime-class=%s", class);
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, resource);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    for (unsigned i = 0; i < n; i++) {
        const char id[] = { 'a' + i, '\0' };

        d[i] = machine_disk(m, id, options);
    }
    machine_start(m);
    disk_pause_read(*fg, "F");
    disk_read(*fg);
    return m;
}

static void free_busy(TestMachine *m, TestDisk *fg)
{
    disk_resume(fg, "F");
    machine_free(m);
}

/* The one that had the token asks first; the other's deadline was earlier. */
static void test_earliest_deadline(void)
{
    TestDisk *fg, *d[2];
    TestMachine *m = busy("max-hold-ms=100", "background", &fg, d, 2);
    TestRequest *a[2], *b;

    disk_pause_read(d[0], "A");
    a[0] = disk_read(d[0]);
    machine_step_us(m, 10 * MS);
    disk_pause_read(d[1], "B");
    b = disk_read(d[1]);
    machine_step_us(m, 10 * MS);
    a[1] = disk_read(d[0]);
    /* Due at 100, 110 and 120. */
    machine_step_us(m, 80 * MS);
    assert_in_service(d[0], 1);
    machine_step_us(m, 20 * MS);
    assert_held(d[0], 1);
    assert_held(d[1], 1);
    disk_resume(d[0], "A");
    request_ok(a[0]);
    /* Woken, at once: no clock step. */
    disk_await(d[1], "in-service", 1);
    assert_held(d[0], 1);
    disk_resume(d[1], "B");
    request_ok(b);
    request_ok(a[1]);
    g_assert_cmpint(disk_number(d[0], "hold.max-us"), ==, HOLD_US);
    g_assert_cmpint(disk_number(d[1], "hold.max-us"), ==, HOLD_US + 10 * MS);
    free_busy(m, fg);
}

/* Two QEMU processes; that of the foreground is stopped while in service. */
static void test_stopped_foreground(void)
{
    TestDisk *fg, *bg;
    TestMachine *f, *b;
    TestRequest *r[2];

    machine_two("max-hold-ms=100", &fg, &bg);
    f = fg->m;
    b = bg->m;
    disk_pause_read(fg, "F");
    disk_read(fg);
    g_assert_cmpint(kill(qtest_pid(f->qts), SIGSTOP), ==, 0);
    r[0] = disk_read(bg);
    machine_step_us(b, 30 * MS);
    r[1] = disk_read(bg);
    machine_step_us(b, HOLD_US - 30 * MS - 1);
    assert_held(bg, 2);
    machine_step_us(b, 1);
    request_ok(r[0]);
    assert_held(bg, 1);
    machine_step_us(b, 30 * MS - 1);
    assert_held(bg, 1);
    machine_step_us(b, 1);
    request_ok(r[1]);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==, HOLD_US);
    g_assert_cmpint(kill(qtest_pid(f->qts), SIGCONT), ==, 0);
    disk_resume(fg, "F");
    machine_free(b);
    machine_free(f);
}

/* Several held at once are promoted at once, as far as the cap goes. */
static void test_at_the_cap(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = busy("max-hold-ms=100,max-inflight=2", "background", &fg,
                          &bg, 1);
    TestRequest *r[4];

    disk_pause_read(bg, "A");
    for (int i = 0; i < 4; i++) {
        r[i] = disk_read(bg);
    }
    machine_step_us(m, HOLD_US - 1);
    assert_held(bg, 4);
    machine_step_us(m, 1);
    /* The first has one of two places; the others follow in the other one. */
    for (int i = 1; i < 4; i++) {
        request_ok(r[i]);
    }
    assert_in_service(bg, 1);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==, HOLD_US);
    disk_resume(bg, "A");
    request_ok(r[0]);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 4);
    free_busy(m, fg);
}

/* Class guest: the head leaves each half second, whatever max-hold-ms is. */
static void test_guest_head(void)
{
    TestDisk *fg, *d;
    TestMachine *m = busy("max-hold-ms=1200", "guest", &fg, &d, 1);
    TestRequest *r[3];

    for (int i = 0; i < 3; i++) {
        r[i] = disk_read_as(d, IOPRIO_IDLE);
    }
    for (int i = 0; i < 2; i++) {
        machine_step_us(m, GUEST_US - 1);
        assert_held(d, 3 - i);
        machine_step_us(m, 1);
        request_ok(r[i]);
        assert_held(d, 2 - i);
    }
    /* The third: at 1200, not at 1500. */
    machine_step_us(m, 200 * MS - 1);
    assert_held(d, 1);
    machine_step_us(m, 1);
    request_ok(r[2]);
    g_assert_cmpint(disk_number(d, "promotions.deadline"), ==, 3);
    free_busy(m, fg);
}

/* Each piece of a large one is a request of its own, and so is its wait. */
static void test_guest_head_pieces(void)
{
    TestDisk *fg, *d;
    TestMachine *m = busy("max-request-bytes=65536", "guest", &fg, &d, 1);
    TestRequest *r = disk_submit(d, 0, VIRTIO_BLK_T_IN, IOPRIO_IDLE, 0, NULL,
                                 128 * KiB);

    machine_step_us(m, GUEST_US);
    disk_await(d, "pieces", 1);
    disk_await(d, "held", 1);
    machine_step_us(m, GUEST_US - 1);
    g_assert_cmpint(disk_number(d, "pieces"), ==, 1);
    machine_step_us(m, 1);
    request_ok(r);
    free_busy(m, fg);
}

/* A background device has nobody inside who waits; 0 is never. */
static void test_guest_only(const void *opaque)
{
    const char *class = opaque;
    TestDisk *fg, *d;
    TestMachine *m = busy("max-hold-ms=0", class, &fg, &d, 1);
    TestRequest *r = disk_read_as(d, IOPRIO_IDLE);

    machine_step_us(m, 10 * GUEST_US);
    assert_held(d, 1);
    machine_set(m, "max-hold-ms", 20000);
    machine_step_us(m, GUEST_US);
    assert_held(d, g_str_equal(class, "background"));
    machine_step_us(m, 20 * 1000 * MS);
    request_ok(r);
    free_busy(m, fg);
}

/* ---- whoever may write the background board, and lies */

#define LEASE_US    (5000 * MS)
#define STEP_US     (4 * MS)        /* less than others are given for a turn */
#define LIAR        1               /* a slot that is alive and never asks */

static IdletimeBgBoard *map_board(TestMachine *m)
{
    g_autofree char *path = g_build_filename(m->dir, RESOURCE, "background",
                                             NULL);
    int fd = open(path, O_RDWR);
    IdletimeBgBoard *board = mmap(NULL, sizeof(*board),
                                  PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    g_assert_true(board != MAP_FAILED);
    close(fd);
    g_assert_cmpint(board->header.slots_high, ==, LIAR + 1);
    return board;
}

/* It is overdue for ever, and has just started one. */
static void lie_turn(IdletimeBgBoard *board, uint64_t now_ms)
{
    board->line[LIAR].due_ns = INT64_MIN;
    board->line[LIAR].started++;
    board->line[LIAR].waiting = 1;
}

/* It has all tokens, and took them just now. */
static void lie_tokens(IdletimeBgBoard *board, uint64_t now_ms)
{
    for (int i = 0; i < IDLETIME_TOKENS; i++) {
        board->token[i] = (LIAR + 1ull) << IDLETIME_TOKEN_SHIFT | now_ms;
    }
}

static void test_liar(const void *opaque)
{
    void (*lie)(IdletimeBgBoard *board, uint64_t now_ms) = opaque;
    TestDisk *fg, *d[2];
    TestMachine *m = busy("max-hold-ms=100", "background", &fg, d, 2);
    IdletimeBgBoard *board = map_board(m);
    TestRequest *r[3];
    uint64_t now_ms;

    /* The first leaves by its deadline, and shows what time it is. */
    disk_pause_read(d[0], "A");
    r[0] = disk_read(d[0]);
    machine_step_us(m, HOLD_US);
    assert_in_service(d[0], 1);
    now_ms = board->token[0] & ((1ull << IDLETIME_TOKEN_SHIFT) - 1);
    disk_resume(d[0], "A");
    request_ok(r[0]);

    lie(board, now_ms);
    r[1] = disk_read(d[0]);
    r[2] = disk_read(d[0]);
    for (int64_t us = 0; us < HOLD_US + LEASE_US - STEP_US; us += STEP_US) {
        machine_step_us(m, STEP_US);
        lie(board, now_ms + us / MS);
    }
    assert_held(d[0], 2);
    for (int i = 0; i < 5; i++) {
        machine_step_us(m, STEP_US);
        lie(board, now_ms + (HOLD_US + LEASE_US) / MS);
    }
    request_ok(r[1]);
    assert_held(d[0], 1);
    /* One each half second. */
    for (int64_t us = 0; us < 500 * MS; us += STEP_US) {
        machine_step_us(m, STEP_US);
        lie(board, now_ms + (HOLD_US + LEASE_US + us) / MS);
    }
    request_ok(r[2]);
    g_assert_cmpint(disk_number(d[0], "promotions.deadline"), ==, 3);
    munmap(board, sizeof(*board));
    free_busy(m, fg);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/overdue/earliest-deadline", test_earliest_deadline);
    ring_test("idletime/overdue/stopped-foreground", test_stopped_foreground);
    ring_test("idletime/overdue/at-the-cap", test_at_the_cap);
    ring_test("idletime/overdue/guest-head", test_guest_head);
    ring_test("idletime/overdue/guest-head-pieces", test_guest_head_pieces);
    ring_data_test("idletime/overdue/only-guest", "guest", test_guest_only);
    ring_data_test("idletime/overdue/only-guest-background",
                   "background", test_guest_only);
    qtest_add_data_func("idletime/overdue/liar-turn", lie_turn, test_liar);
    qtest_add_data_func("idletime/overdue/liar-tokens", lie_tokens, test_liar);
    return g_test_run();
}
