/*
 * Idletime machine tests: class guest, and promotion by cause.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

/* One disk of class guest; its own foreground starts the interval. */
static TestMachine *guest(const char *options, TestDisk **d)
{
    g_autofree char *all = g_strdup_printf("idletime=" RESOURCE
                                           ",idletime-class=guest%s", options);
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    *d = machine_disk(m, "d", all);
    machine_start(m);
    return m;
}

/* ---- what is background */

typedef struct IoprioCase {
    uint32_t ioprio;
    bool background;
} IoprioCase;

static const IoprioCase ioprio_case[] = {
    { 0x6000, true },               /* idle, as Linux sends it */
    { 0x6007, true },               /* idle has no levels */
    { 0x7ff8, true },               /* hints in bits 3 to 12 */
    { 0x6008, true },
    { 0x0000, false },              /* none; Windows */
    { 0x0001, false },              /* FreeBSD */
    { IOPRIO_BE_JOURNAL, false },
    { IOPRIO_BE, false },
    { IOPRIO_RT, false },
    { 0x5ff8, false },              /* best effort with hints */
    { 0xe000, false },              /* class 7 does not exist */
    { 0xffffffff, false },
    { 0x00016000, false },          /* bits above the word of Linux */
};

static void test_ioprio(const void *opaque)
{
    const IoprioCase *c = opaque;
    TestDisk *d;
    TestMachine *m = guest("", &d);
    TestRequest *r;

    foreground(d);
    r = disk_read_as(d, c->ioprio);
    assert_held(d, c->background);
    machine_step_us(m, c->background ? INTERVAL_US : 0);
    request_ok(r);
    g_assert_cmpint(disk_number(d, "background.requests"), ==, c->background);
    g_assert_cmpint(disk_number(d, "foreground.requests"), ==,
                    c->background ? 1 : 2);
    machine_free(m);
}

/* Nothing in a request makes it foreground on a background device. */
static void test_downward_only(const void *opaque)
{
    const IoprioCase *c = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read_as(bg, c->ioprio);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_free(m);
}

/* ... and on a foreground one nothing makes it background. */
static void test_foreground_device(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);

    foreground(fg);
    request_ok(disk_read_as(fg, IOPRIO_IDLE));
    g_assert_cmpint(disk_number(fg, "foreground.requests"), ==, 2);
    machine_free(m);
}

/* ---- promotion */

typedef struct ExpediteCase {
    uint32_t type;
    uint32_t ioprio;
    const char *cause;              /* NULL: none is released */
} ExpediteCase;

static const ExpediteCase expedite_case[] = {
    { VIRTIO_BLK_T_FLUSH, IOPRIO_NONE, "promotions.flush" },
    { VIRTIO_BLK_T_OUT, IOPRIO_BE_JOURNAL, "promotions.journal" },
    { VIRTIO_BLK_T_OUT, IOPRIO_BE_JOURNAL | 0x1ff8, "promotions.journal" },
    { VIRTIO_BLK_T_OUT, IOPRIO_BE, NULL },
    { VIRTIO_BLK_T_OUT, IOPRIO_NONE, NULL },
    { VIRTIO_BLK_T_OUT, IOPRIO_RT | 3, NULL },
};

static void test_expedite(const void *opaque)
{
    const ExpediteCase *c = opaque;
    bool data = c->type == VIRTIO_BLK_T_OUT;
    g_autofree void *block = g_malloc0(BLOCK_BYTES);
    TestRequest *held[3];
    TestDisk *d;
    TestMachine *m = guest("", &d);

    foreground(d);
    for (int i = 0; i < 3; i++) {
        held[i] = disk_read_as(d, IOPRIO_IDLE);
    }
    assert_held(d, 3);
    request_ok(disk_submit(d, 0, c->type, c->ioprio, 64, data ? block : NULL,
                           data ? BLOCK_BYTES : 0));
    if (c->cause) {
        disk_await(d, "held", 0);
        g_assert_cmpint(disk_number(d, c->cause), ==, 3);
    } else {
        assert_held(d, 3);
        machine_step_us(m, INTERVAL_US);
    }
    for (int i = 0; i < 3; i++) {
        request_ok(held[i]);
    }
    machine_free(m);
}

/* A large one that is half-way through is no less waited for. */
static void test_expedite_pieces(const void *opaque)
{
    bool flush = opaque != NULL;
    g_autofree void *data = g_malloc0(MiB);
    TestDisk *d;
    TestMachine *m = guest("", &d);
    TestRequest *large;

    disk_pause_write(d, "A");
    large = disk_submit(d, 0, VIRTIO_BLK_T_OUT, IOPRIO_IDLE, 0, data, MiB);
    assert_in_service(d, 1);
    request_ok(flush ? disk_flush(d) :
               disk_submit(d, 0, VIRTIO_BLK_T_OUT, IOPRIO_BE_JOURNAL, 4096,
                           data, BLOCK_BYTES));
    disk_resume(d, "A");
    request_ok(large);
    g_assert_cmpint(disk_number(d, "pieces"), ==, 2);
    g_assert_cmpint(disk_number(d, flush ? "promotions.flush" :
                                "promotions.journal"), ==, 1);
    machine_free(m);
}

/* Three idle writes; the first write that comes to the disk stays there. */
static void hold_three(TestDisk *d, void *block, TestRequest **held)
{
    foreground(d);
    disk_pause_write(d, "A");
    for (int i = 0; i < 3; i++) {
        held[i] = disk_submit(d, 0, VIRTIO_BLK_T_OUT, IOPRIO_IDLE, 64 * i,
                              block, BLOCK_BYTES);
    }
}

/* A commit block needs nothing of what is held: it does not queue behind. */
static void test_expedite_order(void)
{
    g_autofree void *block = g_malloc0(BLOCK_BYTES);
    TestDisk *d;
    TestMachine *m = guest("", &d);
    TestRequest *held[3], *journal;

    hold_three(d, block, held);
    assert_held(d, 3);
    journal = disk_submit(d, 0, VIRTIO_BLK_T_OUT, IOPRIO_BE_JOURNAL, 4096,
                          block, BLOCK_BYTES);
    for (int i = 0; i < 3; i++) {
        request_ok(held[i]);
    }
    g_assert_false(journal->done);
    /* Promoted, they count as foreground, beside its first and the journal. */
    g_assert_cmpint(disk_number(d, "foreground.requests"), ==, 5);
    disk_resume(d, "A");
    request_ok(journal);
    machine_free(m);
}

/* In order, as many at a time as the resource serves; others pass them. */
static void test_expedite_cap(void)
{
    g_autofree void *block = g_malloc0(BLOCK_BYTES);
    TestDisk *d;
    TestMachine *m = guest("", &d);
    TestRequest *held[3], *late;

    hold_three(d, block, held);
    request_ok(disk_flush(d));
    assert_held(d, 2);
    request_ok(disk_submit(d, 0, VIRTIO_BLK_T_OUT, IOPRIO_BE_JOURNAL, 4096,
                           block, BLOCK_BYTES));
    /* Nobody has asked for this one. */
    late = disk_read_as(d, IOPRIO_IDLE);
    assert_held(d, 3);
    disk_resume(d, "A");
    for (int i = 0; i < 3; i++) {
        request_ok(held[i]);
        g_assert_cmpint(held[i]->order, ==, i + 4);
    }
    g_assert_cmpint(disk_number(d, "promotions.flush") +
                    disk_number(d, "promotions.journal"), ==, 3);
    assert_held(d, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(late);
    machine_free(m);
}

/* Where it serves two, the others leave in the second one's place. */
static void test_expedite_cap_of_two(void)
{
    g_autofree void *block = g_malloc0(BLOCK_BYTES);
    TestDisk *d;
    TestMachine *m = guest("", &d);
    TestRequest *held[3];

    machine_set(m, "max-inflight", 2);
    hold_three(d, block, held);
    assert_held(d, 3);
    request_ok(disk_flush(d));
    request_ok(held[1]);
    request_ok(held[2]);
    g_assert_false(held[0]->done);
    disk_resume(d, "A");
    request_ok(held[0]);
    machine_free(m);
}

/* A ring that the driver made of 16: more than 4 held push the first out. */
static void test_ring(void)
{
    TestMachine *m = machine_new();
    TestRequest *r[6];
    TestDisk *d;

    machine_resource(m, RESOURCE, "");
    d = machine_disk(m, "d", "idletime=" RESOURCE ",idletime-class=guest");
    d->ring_places = 16;
    machine_start(m);
    foreground(d);
    for (int i = 0; i < 4; i++) {
        r[i] = disk_submit(d, 0, VIRTIO_BLK_T_FLUSH | 0, 0, 0, NULL, 0);
        request_ok(r[i]);
    }
    qvirtqueue_reset_pool(d->vq[0]);
    foreground(d);
    qvirtqueue_reset_pool(d->vq[0]);
    for (int i = 0; i < 5; i++) {
        r[i] = disk_read_as(d, IOPRIO_IDLE);
        g_assert_cmpint(disk_number(d, "promotions.ring"), ==, i == 4);
        assert_held(d, MIN(i + 1, 4));
    }
    request_ok(r[0]);
    /* It left as foreground, just now. */
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(d, 4);
    machine_step_us(m, 1);
    for (int i = 1; i < 5; i++) {
        request_ok(r[i]);
    }
    machine_free(m);
}

/* With auto the learner sets the cap of background, not this one. */
static void test_expedite_auto(void)
{
    g_autofree void *block = g_malloc0(BLOCK_BYTES);
    TestMachine *m = machine_new();
    TestRequest *held[3];
    TestDisk *d;

    machine_resource(m, RESOURCE, "auto=on");
    d = machine_disk(m, "d", "idletime=" RESOURCE ",idletime-class=guest");
    machine_start(m);
    hold_three(d, block, held);
    assert_held(d, 3);
    request_ok(disk_flush(d));
    assert_held(d, 2);
    machine_set(m, "max-inflight", 2);
    disk_resume(d, "A");
    for (int i = 0; i < 3; i++) {
        request_ok(held[i]);
    }
    machine_free(m);
}

/*
 * Each ring of 32 has a share of 8 for held ones, and the first of the ring
 * that has more leaves, one at a time.
 */
static void test_ring_each(void)
{
    TestMachine *m = machine_new();
    TestRequest *r[2][10];
    TestDisk *d;

    machine_resource(m, RESOURCE, "");
    d = machine_disk(m, "d", "num-queues=2,queue-size=32,idletime=" RESOURCE
                     ",idletime-class=guest");
    machine_start(m);
    foreground(d);
    qvirtqueue_reset_pool(d->vq[0]);
    disk_pause_read(d, "A");
    for (int i = 0; i < 16; i++) {
        r[i % 2][i / 2] = disk_submit(d, i % 2, VIRTIO_BLK_T_IN, IOPRIO_IDLE,
                                      0, NULL, BLOCK_BYTES);
    }
    assert_held(d, 16);
    g_assert_cmpint(disk_number(d, "promotions.ring"), ==, 0);
    for (int i = 8; i < 10; i++) {
        r[1][i] = disk_submit(d, 1, VIRTIO_BLK_T_IN, IOPRIO_IDLE, 0, NULL,
                              BLOCK_BYTES);
        g_assert_cmpint(disk_number(d, "promotions.ring"), ==, 1);
        assert_held(d, 16 + i - 8);
    }
    g_assert_cmpint(disk_number(d, "foreground.requests"), ==, 2);
    disk_resume(d, "A");
    request_ok(r[1][0]);
    request_ok(r[1][1]);
    disk_await(d, "held", 16);
    g_assert_cmpint(disk_number(d, "promotions.ring"), ==, 2);
    g_assert_false(request_done(r[0][0]));
    g_assert_false(request_done(r[1][2]));
    machine_step_us(m, INTERVAL_US);
    for (int i = 0; i < 18; i++) {
        request_ok(i < 8 ? r[0][i] : r[1][i - 8]);
    }
    g_assert_cmpint(disk_number(d, "background.requests"), ==, 16);
    machine_free(m);
}

/* On a background device all is background: it may fill its ring. */
static void test_ring_background(void)
{
    TestMachine *m = machine_new();
    TestDisk *fg, *bg;
    TestRequest *r[5];

    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "queue-size=16,idletime=" RESOURCE
                      ",idletime-class=background");
    machine_start(m);
    foreground(fg);
    for (int i = 0; i < 5; i++) {
        r[i] = disk_read(bg);
    }
    assert_held(bg, 5);
    request_ok(disk_flush(fg));
    assert_held(bg, 5);
    machine_step_us(m, INTERVAL_US);
    for (int i = 0; i < 5; i++) {
        request_ok(r[i]);
    }
    machine_free(m);
}

#define ADD_CASES(name, cases, fn)                                      \
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {                  \
        g_autofree char *p = g_strdup_printf("idletime/" name "-%u", i);\
        ring_data_test(p, &cases[i], fn);                          \
    }

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ADD_CASES("guest/ioprio", ioprio_case, test_ioprio);
    ADD_CASES("guest/downward-only", ioprio_case, test_downward_only);
    ring_test("idletime/guest/foreground-device",
                   test_foreground_device);
    for (unsigned i = 0; i < ARRAY_SIZE(expedite_case); i++) {
        const ExpediteCase *c = &expedite_case[i];
        g_autofree char *p = g_strdup_printf("idletime/guest/expedite-%u", i);

        if (!disks_are_scsi() ||
            g_strcmp0(c->cause, "promotions.journal") != 0) {
            ring_data_test(p, c, test_expedite);
        }
    }
    ring_data_test("idletime/guest/expedite-pieces-flush",
                        GINT_TO_POINTER(1), test_expedite_pieces);
    /* SCSI has no word for a journal's writes. */
    if (!disks_are_scsi()) {
        ring_data_test("idletime/guest/expedite-pieces-journal", NULL,
                       test_expedite_pieces);
        ring_test("idletime/guest/expedite-order", test_expedite_order);
        ring_test("idletime/guest/expedite-cap", test_expedite_cap);
        ring_test("idletime/guest/expedite-cap-of-two",
                  test_expedite_cap_of_two);
    }
    ring_test("idletime/guest/expedite-auto", test_expedite_auto);
    ring_test("idletime/guest/ring", test_ring);
    ring_test("idletime/guest/ring-each", test_ring_each);
    ring_test("idletime/guest/ring-background", test_ring_background);
    return g_test_run();
}
