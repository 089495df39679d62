/*
 * Idletime machine tests: devices that are served by I/O threads.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A kick reaches the thread in real time, and so does a timer of virtual
 * time: waits poll, and "not yet" is looked at after a pause.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

/* Longer than a thread needs to wake up and do what it should not. */
#define PAUSE_US    (20 * 1000)
#define HELD        4
#define LONG_US     (60 * 1000 * MS)

typedef struct ThreadCase {
    const char *name;
    unsigned num_queues;
    const char *options;
    bool rings;                 /* on all forms of ring */
} ThreadCase;

#define CLASS   "'idletime': 'r0', 'idletime-class': 'background', "

static const ThreadCase thread_case[] = {
    { "one", 2, CLASS "'iothread': 'io0'" },
    { "two", 2, CLASS "'iothread-vq-mapping': "
      "[{'iothread': 'io0'}, {'iothread': 'io1'}]", true },
    { "four-queues", 4, CLASS "'iothread-vq-mapping': "
      "[{'iothread': 'io0', 'vqs': [0, 3]}, {'iothread': 'io1',"
      " 'vqs': [1, 2]}]" },
};

/* The disk is plugged while the machine runs, for the sake of the JSON. */
static TestMachine *threads(const ThreadCase *c, const char *options,
                            TestDisk **fg, TestDisk **bg)
{
    g_autofree char *queues = g_strdup_printf("num-queues=%u", c->num_queues);
    TestMachine *m = machine_new();

    machine_args(m, "-object iothread,id=io0 -object iothread,id=io1");
    machine_resource(m, RESOURCE, options);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_disk(m, "bg", queues);
    machine_start(m);
    disk_unplug(*bg);
    disk_plug(*bg, c->options);
    return m;
}

static TestRequest *write_on(TestDisk *d, unsigned i)
{
    char block[BLOCK_BYTES];

    memset(block, 0x5a, sizeof(block));
    return disk_submit(d, i % d->num_queues, VIRTIO_BLK_T_OUT, IOPRIO_NONE,
                       i * (BLOCK_BYTES / SECTOR_BYTES), block, sizeof(block));
}

static void hold_some(TestDisk *fg, TestDisk *bg, TestRequest **r)
{
    foreground(fg);
    for (unsigned i = 0; i < HELD; i++) {
        r[i] = write_on(bg, i);
    }
    disk_await(bg, "held", HELD);
}

static void all_ok(TestDisk *bg, TestRequest **r)
{
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0x5a));
    disk_await(bg, "held", 0);
    disk_await(bg, "in-service", 0);
}

static void assert_untouched(TestDisk *bg)
{
    g_usleep(PAUSE_US);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 0);
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0));
}

static void test_interval(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    machine_step_us(m, INTERVAL_US - 1);
    assert_untouched(bg);
    machine_step_us(m, 1);
    all_ok(bg, r);
    machine_free(m);
}

/* What each thread counts is the device's: one large request on each queue. */
static void test_counts(const void *opaque)
{
    enum { SIZE = 64 * KiB, PIECE = 16 * KiB };
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "max-request-bytes=16384", &fg, &bg);
    g_autofree uint8_t *data = g_malloc(SIZE);
    unsigned queues = bg->num_queues;

    memset(data, 0x5a, SIZE);
    for (unsigned i = 0; i < queues; i++) {
        request_ok(disk_submit(bg, i, VIRTIO_BLK_T_OUT, IOPRIO_NONE,
                               i * (SIZE / SECTOR_BYTES), data, SIZE));
    }
    g_assert_cmpint(disk_number(bg, "pieces"), ==, queues * (SIZE / PIECE));
    g_assert_cmpint(disk_number(bg, "background.bytes"), ==, queues * SIZE);
    g_assert_true(disk_holds(bg, 0, queues * SIZE, 0x5a));
    machine_free(m);
}

static void test_deadline(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "max-hold-ms=100", &fg, &bg);
    TestRequest *r[HELD], *f;

    disk_pause_read(fg, "A");
    f = disk_read(fg);
    for (unsigned i = 0; i < HELD; i++) {
        r[i] = write_on(bg, i);
    }
    disk_await(bg, "held", HELD);
    machine_step_us(m, 100 * MS - 1);
    assert_untouched(bg);
    machine_step_us(m, 1);
    /* The cap is one: those that find it taken are woken, and look again. */
    for (int i = 0; i < HELD; i++) {
        while (!request_done(r[i])) {
            machine_step_us(m, MS);
        }
        request_ok(r[i]);
    }
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, HELD);
    disk_resume(fg, "A");
    request_ok(f);
    machine_free(m);
}

/* The throttle keeps the second piece until a drain. */
static void test_pieces(const void *opaque)
{
    const ThreadCase *c = opaque;
    g_autofree char *queues = g_strdup_printf("num-queues=%u", c->num_queues);
    TestMachine *m = machine_new();
    TestDisk *fg, *bg;
    TestRequest *r;

    machine_args(m, "-object iothread,id=io0 -object iothread,id=io1");
    machine_resource(m, RESOURCE, "max-request-bytes=65536");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_throttled(m, "bg", ONE_WRITE, queues);
    machine_start(m);
    disk_unplug(bg);
    disk_plug(bg, c->options);
    r = disk_write(bg, 0, MiB, 0x5a);
    disk_await(bg, "pieces", 2);
    disk_await(bg, "in-service", 1);
    foreground(fg);
    disk_let_go(bg);
    disk_await(bg, "held", 1);
    machine_step_us(m, INTERVAL_US - 1);
    g_usleep(PAUSE_US);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 2);
    machine_step_us(m, 1);
    while (!request_done(r)) {
        disk_let_go(bg);
    }
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 16);
    g_assert_true(disk_holds(bg, 0, MiB, 0x5a));
    machine_free(m);
}

static void test_stop(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "interval-us=60000000,max-hold-ms=0",
                             &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    machine_stop_often(bg, HELD);
    assert_untouched(bg);
    machine_step_us(m, LONG_US);
    all_ok(bg, r);
    machine_free(m);
}

/* A stop while requests come: none is lost on the way to the list. */
static void test_stop_load(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "interval-us=0", &fg, &bg);
    TestRequest *r[20];

    for (int i = 0; i < 20; i++) {
        r[i] = write_on(bg, i);
        machine_stop(m);
        assert_held(bg, 0);
        assert_in_service(bg, 0);
        machine_cont(m);
    }
    for (int i = 0; i < 20; i++) {
        request_ok(r[i]);
    }
    g_assert_true(disk_holds(bg, 0, 20 * BLOCK_BYTES, 0x5a));
    machine_free(m);
}

static void test_system_reset(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    qtest_system_reset(m->qts);
    assert_held(bg, 0);
    machine_step_us(m, LONG_US);
    assert_untouched(bg);
    disk_init(fg);
    disk_init(bg);
    hold_some(fg, bg, r);
    machine_step_us(m, INTERVAL_US);
    all_ok(bg, r);
    machine_free(m);
}

static void test_driver_reset(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    qvirtio_reset(&bg->pci->vdev);
    assert_held(bg, 0);
    machine_step_us(m, LONG_US);
    assert_untouched(bg);
    disk_init(bg);
    hold_some(fg, bg, r);
    machine_step_us(m, INTERVAL_US);
    all_ok(bg, r);
    machine_free(m);
}

static void test_unplug(const void *opaque)
{
    const ThreadCase *c = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = threads(c, "", &fg, &bg);
    TestRequest *r[HELD];

    for (int i = 0; i < 10; i++) {
        hold_some(fg, bg, r);
        disk_unplug(bg);
        machine_step_us(m, i * MS);
        g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0));
        disk_plug(bg, c->options);
    }
    hold_some(fg, bg, r);
    machine_step_us(m, INTERVAL_US);
    all_ok(bg, r);
    disk_unplug(bg);
    machine_free(m);
}

static void test_drain(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "interval-us=60000000,max-hold-ms=0",
                             &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    for (int i = 1; i <= 20; i++) {
        machine_ok(m, "block_resize",
                   "{'node-name': 'bg', 'size': %" PRId64 "}",
                   (int64_t)(DISK_BYTES + i * MiB));
        assert_held(bg, HELD);
    }
    assert_untouched(bg);
    machine_step_us(m, LONG_US);
    all_ok(bg, r);
    machine_free(m);
}

static void test_class(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "interval-us=60000000,max-hold-ms=0",
                             &fg, &bg);
    TestRequest *r[HELD];

    for (int i = 0; i < 10; i++) {
        disk_set_class(bg, "background");
        hold_some(fg, bg, r);
        disk_set_class(bg, "foreground");
        all_ok(bg, r);
    }
    g_assert_cmpint(disk_number(bg, "promotions.class-change"), ==,
                    10 * HELD);
    disk_set_class(bg, "background");
    hold_some(fg, bg, r);
    machine_set(m, "interval-us", 0);
    all_ok(bg, r);
    machine_free(m);
}

/* A flush on one queue releases what is held on all, in every thread. */
static void test_expedite(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = threads(opaque, "interval-us=60000000,max-hold-ms=0",
                             &fg, &bg);
    TestRequest *r[HELD];
    char block[BLOCK_BYTES] = { 0 };

    disk_set_class(bg, "guest");
    foreground(fg);
    for (unsigned i = 0; i < HELD; i++) {
        r[i] = disk_submit(bg, i % bg->num_queues, VIRTIO_BLK_T_OUT,
                           IOPRIO_IDLE, i * 8, block, sizeof(block));
    }
    disk_await(bg, "held", HELD);
    request_ok(disk_flush(bg));
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    g_assert_cmpint(disk_number(bg, "promotions.flush"), ==, HELD);
    machine_free(m);
}

/* ---- adaptive polling */

/* How often the thread has polled so far. */
static unsigned polls(TestMachine *m)
{
    g_autofree char *path = g_strdup_printf("%s/log", m->dir);
    g_autofree char *text = NULL;
    const char *p;
    unsigned n = 0;

    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    for (p = text; (p = strstr(p, "run_poll_handlers_begin")); p++) {
        n++;
    }
    return n;
}

static bool is_polled(TestDisk *d)
{
    unsigned before = polls(d->m);

    for (int i = 0; i < 20; i++) {
        request_ok(disk_read(d));
    }
    return polls(d->m) > before;
}

/* A background queue does not end the polling of a thread that it shares. */
static void test_polling(void)
{
    const char *options = "iothread=io0,ioeventfd=on,idletime=" RESOURCE;
    TestMachine *m = machine_new();
    TestDisk *fg, *bg;

    machine_args(m, "-object iothread,id=io0,poll-max-ns=1000000000");
    machine_args(m, "-trace run_poll_handlers_begin -D %s/log", m->dir);
    machine_resource(m, RESOURCE, "interval-us=0");
    fg = machine_disk(m, "fg", options);
    bg = machine_disk(m, "bg", options);
    machine_start(m);
    g_assert_true(is_polled(fg));
    disk_set_class(bg, "background");
    g_assert_true(is_polled(fg));
    g_assert_true(is_polled(bg));
    disk_set_class(bg, "foreground");
    g_assert_true(is_polled(fg));
    machine_free(m);
}

typedef struct ThreadTest {
    const char *name;
    void (*fn)(const void *opaque);
} ThreadTest;

static const ThreadTest thread_test[] = {
    { "interval", test_interval },
    { "deadline", test_deadline },
    { "counts", test_counts },
    { "pieces", test_pieces },
    { "stop", test_stop },
    { "stop-load", test_stop_load },
    { "system-reset", test_system_reset },
    { "driver-reset", test_driver_reset },
    { "unplug", test_unplug },
    { "drain", test_drain },
    { "class", test_class },
    { "expedite", test_expedite },
};

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned t = 0; t < ARRAY_SIZE(thread_test); t++) {
        for (unsigned c = 0; c < ARRAY_SIZE(thread_case); c++) {
            g_autofree char *path =
                g_strdup_printf("idletime/thread/%s-%s", thread_test[t].name,
                                thread_case[c].name);

            if (thread_case[c].rings) {
                ring_data_test(path, &thread_case[c], thread_test[t].fn);
            } else {
                qtest_add_data_func(path, &thread_case[c], thread_test[t].fn);
            }
        }
    }
    qtest_add_func("idletime/thread/polling", test_polling);
    return g_test_run();
}
