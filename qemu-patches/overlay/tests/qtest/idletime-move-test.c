/*
 * Idletime machine tests: migration with held requests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

#define HELD    3
#define ON_R0   "idletime=" RESOURCE ",idletime-class="

/* Through a file; the image is shared storage. */

typedef struct MoveCase {
    const char *name;
    const char *from;           /* options of the device */
    const char *to;
    bool attach_from;           /* live, as background */
    bool attach_to;             /* the same, before the stream comes */
    bool attach_late;           /* the same, when it has come */
} MoveCase;

static const MoveCase move_case[] = {
    { "background", ON_R0 "background", ON_R0 "background" },
    { "guest", ON_R0 "guest", ON_R0 "guest" },
    /* The stream is the stock one: class and resource are of either side. */
    { "to-unset", ON_R0 "background", "" },
    { "to-foreground", ON_R0 "background", ON_R0 "foreground" },
    { "queues", "num-queues=2," ON_R0 "background",
      "num-queues=2," ON_R0 "foreground,idletime-background-queues=0" },
    { "live-from", "", "", .attach_from = true },
    { "live-both", "", "", .attach_from = true, .attach_to = true },
    { "live-late", "", "", .attach_from = true, .attach_late = true },
};

/*
 * Another VM on the resource, whose foreground request is in service until
 * the end: requests are released by deadline only.
 */
static TestMachine *neighbour(const TestMachine *beside)
{
    TestMachine *m = machine_new_beside(beside);
    TestDisk *d;

    machine_resource(m, RESOURCE, "");
    d = machine_disk(m, "neighbour", "idletime=" RESOURCE);
    machine_start(m);
    disk_pause_read(d, "A");
    disk_read(d);
    return m;
}

static void neighbour_free(TestMachine *m)
{
    disk_resume(m->disks->pdata[0], "A");
    machine_free(m);
}

static TestMachine *mover(const TestMachine *beside, const char *options,
                          TestDisk **d)
{
    TestMachine *m = machine_new_beside(beside);

    machine_resource(m, RESOURCE, "max-hold-ms=1000");
    *d = machine_disk(m, "d", options);
    return m;
}

static void migrate_to_file(TestMachine *m, const char *uri)
{
    QDict *info;
    bool done = false;

    machine_ok(m, "migrate", "{'uri': %s}", uri);
    while (!done) {
        info = qtest_qmp_assert_success_ref(m->qts,
                                            "{'execute': 'query-migrate'}");
        g_assert_cmpstr(qdict_get_try_str(info, "status"), !=, "failed");
        done = g_strcmp0(qdict_get_try_str(info, "status"), "completed") == 0;
        qobject_unref(info);
        g_usleep(1000);
    }
}

/* The destination of @src, stopped while something has to be done there. */
static void move(const MoveCase *c, TestMachine *src, TestMachine *dst,
                 TestDisk *to)
{
    g_autofree char *uri = g_strdup_printf("file:%s/state", src->dir);

    if (c->attach_late) {
        machine_stop(src);
    }
    migrate_to_file(src, uri);
    machine_args(dst, "-incoming defer");
    machine_start_waiting(dst);
    if (c->attach_to) {
        disk_attach(to, "background");
    }
    machine_ok(dst, "migrate-incoming", "{'uri': %s}", uri);
    machine_moved(dst, src);
    if (c->attach_late) {
        disk_attach(to, "background");
        machine_cont(dst);
    }
    if (c->attach_to || c->attach_late) {
        disk_await(to, "held", HELD);
    }
}

/* Requests that came to @from complete at @to: its memory is the same. */
static void test_move(const void *opaque)
{
    const MoveCase *c = opaque;
    TestDisk *from, *to;
    TestMachine *src = mover(NULL, c->from, &from);
    TestMachine *dst = mover(src, c->to, &to);
    TestMachine *other = neighbour(src);
    g_autofree void *data = g_malloc(MiB);
    TestRequest *r[HELD];

    machine_start(src);
    if (c->attach_from) {
        disk_attach(from, "background");
    }
    memset(data, 0x5a, MiB);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_submit(from, 0, VIRTIO_BLK_T_OUT, IOPRIO_IDLE,
                           i * (MiB / SECTOR_BYTES), data, MiB);
    }
    assert_held(from, HELD);
    g_assert_true(disk_holds(from, 0, HELD * MiB, 0));
    move(c, src, dst, to);
    machine_step_us(dst, 1000 * MS);
    /* In which order is not said: stock QEMU's stream turns it round. */
    for (int i = 0; i < HELD; i++) {
        r[i] = request_moved(to, r[i]);
    }
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    g_assert_true(disk_holds(to, 0, HELD * MiB, 0x5a));
    neighbour_free(other);
    machine_free(dst);
    machine_free(src);
}

/* A stock QEMU has no -object idletime-resource. */
static void test_move_to_unpatched(void)
{
    g_autofree char *uri = NULL;
    TestMachine *src, *dst;
    TestDisk *fg, *from, *to;
    TestRequest *r;

    if (ring_form & RING_PACKED) {
        g_test_skip("stock QEMU 10.0 loads no request of a packed ring");
        return;
    }
    if (!g_getenv(UNPATCHED_QEMU)) {
        g_test_skip(UNPATCHED_QEMU " is not set");
        return;
    }
    src = machine_pair("max-hold-ms=0", &fg, &from);
    dst = machine_new_beside(src);
    dst->binary = UNPATCHED_QEMU;
    machine_disk(dst, "fg", "");
    to = machine_disk(dst, "bg", "");
    foreground(fg);
    r = disk_write(from, 0, MiB, 0x5a);
    assert_held(from, 1);
    uri = g_strdup_printf("file:%s/state", src->dir);
    migrate_to_file(src, uri);
    machine_args(dst, "-incoming %s", uri);
    machine_start_moved(dst, src);
    request_ok(request_moved(to, r));
    g_assert_true(disk_holds(to, 0, MiB, 0x5a));
    machine_free(dst);
    machine_free(src);
}

/*
 * Without idletime, stopped by an error: the request is in the stream.  With
 * it, on the other side, it is held.
 */
static void move_from_stock(const char *binary, bool attach)
{
    TestMachine *src = machine_new(), *dst;
    TestMachine *other = neighbour(src);
    g_autofree char *uri = g_strdup_printf("file:%s/state", src->dir);
    TestDisk *from, *to;
    TestRequest *r;

    src->binary = binary;
    from = machine_failing(src, "d", "file.inject-error.0.event=write_aio,"
                           "file.inject-error.0.errno=5,"
                           "file.inject-error.0.once=on", "werror=stop");
    dst = mover(src, attach ? "" : ON_R0 "background", &to);
    machine_start(src);
    r = disk_write(from, 0, MiB, 0x5a);
    qtest_qmp_eventwait(src->qts, "STOP");
    migrate_to_file(src, uri);

    machine_args(dst, "-incoming %s", uri);
    machine_start_moved(dst, src);
    if (attach) {
        disk_attach(to, "background");
    }
    machine_cont(dst);
    disk_await(to, "held", 1);
    r = request_moved(to, r);
    machine_step_us(dst, 1000 * MS - 1);
    assert_held(to, 1);
    machine_step_us(dst, 1);
    request_ok(r);
    g_assert_true(disk_holds(to, 0, MiB, 0x5a));
    neighbour_free(other);
    machine_free(dst);
    machine_free(src);
}

static void test_move_from_unset(void)
{
    move_from_stock(NULL, false);
}

static void test_move_and_attach(void)
{
    move_from_stock(NULL, true);
}

static void test_move_from_unpatched(void)
{
    if (!g_getenv(UNPATCHED_QEMU)) {
        g_test_skip(UNPATCHED_QEMU " is not set");
        return;
    }
    move_from_stock(UNPATCHED_QEMU, false);
    move_from_stock(UNPATCHED_QEMU, true);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(move_case); i++) {
        g_autofree char *path = g_strdup_printf("idletime/move/%s",
                                                move_case[i].name);

        ring_data_test(path, &move_case[i], test_move);
    }
    ring_test("idletime/move/from-unset", test_move_from_unset);
    ring_test("idletime/move/and-attach", test_move_and_attach);
    ring_test("idletime/move/from-unpatched", test_move_from_unpatched);
    ring_test("idletime/move/to-unpatched", test_move_to_unpatched);
    return g_test_run();
}
