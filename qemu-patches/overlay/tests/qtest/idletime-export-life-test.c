/*
 * Idletime machine tests: what becomes of requests that an export holds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Nothing waits for a held request: no drain, no client that goes, no removal,
 * no change of threads, no stop, and no end of QEMU.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-nbd.h"
#include "qobject/qdict.h"

/* No release but by the interval, which is a minute. */
#define LONG        "interval-us=60000000,max-hold-ms=0"
#define LONG_US     (60 * 1000 * MS)
#define DATA_BYTES  (4 * MiB)
#define HELD        3
#define EPERM_NBD   1

/* The server's thread: NULL is the main one. */
static const char *const thread[] = { NULL, "t" };

typedef struct Setup {
    TestMachine *m;
    TestDisk *fg;           /* on RESOURCE */
    TestDisk n;             /* the image; exported */
    TestNbd *client;
} Setup;

static TestDisk image_new(TestMachine *m)
{
    TestDisk n = { .image = g_strdup_printf("%s/n.img", m->dir) };
    int fd = open(n.image, O_RDWR | O_CREAT, 0600);

    g_assert_cmpint(ftruncate(fd, DISK_BYTES), ==, 0);
    close(fd);
    disk_fill(&n, 0, DATA_BYTES, 0x5a);
    return n;
}

static Setup setup(const char *options, const char *id)
{
    Setup s = { .m = machine_new() };
    g_autofree char *more =
        g_strdup_printf(", 'writable': true, 'allow-inactive': true%s%s%s",
                        id ? ", 'iothread': '" : "", id ?: "", id ? "'" : "");

    machine_resource(s.m, RESOURCE, options);
    machine_args(s.m, "-object iothread,id=t");
    s.fg = machine_disk(s.m, "fg", "idletime=" RESOURCE);
    s.n = image_new(s.m);
    machine_args(s.m, "-blockdev driver=raw,node-name=n,discard=unmap,"
                 "file.driver=file,file.filename=%s", s.n.image);
    machine_start(s.m);
    nbd_serve(s.m);
    nbd_export(s.m, "n", more);
    nbd_attach(s.m);
    s.client = nbd_connect(s.m, false);
    foreground(s.fg);
    return s;
}

static void teardown(Setup *s)
{
    if (s->client) {
        nbd_close(s->client);
    }
    machine_free(s->m);
    g_free(s->n.image);
}

/* Two reads and a write, at the first MiB. */
static void hold(Setup *s, TestNbdRequest **r)
{
    r[0] = nbd_read(s->client, MiB, MiB);
    r[1] = nbd_write(s->client, 0, MiB, 0xa5);
    r[2] = nbd_read(s->client, 2 * MiB, BLOCK_BYTES);
    nbd_await(s->m, "held", HELD);
}

static void release(Setup *s, TestNbdRequest **r)
{
    g_assert_cmpint(nbd_number(s->m, "background.requests"), ==, 0);
    machine_step_us(s->m, LONG_US);
    for (int i = 0; i < HELD; i++) {
        nbd_ok(r[i], 0x5a);
    }
    g_assert_true(disk_holds(&s->n, 0, MiB, 0xa5));
    g_assert_true(disk_holds(&s->n, MiB, MiB, 0x5a));
}

static void close_client(Setup *s)
{
    nbd_close(s->client);
    s->client = NULL;
}

/* ---- drains */

static void drain(Setup *s)
{
    machine_ok(s->m, "blockdev-reopen", "{'options': [{'driver': 'raw',"
               " 'node-name': 'n', 'discard': 'unmap', 'file': {'driver':"
               " 'file', 'filename': %s}}]}", s->n.image);
}

/* No drain waits for what is held, and none releases it. */
static void test_drain(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    for (int i = 0; i < 20; i++) {
        drain(&s);
        g_assert_cmpint(nbd_number(s.m, "held"), ==, HELD);
    }
    release(&s, r);
    teardown(&s);
}

static void test_snapshot(const void *id)
{
    Setup s = setup(LONG, id);
    g_autofree char *file = g_strdup_printf("%s/over.qcow2", s.m->dir);
    TestNbdRequest *r;

    r = nbd_read(s.client, 0, MiB);
    nbd_await(s.m, "held", 1);
    machine_ok(s.m, "blockdev-snapshot-sync", "{'node-name': 'n',"
               " 'snapshot-file': %s, 'snapshot-node-name': 'over'}", file);
    g_assert_cmpint(nbd_number(s.m, "held"), ==, 1);
    machine_step_us(s.m, LONG_US);
    nbd_ok(r, 0x5a);
    teardown(&s);
}

/* A client of a disk of two pieces a second. */
static TestNbd *slow_client(TestMachine *m, TestDisk **d, const char *more)
{
    machine_resource(m, RESOURCE, "");
    *d = machine_throttled(m, "d", TWO_A_SECOND, "share-rw=on");
    machine_start(m);
    disk_fill(*d, 0, MiB, 0x5a);
    nbd_serve(m);
    nbd_export(m, "d", more);
    nbd_attach(m);
    return nbd_connect(m, false);
}

/* It waits for the piece in service, and the next one waits for it. */
static void test_drain_half_way(void)
{
    TestMachine *m = machine_new();
    TestDisk *d;
    TestNbd *client = slow_client(m, &d, "");
    TestNbdRequest *r;

    r = nbd_read(client, 0, MiB);
    nbd_await(m, "background.requests", 2);
    machine_ok(m, "block_set_io_throttle", "{'id': '/machine/peripheral"
               "/d/virtio-backend', 'bps': 0, 'bps_rd': 0, 'bps_wr': 0,"
               " 'iops': 1000000, 'iops_rd': 0, 'iops_wr': 0}");
    g_assert_cmpint(nbd_number(m, "background.requests"), <, 8);
    nbd_ok(r, 0x5a);
    g_assert_cmpint(nbd_number(m, "background.requests"), ==, 8);
    nbd_close(client);
    machine_free(m);
}

/* ---- threads */

static void move(Setup *s, const char *id)
{
    if (id) {
        machine_ok(s->m, "x-blockdev-set-iothread", "{'node-name': 'n',"
                   " 'iothread': %s, 'force': true}", id);
    } else {
        machine_ok(s->m, "x-blockdev-set-iothread", "{'node-name': 'n',"
                   " 'iothread': null, 'force': true}");
    }
}

static void test_move(void)
{
    Setup s = setup(LONG, NULL);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    for (int i = 0; i < 20; i++) {
        move(&s, "t");
        g_assert_cmpint(nbd_number(s.m, "held"), ==, HELD);
        move(&s, NULL);
        g_assert_cmpint(nbd_number(s.m, "held"), ==, HELD);
    }
    release(&s, r);
    move(&s, "t");
    foreground(s.fg);
    r[0] = nbd_read(s.client, MiB, MiB);
    nbd_await(s.m, "held", 1);
    machine_step_us(s.m, LONG_US);
    nbd_ok(r[0], 0x5a);
    teardown(&s);
}

/* With clients that say goodbye, and clients that are cut. */
static void test_move_gone(void)
{
    Setup s = setup(LONG, NULL);

    for (int i = 0; i < 40; i++) {
        TestNbd *other = nbd_connect(s.m, false);

        nbd_write(other, 0, BLOCK_BYTES, 0xa5);
        nbd_write(other, MiB, BLOCK_BYTES, 0xa5);
        nbd_await(s.m, "held", 2);
        if (i % 2) {
            nbd_send(other, NBD_DISCONNECT, 0, 0, 0);
        } else {
            nbd_close(other);
        }
        move(&s, i % 4 < 2 ? "t" : NULL);
        if (i % 2) {
            g_assert_cmpint(nbd_number(s.m, "held"), ==, 2);
            nbd_close(other);
            machine_step_us(s.m, LONG_US);
        }
        nbd_await(s.m, "held", 0);
        foreground(s.fg);
    }
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 40);
    teardown(&s);
}

/*
 * While requests come and go.  A drain waits for a reply that the client does
 * not read, as in stock QEMU: all of them go into the socket.
 */
static void test_move_load(void)
{
    Setup s = setup("interval-us=0,max-request-bytes=4096", NULL);
    TestNbdRequest *r[8];
    const uint32_t bytes = 2 * BLOCK_BYTES;

    for (int i = 0; i < 50; i++) {
        for (int k = 0; k < ARRAY_SIZE(r); k++) {
            r[k] = nbd_read(s.client, k * MiB / 2, bytes);
        }
        move(&s, i % 2 ? NULL : "t");
        for (int k = 0; k < ARRAY_SIZE(r); k++) {
            nbd_ok(r[k], 0x5a);
        }
    }
    g_assert_cmpint(nbd_number(s.m, "background.bytes"), ==,
                    50 * ARRAY_SIZE(r) * bytes);
    teardown(&s);
}

/* ---- who goes */

static void await_unused(TestMachine *m)
{
    QDict *response = NULL;

    do {
        qobject_unref(response);
        g_usleep(1000);
        response = qtest_qmp(m->qts, "{'execute': 'block-export-del',"
                             " 'arguments': {'id': 'e'}}");
    } while (!qdict_haskey(response, "return"));
    qobject_unref(response);
    qtest_qmp_eventwait(m->qts, "BLOCK_EXPORT_DELETED");
    g_assert_false(nbd_is_attached(m));
}

/* Its reads are dropped, and it is forgotten at once. */
static void test_client_gone(const void *id)
{
    Setup s = setup(LONG, id);

    nbd_read(s.client, 0, MiB);
    nbd_read(s.client, MiB, BLOCK_BYTES);
    nbd_await(s.m, "held", 2);
    close_client(&s);
    nbd_await(s.m, "held", 0);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 0);
    await_unused(s.m);
    teardown(&s);
}

/*
 * Nor is written what it has sent, as where its host died: the next client may
 * have written there since, and was told so.
 */
static void test_writer_gone(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    close_client(&s);
    nbd_await(s.m, "held", 0);
    machine_step_us(s.m, LONG_US);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 0);
    g_assert_true(disk_holds(&s.n, 0, DATA_BYTES, 0x5a));
    await_unused(s.m);
    teardown(&s);
}

/* The rest of a write of which a piece is in service is dropped as well. */
static void test_writer_gone_half_way(void)
{
    TestMachine *m = machine_new();
    TestDisk *d;
    TestNbd *client = slow_client(m, &d, ", 'writable': true");

    nbd_write(client, 0, MiB, 0xa5);
    nbd_await(m, "background.requests", 2);
    nbd_close(client);
    await_unused(m);
    g_assert_true(disk_holds(d, MiB / 2, MiB / 2, 0x5a));
    machine_free(m);
}

/*
 * What it wrote before it said goodbye is written in its time, and it has its
 * place until then.
 */
static void test_client_wrote(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    nbd_send(s.client, NBD_DISCONNECT, 0, 0, 0);
    drain(&s);
    g_assert_true(disk_holds(&s.n, 0, DATA_BYTES, 0x5a));
    g_assert_cmpint(nbd_number(s.m, "held"), ==, HELD);
    machine_step_us(s.m, LONG_US);
    nbd_await_eof(s.client);
    await_unused(s.m);
    g_assert_true(disk_holds(&s.n, 0, MiB, 0xa5));
    teardown(&s);
}

/* It does not listen any more. */
static void test_client_wrote_and_went(const void *id)
{
    Setup s = setup(LONG, id);

    nbd_write(s.client, 0, MiB, 0xa5);
    nbd_write(s.client, MiB, MiB, 0xa5);
    nbd_await(s.m, "held", 2);
    nbd_send(s.client, NBD_DISCONNECT, 0, 0, 0);
    close_client(&s);
    g_assert_cmpint(nbd_number(s.m, "held"), ==, 2);
    machine_step_us(s.m, LONG_US);
    await_unused(s.m);
    g_assert_true(disk_holds(&s.n, 0, 2 * MiB, 0xa5));
    teardown(&s);
}

/* The neighbour's requests stay where they are. */
static void test_one_client_gone(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbd *other = nbd_connect(s.m, false);
    TestNbdRequest *r;

    nbd_read(s.client, 0, MiB);
    nbd_await(s.m, "held", 1);
    r = nbd_read(other, 0, MiB);
    nbd_await(s.m, "held", 2);
    close_client(&s);
    nbd_await(s.m, "held", 1);
    machine_step_us(s.m, LONG_US);
    nbd_ok(r, 0x5a);
    nbd_close(other);
    teardown(&s);
}

/* Drops its connections, and with them all that was held. */
static void test_removed(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    machine_refused(s.m, "export 'e' still in use", "block-export-del",
                    "{'id': 'e'}");
    machine_ok(s.m, "block-export-del", "{'id': 'e', 'mode': 'hard'}");
    qtest_qmp_eventwait(s.m->qts, "BLOCK_EXPORT_DELETED");
    nbd_await_eof(s.client);
    g_assert_false(nbd_is_attached(s.m));
    g_assert_cmpint(machine_number(s.m, RESOURCE, "held"), ==, 0);
    g_assert_true(disk_holds(&s.n, 0, DATA_BYTES, 0x5a));
    teardown(&s);
}

static void test_server_stopped(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    move(&s, id ? NULL : "t");
    machine_ok(s.m, "nbd-server-stop", "{}");
    nbd_await_eof(s.client);
    g_assert_false(nbd_is_attached(s.m));
    teardown(&s);
}

/* And of what is being detached. */
static void test_removed_detaching(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    machine_ok(s.m, "idletime-detach", "{'export': 'e'}");
    machine_ok(s.m, "block-export-del", "{'id': 'e', 'mode': 'hard'}");
    qtest_qmp_eventwait(s.m->qts, "IDLETIME_DETACHED");
    nbd_await_eof(s.client);
    teardown(&s);
}

static void test_quit(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    qtest_qmp_assert_success(s.m->qts, "{'execute': 'quit'}");
    nbd_await_eof(s.client);
    teardown(&s);
}

static void test_stop(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    for (int i = 0; i < 20; i++) {
        machine_stop(s.m);
        g_assert_cmpint(nbd_number(s.m, "held"), ==, HELD);
        machine_cont(s.m);
    }
    release(&s, r);
    teardown(&s);
}

/* Reads are allowed on an inactive node, and others fail as in stock QEMU. */
static void test_inactive(const void *id)
{
    Setup s = setup(LONG, id);
    TestNbdRequest *r[HELD];

    hold(&s, r);
    machine_ok(s.m, "blockdev-set-active", "{'node-name': 'n',"
               " 'active': false}");
    machine_step_us(s.m, LONG_US);
    nbd_ok(r[0], 0x5a);
    g_assert_cmpint(nbd_wait(r[1]), ==, EPERM_NBD);
    nbd_ok(r[2], 0x5a);
    g_assert_true(disk_holds(&s.n, 0, DATA_BYTES, 0x5a));
    teardown(&s);
}

static void add(const char *path, void (*fn)(const void *))
{
    for (unsigned i = 0; i < ARRAY_SIZE(thread); i++) {
        g_autofree char *full =
            g_strdup_printf("idletime/export/%s/%s", path,
                            thread[i] ? "iothread" : "main");

        qtest_add_data_func(full, thread[i], fn);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add("drain", test_drain);
    add("snapshot", test_snapshot);
    qtest_add_func("idletime/export/drain-half-way", test_drain_half_way);
    qtest_add_func("idletime/export/move", test_move);
    qtest_add_func("idletime/export/move-gone", test_move_gone);
    qtest_add_func("idletime/export/move-load", test_move_load);
    add("client-gone", test_client_gone);
    add("writer-gone", test_writer_gone);
    qtest_add_func("idletime/export/writer-gone-half-way",
                   test_writer_gone_half_way);
    add("client-wrote", test_client_wrote);
    add("client-wrote-and-went", test_client_wrote_and_went);
    add("one-client-gone", test_one_client_gone);
    add("removed", test_removed);
    add("removed-detaching", test_removed_detaching);
    add("server-stopped", test_server_stopped);
    add("quit", test_quit);
    add("stop", test_stop);
    add("inactive", test_inactive);
    return g_test_run();
}
