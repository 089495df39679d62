/*
 * Idletime machine tests: attach and detach under load, with I/O threads.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The load is real: requests are on the rings while the monitor attaches and
 * detaches.  Each writes a block of its own, and all of them must be there.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include <sys/resource.h>

#define ROUNDS      20
#define FEW_ROUNDS  6
#define LARGE       (128 * KiB)
#define LOAD        24
#define HELD        4
#define LONG        "interval-us=60000000,max-hold-ms=0"
/* Fewer than any QEMU has: it gets no more. */
#define FEW_FILES   8

typedef struct LoadCase {
    const char *name;
    unsigned num_queues;
    const char *options;
} LoadCase;

static const LoadCase load_case[] = {
    { "main", 1, "" },
    { "one", 2, "'iothread': 'io0'" },
    { "two", 2, "'iothread-vq-mapping': "
      "[{'iothread': 'io0'}, {'iothread': 'io1'}]" },
    { "four-queues", 4, "'iothread-vq-mapping': "
      "[{'iothread': 'io0', 'vqs': [0, 3]}, {'iothread': 'io1',"
      " 'vqs': [1, 2]}]" },
};

/* The disk is plugged while the machine runs, for the sake of the JSON. */
static TestMachine *bench(const LoadCase *c, const char *resource,
                          TestDisk **fg, TestDisk **bg)
{
    g_autofree char *queues = g_strdup_printf("num-queues=%u", c->num_queues);
    TestMachine *m = machine_new();

    machine_args(m, "-object iothread,id=io0 -object iothread,id=io1");
    machine_resource(m, RESOURCE, resource);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_disk(m, "bg", queues);
    machine_start(m);
    disk_unplug(*bg);
    disk_plug(*bg, c->options);
    return m;
}

static TestRequest *write_block(TestDisk *d, unsigned i, uint8_t value)
{
    char block[BLOCK_BYTES];

    memset(block, value, sizeof(block));
    return disk_submit(d, i % d->num_queues, VIRTIO_BLK_T_OUT, IOPRIO_NONE,
                       i * (BLOCK_BYTES / SECTOR_BYTES), block, sizeof(block));
}

/* ---- under load */

static void submit(TestDisk *d, TestRequest **r, unsigned from, unsigned to,
                 uint8_t value)
{
    for (unsigned i = from; i < to; i++) {
        r[i] = write_block(d, i, value);
    }
}

/* Some are on the way at the attach, some at the detach, some after it. */
static void test_load(const void *opaque)
{
    static const char *const class[] = { "background", "foreground", "guest" };
    TestDisk *fg, *bg;
    TestMachine *m = bench(opaque, LONG, &fg, &bg);
    TestRequest *r[LOAD];

    for (int round = 0; round < ROUNDS; round++) {
        uint8_t value = round + 1;

        foreground(fg);
        submit(bg, r, 0, LOAD / 3, value);
        disk_attach(bg, class[round % ARRAY_SIZE(class)]);
        submit(bg, r, LOAD / 3, 2 * LOAD / 3, value);
        disk_detach(bg);
        submit(bg, r, 2 * LOAD / 3, LOAD, value);
        for (int i = 0; i < LOAD; i++) {
            request_ok(r[i]);
        }
        disk_await_detached(bg);
        g_assert_true(disk_holds(bg, 0, LOAD * BLOCK_BYTES, value));
    }
    machine_free(m);
}

/* Large ones: pieces are in service when it begins to leave. */
static void test_pieces(const void *opaque)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench(opaque, "interval-us=0,max-request-bytes=4096",
                           &fg, &bg);
    TestRequest *r[HELD];

    for (int round = 0; round < FEW_ROUNDS; round++) {
        disk_attach(bg, "background");
        for (int i = 0; i < HELD; i++) {
            r[i] = disk_write(bg, i * LARGE, LARGE, round + 1);
        }
        disk_detach(bg);
        for (int i = 0; i < HELD; i++) {
            request_ok(r[i]);
        }
        disk_await_detached(bg);
        g_assert_true(disk_holds(bg, 0, HELD * LARGE, round + 1));
    }
    machine_free(m);
}

/* A stop, a reset and an unplug right after the detach. */
static void test_interrupted(const void *opaque)
{
    const LoadCase *c = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = bench(c, LONG, &fg, &bg);
    TestRequest *r[HELD];

    for (int round = 0; round < FEW_ROUNDS; round++) {
        disk_attach(bg, "background");
        foreground(fg);
        submit(bg, r, 0, HELD, 0x5a);
        disk_detach(bg);
        switch (round % 3) {
        case 0:
            machine_stop(m);
            disk_until_detached(bg);
            machine_cont(m);
            for (int i = 0; i < HELD; i++) {
                request_ok(r[i]);
            }
            break;
        case 1:
            qvirtio_reset(&bg->pci->vdev);
            disk_await_detached(bg);
            disk_init(bg);
            break;
        default:
            disk_unplug(bg);
            g_assert_false(disk_is_attached(bg));
            disk_plug(bg, c->options);
        }
    }
    machine_free(m);
}

/* ---- without host notifiers */

static void limit_files(TestMachine *m, struct rlimit *limit, rlim_t files)
{
    g_assert_cmpint(prlimit(qtest_pid(m->qts), RLIMIT_NOFILE, NULL, limit),
                    ==, 0);
    limit->rlim_cur = files;
    g_assert_cmpint(prlimit(qtest_pid(m->qts), RLIMIT_NOFILE, limit, NULL),
                    ==, 0);
}

static void live_a_little(TestDisk *fg, TestDisk *bg)
{
    TestRequest *r[HELD];

    foreground(fg);
    submit(bg, r, 0, HELD, 0x5a);
    disk_await(bg, "held", HELD);
    machine_step_us(bg->m, INTERVAL_US);
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    disk_await(bg, "in-service", 0);
}

/* The device has an I/O thread, and the main thread serves it. */
static void test_no_notifiers(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench(&load_case[1], "", &fg, &bg);
    struct rlimit limit;
    rlim_t files;

    /* What the attach itself needs is open by then. */
    disk_attach(bg, "background");
    disk_detach(bg);
    disk_await_detached(bg);
    g_assert_cmpint(prlimit(qtest_pid(m->qts), RLIMIT_NOFILE, NULL, &limit),
                    ==, 0);
    files = limit.rlim_cur;
    limit_files(m, &limit, FEW_FILES);
    disk_init(bg);
    request_ok(write_block(bg, 0, 0x11));
    limit_files(m, &limit, files);
    disk_attach(bg, "background");
    live_a_little(fg, bg);
    /* Back to the I/O thread. */
    disk_init(bg);
    live_a_little(fg, bg);
    disk_detach(bg);
    disk_await_detached(bg);
    machine_free(m);
}

typedef struct LoadTest {
    const char *name;
    bool rings;             /* of all forms */
    void (*fn)(const void *opaque);
} LoadTest;

static const LoadTest load_test[] = {
    { "load", true, test_load },
    { "pieces", false, test_pieces },
    { "interrupted", false, test_interrupted },
};

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned t = 0; t < ARRAY_SIZE(load_test); t++) {
        for (unsigned c = 0; c < ARRAY_SIZE(load_case); c++) {
            g_autofree char *path =
                g_strdup_printf("idletime/attach-load/%s-%s",
                                load_test[t].name, load_case[c].name);

            if (load_test[t].rings) {
                ring_data_test(path, &load_case[c], load_test[t].fn);
            } else {
                qtest_add_data_func(path, &load_case[c], load_test[t].fn);
            }
        }
    }
    ring_test("idletime/attach-load/no-notifiers", test_no_notifiers);
    return g_test_run();
}
