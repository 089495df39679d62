/*
 * Idletime machine tests: requests of an NBD export are held.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-nbd.h"
#include "qobject/qdict.h"

/* No release but by the interval, which is a minute. */
#define LONG        "interval-us=60000000,max-hold-ms=0"
#define BUDGET_US   (100 * MS)
#define DATA_BYTES  (4 * MiB)
#define PIECE_BYTES (128 * KiB)
#define HELD        3
/* That the server reads from one connection before it replies. */
#define SERVER_MAX  16

typedef struct Setup {
    TestMachine *m;
    TestDisk *fg;           /* on RESOURCE */
    TestDisk *d;            /* exported; no resource */
    TestNbd *client;
} Setup;

static Setup setup(const char *options, bool structured)
{
    Setup s = { .m = machine_new() };

    machine_resource(s.m, RESOURCE, options);
    s.fg = machine_disk(s.m, "fg", "idletime=" RESOURCE);
    s.d = machine_disk(s.m, "d", "share-rw=on");
    disk_fill(s.d, 0, DATA_BYTES, 0x5a);
    machine_start(s.m);
    nbd_serve(s.m);
    nbd_export(s.m, "d", ", 'writable': true");
    nbd_attach(s.m);
    s.client = nbd_connect(s.m, structured);
    g_assert_cmpint(s.client->size, ==, DISK_BYTES);
    foreground(s.fg);
    return s;
}

static void teardown(Setup *s)
{
    nbd_close(s->client);
    machine_free(s->m);
}

/* ---- kinds of requests */

typedef struct Kind {
    const char *name;
    uint16_t type;
    uint8_t after;          /* value of the bytes */
} Kind;

static const Kind kind[] = {
    { "read", NBD_READ, 0x5a },
    { "write", NBD_WRITE, 0xa5 },
    { "zeroes", NBD_WRITE_ZEROES, 0 },
    { "trim", NBD_TRIM, 0 },
    { "cache", NBD_CACHE, 0x5a },
};

static void check_held(const Kind *k, bool structured)
{
    Setup s = setup("", structured);
    TestNbdRequest *r = nbd_send(s.client, k->type, 0, BLOCK_BYTES, 0xa5);

    nbd_await(s.m, "held", 1);
    nbd_ok(nbd_send(s.client, NBD_FLUSH, 0, 0, 0), 0);
    if (structured) {
        nbd_ok(nbd_send(s.client, NBD_BLOCK_STATUS, 0, MiB, 0), 0);
    }
    machine_step_us(s.m, INTERVAL_US - 1);
    g_assert_cmpint(nbd_number(s.m, "held"), ==, 1);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 0);
    g_assert_true(disk_holds(s.d, 0, BLOCK_BYTES, 0x5a));
    machine_step_us(s.m, 1);
    nbd_ok(r, 0x5a);
    g_assert_cmpint(nbd_number(s.m, "held"), ==, 0);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 1);
    g_assert_cmpint(nbd_number(s.m, "background.bytes"), ==, BLOCK_BYTES);
    g_assert_cmpint(machine_number(s.m, RESOURCE, "background.requests"), ==,
                    1);
    g_assert_true(disk_holds(s.d, 0, BLOCK_BYTES, k->after));
    g_assert_true(disk_holds(s.d, BLOCK_BYTES, BLOCK_BYTES, 0x5a));
    teardown(&s);
}

/* An interval after the foreground it starts; what is no load passes. */
static void test_held(const void *opaque)
{
    check_held(opaque, false);
    check_held(opaque, true);
}

/* ---- when they start */

static void send_reads(Setup *s, TestNbdRequest **r)
{
    for (int i = 0; i < HELD; i++) {
        r[i] = nbd_read(s->client, i * BLOCK_BYTES, BLOCK_BYTES);
    }
}

/* While foreground is in service, after 100 ms. */
static void test_deadline(void)
{
    Setup s = setup("max-hold-ms=100", false);
    TestNbdRequest *r[HELD];
    TestRequest *f;

    disk_pause_read(s.fg, "A");
    f = disk_read(s.fg);
    send_reads(&s, r);
    nbd_await(s.m, "held", HELD);
    machine_step_us(s.m, BUDGET_US - 1);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 0);
    machine_step_us(s.m, 1);
    for (int i = 0; i < HELD; i++) {
        nbd_ok(r[i], 0x5a);
        g_assert_cmpint(r[i]->order, ==, i + 1);
    }
    g_assert_cmpint(nbd_number(s.m, "promotions.deadline"), ==, HELD);
    disk_resume(s.fg, "A");
    request_ok(f);
    teardown(&s);
}

/* One at a time is in service. */
static void test_cap(void)
{
    Setup s = setup("", false);
    TestNbdRequest *r[HELD];

    disk_pause_read(s.d, "A");
    send_reads(&s, r);
    nbd_await(s.m, "held", HELD);
    machine_step_us(s.m, INTERVAL_US);
    nbd_await(s.m, "in-service", 1);
    g_assert_cmpint(nbd_number(s.m, "held"), ==, HELD - 1);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 1);
    disk_resume(s.d, "A");
    for (int i = 0; i < HELD; i++) {
        nbd_ok(r[i], 0x5a);
    }
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, HELD);
    teardown(&s);
}

/* Two at a time: while the first one does not end, the others go by it. */
static void test_cap_of_two(void)
{
    Setup s = setup("max-inflight=2", false);
    TestNbdRequest *r[HELD];

    disk_pause_read(s.d, "A");
    send_reads(&s, r);
    nbd_await(s.m, "held", HELD);
    machine_step_us(s.m, INTERVAL_US);
    for (int i = 1; i < HELD; i++) {
        nbd_ok(r[i], 0x5a);
    }
    g_assert_cmpint(nbd_number(s.m, "in-service"), ==, 1);
    g_assert_false(nbd_done(r[0]));
    disk_resume(s.d, "A");
    nbd_ok(r[0], 0x5a);
    teardown(&s);
}

/* Of two connections, and more of one than the server reads at a time. */
static void test_many(void)
{
    Setup s = setup("", false);
    TestNbd *other = nbd_connect(s.m, true);
    TestNbdRequest *r[SERVER_MAX], *more[SERVER_MAX + 4];

    for (int i = 0; i < ARRAY_SIZE(r); i++) {
        r[i] = nbd_read(other, i * MiB / 4, BLOCK_BYTES);
    }
    for (int i = 0; i < ARRAY_SIZE(more); i++) {
        more[i] = nbd_read(s.client, i * BLOCK_BYTES, BLOCK_BYTES);
    }
    nbd_await(s.m, "held", 2 * SERVER_MAX);
    machine_step_us(s.m, INTERVAL_US);
    for (int i = 0; i < ARRAY_SIZE(r); i++) {
        nbd_ok(r[i], 0x5a);
        g_assert_cmpint(r[i]->order, ==, i + 1);
    }
    for (int i = 0; i < ARRAY_SIZE(more); i++) {
        nbd_ok(more[i], 0x5a);
        g_assert_cmpint(more[i]->order, ==, i + 1);
    }
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==,
                    ARRAY_SIZE(r) + ARRAY_SIZE(more));
    nbd_close(other);
    teardown(&s);
}

/* ---- pieces */

/*
 * Eight pieces; at an odd place nine, as it is cut at multiples.  All of the
 * first request come before the second one.
 */
static void check_pieces(uint16_t type, bool structured)
{
    Setup s = setup("", structured);
    TestNbdRequest *r = nbd_send(s.client, type, 0, MiB, 0x5a);
    TestNbdRequest *odd = nbd_send(s.client, type, 2 * MiB + 512, MiB, 0x5a);

    nbd_await(s.m, "held", 2);
    machine_step_us(s.m, INTERVAL_US);
    nbd_ok(r, 0x5a);
    nbd_ok(odd, 0x5a);
    g_assert_cmpint(r->order, ==, 1);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 8 + 9);
    g_assert_cmpint(nbd_number(s.m, "background.bytes"), ==, 2 * MiB);
    g_assert_true(disk_holds(s.d, 0, DATA_BYTES, 0x5a));
    teardown(&s);
}

static void test_pieces(void)
{
    check_pieces(NBD_READ, false);
    check_pieces(NBD_READ, true);
    check_pieces(NBD_WRITE, false);
    check_pieces(NBD_CACHE, false);
}

/* Foreground that comes during a piece is before the next one. */
static void test_between_pieces(void)
{
    Setup s = setup("", false);
    TestNbdRequest *r;

    disk_pause_read(s.d, "A");
    r = nbd_read(s.client, 0, 2 * PIECE_BYTES);
    nbd_await(s.m, "held", 1);
    machine_step_us(s.m, INTERVAL_US);
    nbd_await(s.m, "in-service", 1);
    foreground(s.fg);
    disk_resume(s.d, "A");
    nbd_await(s.m, "held", 1);
    machine_step_us(s.m, INTERVAL_US - 1);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 1);
    g_assert_false(nbd_done(r));
    machine_step_us(s.m, 1);
    nbd_ok(r, 0x5a);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 2);
    teardown(&s);
}

/* ---- attach and detach */

static void await_detached(TestMachine *m)
{
    QDict *event = qtest_qmp_eventwait_ref(m->qts, "IDLETIME_DETACHED");
    QDict *data = qdict_get_qdict(event, "data");

    g_assert_cmpstr(qdict_get_str(data, "export"), ==, "e");
    g_assert_cmpint(qdict_size(data), ==, 1);
    qobject_unref(event);
    g_assert_false(nbd_is_attached(m));
}

static void detach(Setup *s)
{
    machine_ok(s->m, "idletime-detach", "{'export': 'e'}");
}

/* What is held leaves, one at a time; what comes then goes by it. */
static void test_detach(void)
{
    Setup s = setup(LONG, false);
    TestNbdRequest *r[HELD];

    send_reads(&s, r);
    nbd_await(s.m, "held", HELD);
    disk_pause_read(s.d, "A");
    detach(&s);
    nbd_await(s.m, "held", HELD - 1);
    g_assert_true(machine_number(s.m, RESOURCE, "exports.0.detaching"));
    g_assert_cmpint(nbd_number(s.m, "promotions.class-change"), ==, 1);
    nbd_ok(nbd_read(s.client, MiB, MiB), 0x5a);
    g_assert_cmpint(nbd_number(s.m, "held"), ==, HELD - 1);
    detach(&s);
    disk_resume(s.d, "A");
    for (int i = 0; i < HELD; i++) {
        nbd_ok(r[i], 0x5a);
    }
    await_detached(s.m);
    nbd_attach(s.m);
    foreground(s.fg);
    r[0] = nbd_read(s.client, 0, BLOCK_BYTES);
    nbd_await(s.m, "held", 1);
    teardown(&s);
}

/* In the middle of a request: the rest of it goes in one. */
static void test_detach_in_service(void)
{
    Setup s = setup("", false);
    TestNbdRequest *r;

    disk_pause_read(s.d, "A");
    r = nbd_read(s.client, 0, MiB);
    nbd_await(s.m, "held", 1);
    machine_step_us(s.m, INTERVAL_US);
    nbd_await(s.m, "in-service", 1);
    detach(&s);
    disk_resume(s.d, "A");
    nbd_ok(r, 0x5a);
    await_detached(s.m);
    teardown(&s);
}

/* Attaching leaves alone what is in service. */
static void test_attach_in_service(void)
{
    Setup s = setup(LONG, false);
    TestNbdRequest *r;

    detach(&s);
    await_detached(s.m);
    disk_pause_read(s.d, "A");
    r = nbd_read(s.client, 0, BLOCK_BYTES);
    nbd_ok(nbd_read(s.client, 0, BLOCK_BYTES), 0x5a);
    nbd_attach(s.m);
    disk_resume(s.d, "A");
    nbd_ok(r, 0x5a);
    g_assert_cmpint(nbd_number(s.m, "background.requests"), ==, 0);
    teardown(&s);
}

static void test_refused(void)
{
    Setup s = setup("", false);
    TestMachine *m = s.m;

    machine_refused(m, "exactly one of 'device', 'job', 'export' and "
                    "'migration' must be given", "idletime-attach",
                    "{'export': 'e', 'device': 'd', 'resource': '" RESOURCE
                    "'}");
    machine_refused(m, "exactly one of 'device', 'job', 'export' and "
                    "'migration' must be given", "idletime-detach",
                    "{'export': 'e', 'job': 'j'}");
    machine_refused(m, "no block export has the id 'x'; query-block-exports "
                    "lists those that there are", "idletime-attach",
                    "{'export': 'x', 'resource': '" RESOURCE "'}");
    machine_refused(m, "export 'e' is attached to idletime-resource '" RESOURCE
                    "': use idletime-detach first", "idletime-attach",
                    "{'export': 'e', 'resource': '" RESOURCE "'}");
    machine_refused(m, "'class' is 'foreground', but an export can only be "
                    "'background': detached, it is foreground",
                    "idletime-attach", "{'export': 'e', 'class': 'foreground',"
                    " 'resource': '" RESOURCE "'}");
    machine_refused(m, "'dscp' is '1', but an export has no queues and no "
                    "packets: leave it out", "idletime-attach",
                    "{'export': 'e', 'resource': '" RESOURCE
                    "', 'dscp': '1'}");
    detach(&s);
    await_detached(m);
    machine_refused(m, "export 'e' is attached to no idletime-resource; "
                    "query-idletime lists those that are", "idletime-detach",
                    "{'export': 'e'}");
    teardown(&s);
}

/* Background from its first request on, as its options say. */
static void test_configured(void)
{
    TestMachine *m = machine_new();
    TestDisk *fg, *d;
    TestNbd *client;
    TestNbdRequest *r;

    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    d = machine_disk(m, "d", "share-rw=on");
    disk_fill(d, 0, BLOCK_BYTES, 0x5a);
    machine_start(m);
    nbd_serve(m);
    machine_refused(m, "property 'resource': no idletime-resource has the id "
                    "'x'; add -object idletime-resource,id=x,path=DIRECTORY",
                    "block-export-add", "{'type': 'nbd', 'id': 'e',"
                    " 'node-name': 'd', 'idletime': 'x'}");
    qtest_qmp_eventwait(m->qts, "BLOCK_EXPORT_DELETED");
    nbd_export(m, "d", ", 'idletime': '" RESOURCE "'");
    client = nbd_connect(m, false);
    foreground(fg);
    r = nbd_read(client, 0, BLOCK_BYTES);
    nbd_await(m, "held", 1);
    machine_step_us(m, INTERVAL_US);
    nbd_ok(r, 0x5a);
    nbd_close(client);
    machine_free(m);
}

static void test_shown(void)
{
    Setup s = setup("", false);
    g_autofree char *text = NULL;

    nbd_read(s.client, 0, BLOCK_BYTES);
    nbd_await(s.m, "held", 1);
    text = qtest_hmp(s.m->qts, "info idletime");
    g_assert_nonnull(strstr(text, "  export e: 0 chunks, held 1, longest hold "
                            "0 ms, promoted 0\r\n"));
    teardown(&s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(kind); i++) {
        g_autofree char *path = g_strdup_printf("idletime/export/held/%s",
                                                kind[i].name);

        qtest_add_data_func(path, &kind[i], test_held);
    }
    qtest_add_func("idletime/export/deadline", test_deadline);
    qtest_add_func("idletime/export/cap", test_cap);
    qtest_add_func("idletime/export/cap-of-two", test_cap_of_two);
    qtest_add_func("idletime/export/many", test_many);
    qtest_add_func("idletime/export/pieces", test_pieces);
    qtest_add_func("idletime/export/between-pieces", test_between_pieces);
    qtest_add_func("idletime/export/detach", test_detach);
    qtest_add_func("idletime/export/detach-in-service",
                   test_detach_in_service);
    qtest_add_func("idletime/export/attach-in-service",
                   test_attach_in_service);
    qtest_add_func("idletime/export/refused", test_refused);
    qtest_add_func("idletime/export/configured", test_configured);
    qtest_add_func("idletime/export/shown", test_shown);
    return g_test_run();
}
