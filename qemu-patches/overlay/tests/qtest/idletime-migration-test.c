/*
 * Idletime machine tests: the stream of a migration, sent when the uplink is
 * idle.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A foreground packet of the source holds it; time moves by steps alone, so a
 * migration that is held stays so.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-nic.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"

/* No release but by the interval, which is a minute. */
#define LONG        "interval-us=60000000,max-hold-ms=0"
#define LONG_US     (60 * 1000 * MS)
/* With one value each; the rest of the memory is empty. */
#define FILLED      (64 * MiB)
#define FILLED_SIZE (8 * MiB)
#define NIC_SLOT    6
#define WAIT_US     (60 * G_USEC_PER_SEC)

typedef struct Setup {
    TestMachine *src;
    TestMachine *dst;
    TestNic *fg;                /* of the source */
    TestNic *there;             /* the same, of the target */
    char *uri;
} Setup;

static void fill(TestMachine *m)
{
    for (int i = 0; i < FILLED_SIZE / MiB; i++) {
        qtest_memset(m->qts, FILLED + i * MiB, 1 + i, MiB);
    }
}

static void assert_filled(TestMachine *m)
{
    g_autofree uint8_t *data = g_malloc(MiB);

    for (int i = 0; i < FILLED_SIZE / MiB; i++) {
        qtest_memread(m->qts, FILLED + i * MiB, data, MiB);
        g_assert_cmpint(data[0], ==, 1 + i);
        g_assert_cmpint(memcmp(data, data + 1, MiB - 1), ==, 0);
    }
}

static void start_target(Setup *s)
{
    s->dst = machine_new_beside(s->src);
    nic_resource(s->dst, "");
    machine_args(s->dst, "-incoming defer");
    s->there = machine_nic_at(s->dst, "fg", NIC_SLOT, "");
    machine_start_waiting(s->dst);
}

static void end_target(Setup *s)
{
    nic_free(s->there);
    machine_free(s->dst);
}

static Setup setup_with(const char *arguments, const char *options)
{
    Setup s = { .src = machine_new() };

    machine_args(s.src, "%s", arguments);
    nic_resource(s.src, options);
    s.fg = machine_nic_at(s.src, "fg", NIC_SLOT, "idletime=" RESOURCE);
    machine_start(s.src);
    nic_init(s.fg);
    fill(s.src);
    start_target(&s);
    s.uri = g_strdup_printf("unix:%s/stream", s.src->dir);
    return s;
}

static Setup setup(const char *options)
{
    return setup_with("", options);
}

static void teardown(Setup *s)
{
    nic_free(s->fg);
    end_target(s);
    machine_free(s->src);
    g_free(s->uri);
}

static void attach(TestMachine *m)
{
    machine_ok(m, "idletime-attach", "{'migration': true, 'resource': %s}",
               RESOURCE);
}

static void detach(TestMachine *m)
{
    machine_ok(m, "idletime-detach", "{'migration': true}");
}

static bool is_attached(TestMachine *m)
{
    QDict *response = qtest_qmp(m->qts, "{'execute': 'query-idletime'}");
    const QListEntry *first = qlist_first(qdict_get_qlist(response, "return"));
    QDict *resource = qobject_to(QDict, qlist_entry_obj(first));
    bool found = !qlist_empty(qdict_get_qlist(resource, "migrations"));

    qobject_unref(response);
    return found;
}

static void await_detached(TestMachine *m)
{
    QDict *event = qtest_qmp_eventwait_ref(m->qts, "IDLETIME_DETACHED");
    QDict *data = qdict_get_qdict(event, "data");

    g_assert_true(qdict_get_bool(data, "migration"));
    g_assert_cmpint(qdict_size(data), ==, 1);
    qobject_unref(event);
    g_assert_false(is_attached(m));
}

static int64_t number(Setup *s, const char *member)
{
    g_autofree char *path = g_strdup_printf("migrations.0.%s", member);

    return machine_number(s->src, RESOURCE, path);
}

static void await(Setup *s, const char *member, int64_t value)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;

    while (number(s, member) != value) {
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        g_usleep(1000);
    }
}

static char *status(TestMachine *m)
{
    QDict *info = qtest_qmp_assert_success_ref(m->qts,
                                               "{'execute': 'query-migrate'}");
    char *text = g_strdup(qdict_get_try_str(info, "status"));

    qobject_unref(info);
    return text;
}

/* Of the migrated memory, pages that are not empty. */
static int64_t pages_sent(Setup *s)
{
    QDict *info = qtest_qmp_assert_success_ref(s->src->qts,
                                               "{'execute': 'query-migrate'}");
    /* It is not told while the migration is set up. */
    QDict *ram = qdict_get_qdict(info, "ram");
    int64_t pages = ram ? qdict_get_int(ram, "normal") : 0;

    qobject_unref(info);
    return pages;
}

static void await_status(TestMachine *m, const char *wanted)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;

    for (;;) {
        g_autofree char *now = status(m);

        if (g_strcmp0(now, wanted) == 0) {
            return;
        }
        g_assert_cmpstr(now, !=, "failed");
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        g_usleep(1000);
    }
}

static void begin(Setup *s)
{
    machine_ok(s->dst, "migrate-incoming", "{'uri': %s}", s->uri);
    machine_ok(s->src, "migrate", "{'uri': %s}", s->uri);
}

static void hold(Setup *s)
{
    nic_send(s->fg, (TestPacket) { .number = 1 });
    begin(s);
    await(s, "held", 1);
}

static void assert_moved(Setup *s)
{
    await_status(s->src, "completed");
    await_status(s->dst, "completed");
    assert_filled(s->dst);
}

/*
 * Nothing of the memory leaves before the interval has passed, then all: so
 * many bytes at least.
 */
static void held_then_sent(Setup *s, int64_t bytes)
{
    hold(s);
    machine_step_us(s->src, LONG_US - 1);
    g_assert_cmpint(pages_sent(s), ==, 0);
    g_assert_cmpint(number(s, "background.requests"), ==, 0);
    machine_step_us(s->src, 1);
    assert_moved(s);
    g_assert_cmpint(number(s, "background.requests"), >, 0);
    g_assert_cmpint(number(s, "background.bytes"), >=, bytes);
    await(s, "in-service", 0);
    await(s, "held", 0);
}

static void held_then_moved(Setup *s)
{
    held_then_sent(s, FILLED_SIZE);
}

/* Some of the memory has been sent, the rest is held until then. */
static void rest_held_then_moved(Setup *s)
{
    await(s, "held", 1);
    g_assert_cmpint(pages_sent(s), <, FILLED_SIZE / 4096);
    machine_step_us(s->src, LONG_US);
    assert_moved(s);
}

static void set_capability(TestMachine *m, const char *name)
{
    machine_ok(m, "migrate-set-capabilities",
               "{'capabilities': [{'capability': %s, 'state': true}]}", name);
}

static void use_multifd(Setup *s)
{
    set_capability(s->src, "multifd");
    set_capability(s->dst, "multifd");
}

/* ---- held, and not */

static void test_held(void)
{
    Setup s = setup(LONG);

    attach(s.src);
    held_then_moved(&s);
    teardown(&s);
}

/* A chunk each time that it has been held for as long as may be. */
static void test_deadline(void)
{
    Setup s = setup("interval-us=60000000,max-hold-ms=1000");

    attach(s.src);
    hold(&s);
    machine_step_us(s.src, 1000 * MS - 1);
    g_assert_cmpint(pages_sent(&s), ==, 0);
    machine_step_us(s.src, 1);
    await(&s, "promotions.deadline", 1);
    await(&s, "held", 1);
    g_assert_cmpint(pages_sent(&s), >, 0);
    rest_held_then_moved(&s);
    teardown(&s);
}

static bool huge_possible(void)
{
    g_autofree char *text = NULL;

    return g_file_get_contents("/sys/kernel/mm/hugepages/hugepages-2048kB/"
                               "free_hugepages", &text, NULL, NULL) &&
           g_ascii_strtoll(text, NULL, 10) >= 64;
}

/* The same in the middle of a huge page; nothing goes on there by itself. */
static void test_huge(void)
{
    Setup s = setup_with("-object memory-backend-memfd,id=pc.ram,"
                         "size=128M,hugetlb=on -machine memory-backend=pc.ram",
                         "interval-us=60000000,max-hold-ms=1000");
    int64_t pages;

    attach(s.src);
    hold(&s);
    machine_step_us(s.src, 1000 * MS);
    await(&s, "promotions.deadline", 1);
    await(&s, "held", 1);
    pages = pages_sent(&s);
    g_assert_cmpint(pages, >, 0);
    g_assert_cmpint(pages, <, 512);
    g_usleep(500 * MS);
    g_assert_cmpint(pages_sent(&s), ==, pages);
    rest_held_then_moved(&s);
    teardown(&s);
}

/* Threads that send are given no more than a chunk. */
static void test_multifd(void)
{
    Setup s = setup(LONG);

    use_multifd(&s);
    attach(s.src);
    held_then_moved(&s);
    teardown(&s);
}

/* How many bytes leave, the compressor decides. */
static void test_compressed(void)
{
    Setup s = setup(LONG);
    TestMachine *both[] = { s.src, s.dst };

    use_multifd(&s);
    for (int i = 0; i < ARRAY_SIZE(both); i++) {
        machine_ok(both[i], "migrate-set-parameters",
                   "{'multifd-compression': 'zlib'}");
    }
    attach(s.src);
    held_then_sent(&s, 1);
    teardown(&s);
}

#ifdef CONFIG_GNUTLS
static void encrypt(TestMachine *m, const char *endpoint, const char *folder)
{
    machine_ok(m, "object-add",
               "{'qom-type': 'tls-creds-psk', 'id': 'tls0', 'endpoint': %s,"
               " 'dir': %s}", endpoint, folder);
    machine_ok(m, "migrate-set-parameters", "{'tls-creds': 'tls0'}");
}

static void tls(bool multifd)
{
    Setup s = setup(LONG);
    g_autofree char *keys = g_strdup_printf("%s/keys.psk", s.src->dir);

    g_assert_true(g_file_set_contents(
        keys, "qemu:00112233445566778899aabbccddeeff\n", -1, NULL));
    encrypt(s.src, "client", s.src->dir);
    encrypt(s.dst, "server", s.src->dir);
    if (multifd) {
        use_multifd(&s);
    }
    attach(s.src);
    held_then_moved(&s);
    unlink(keys);
    teardown(&s);
}

static void test_tls(void)
{
    tls(false);
}

static void test_tls_multifd(void)
{
    tls(true);
}
#endif

/* Attached while it runs: what it sends from then on is held. */
static void test_attach_late(void)
{
    Setup s = setup(LONG);

    machine_ok(s.src, "migrate-set-parameters", "{'max-bandwidth': 100000}");
    begin(&s);
    while (!pages_sent(&s)) {
        g_usleep(1000);
    }
    nic_send(s.fg, (TestPacket) { .number = 1 });
    attach(s.src);
    machine_ok(s.src, "migrate-set-parameters", "{'max-bandwidth': 0}");
    rest_held_then_moved(&s);
    teardown(&s);
}

/* It need not run yet, nor ever. */
static void test_nothing_runs(void)
{
    Setup s = setup(LONG);

    attach(s.src);
    g_assert_true(is_attached(s.src));
    detach(s.src);
    await_detached(s.src);
    nic_send(s.fg, (TestPacket) { .number = 1 });
    begin(&s);
    assert_moved(&s);
    teardown(&s);
}

/*
 * The guest writes more than leaves: told at the first chunk after the pass,
 * once.  Most of what it writes here is empty, so it counts as written only;
 * the rest is several chunks of the next pass.
 */
static void test_diverges(void)
{
    Setup s = setup(LONG);
    QDict *event, *data;

    machine_ok(s.src, "migrate-set-parameters", "{'downtime-limit': 1}");
    attach(s.src);
    hold(&s);
    g_usleep(1100 * 1000);      /* what it writes is told once a second */
    g_assert_cmpint(number(&s, "diverges"), ==, 0);
    qtest_memset(s.src->qts, 2 * MiB, 0, 4 * FILLED_SIZE);
    fill(s.src);
    machine_step_us(s.src, LONG_US);
    event = qtest_qmp_eventwait_ref(s.src->qts, "IDLETIME_MIGRATION_DIVERGES");
    data = qdict_get_qdict(event, "data");
    g_assert_cmpint(qdict_get_int(data, "written"), >,
                    qdict_get_int(data, "left"));
    g_assert_cmpint(qdict_get_int(data, "left"), >, 0);
    qobject_unref(event);
    assert_moved(&s);
    g_assert_cmpint(number(&s, "diverges"), ==, 0);
    teardown(&s);
}

/* Chunk after chunk goes without a wait; the arena is lost meanwhile. */
static Setup lose_arena(void)
{
    Setup s = setup("max-hold-ms=0");

    machine_ok(s.src, "migrate-set-parameters", "{'max-bandwidth': 1000000}");
    attach(s.src);
    begin(&s);
    while (!pages_sent(&s)) {
        g_usleep(1000);
    }
    arena_delete(s.src);
    machine_step_us(s.src, ARENA_LOOK_US);
    g_assert_true(arena_is_lost(s.src));
    return s;
}

static void test_arena(void)
{
    Setup s = lose_arena();

    arena_await(s.src);
    machine_ok(s.src, "migrate-set-parameters", "{'max-bandwidth': 0}");
    assert_moved(&s);
    await(&s, "in-service", 0);
    teardown(&s);
}

/* No chunk follows that would go to the new one. */
static void test_arena_cancel(void)
{
    Setup s = lose_arena();

    qtest_set_expected_status(s.dst->qts, EXIT_FAILURE);
    machine_ok(s.src, "migrate_cancel", "{}");
    await_status(s.src, "cancelled");
    arena_await(s.src);
    await(&s, "in-service", 0);
    teardown(&s);
}

/* ---- what ends the wait */

static void test_detach(void)
{
    Setup s = setup(LONG);

    attach(s.src);
    hold(&s);
    detach(s.src);
    await_detached(s.src);
    assert_moved(&s);
    teardown(&s);
}

/* In between and again: its class is that of the moment. */
static void test_detach_and_attach(void)
{
    Setup s = setup(LONG);

    attach(s.src);
    hold(&s);
    for (int i = 0; i < 20; i++) {
        machine_ok(s.src, "migrate-set-parameters", "{'max-bandwidth': 10000}");
        detach(s.src);
        await_detached(s.src);
        attach(s.src);
    }
    machine_ok(s.src, "migrate-set-parameters", "{'max-bandwidth': 0}");
    rest_held_then_moved(&s);
    teardown(&s);
}

/* The VM goes on, and migrates when it is told to again. */
static void test_cancel(void)
{
    Setup s = setup(LONG);

    attach(s.src);
    hold(&s);
    qtest_set_expected_status(s.dst->qts, EXIT_FAILURE);
    machine_ok(s.src, "migrate_cancel", "{}");
    await_status(s.src, "cancelled");
    await(&s, "held", 0);
    await(&s, "in-service", 0);
    g_assert_true(is_attached(s.src));
    end_target(&s);
    start_target(&s);
    hold(&s);
    machine_step_us(s.src, LONG_US);
    assert_moved(&s);
    teardown(&s);
}

/* Whoever has stopped the VM waits for it. */
static void test_postcopy(void)
{
    Setup s = setup(LONG);
    QDict *answer = qtest_qmp(s.dst->qts, "{'execute': 'migrate-set-"
                              "capabilities', 'arguments': {'capabilities': [{"
                              "'capability': 'postcopy-ram', 'state': true}]}}");
    bool possible = qdict_haskey(answer, "return");

    qobject_unref(answer);
    if (possible) {
        set_capability(s.src, "postcopy-ram");
        attach(s.src);
        hold(&s);
        machine_ok(s.src, "migrate-start-postcopy", "{}");
        assert_moved(&s);
        await(&s, "held", 0);
    } else {
        g_test_skip("postcopy is not possible here");
    }
    teardown(&s);
}

/* The source ends while it is held: so does the wait. */
static void test_quit(void)
{
    Setup s = setup(LONG);

    attach(s.src);
    hold(&s);
    teardown(&s);
}

/* ---- what is none */

/* A file is on no uplink. */
static void test_file(void)
{
    Setup s = setup(LONG);

    g_free(s.uri);
    s.uri = g_strdup_printf("file:%s/state", s.src->dir);
    attach(s.src);
    nic_send(s.fg, (TestPacket) { .number = 1 });
    machine_ok(s.src, "migrate", "{'uri': %s}", s.uri);
    await_status(s.src, "completed");
    g_assert_cmpint(number(&s, "background.requests"), ==, 0);
    machine_ok(s.dst, "migrate-incoming", "{'uri': %s}", s.uri);
    assert_moved(&s);
    teardown(&s);
}

static void test_errors(void)
{
    TestMachine *m = machine_new();
    TestDisk *d;

    nic_resource(m, "");
    machine_resource(m, "disk0", "");
    d = machine_disk(m, "d", "idletime=disk0");
    machine_start(m);
    g_assert_nonnull(d);
    machine_refused(m, "migration is attached to no idletime-resource; "
                    "query-idletime lists what is", "idletime-detach",
                    "{'migration': true}");
    machine_refused(m, "exactly one of 'device', 'job', 'export' and "
                    "'migration' must be given", "idletime-attach",
                    "{'migration': false, 'resource': %s}", RESOURCE);
    machine_refused(m, "exactly one of 'device', 'job', 'export' and "
                    "'migration' must be given", "idletime-attach",
                    "{'migration': true, 'device': 'd', 'resource': %s}",
                    RESOURCE);
    machine_refused(m, "'class' is 'foreground', but migration can only be "
                    "'background': detached, it is foreground",
                    "idletime-attach", "{'migration': true, 'resource': %s,"
                    " 'class': 'foreground'}", RESOURCE);
    machine_refused(m, "'dscp' is '1', but migration has no queues and no "
                    "packets: leave it out", "idletime-attach",
                    "{'migration': true, 'resource': %s, 'dscp': '1'}",
                    RESOURCE);
    attach(m);
    machine_refused(m, "migration 'outgoing' is attached to idletime-resource "
                    "'" RESOURCE "': use idletime-detach first",
                    "idletime-attach", "{'migration': true, 'resource': %s}",
                    RESOURCE);
    detach(m);
    await_detached(m);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/migration/held", test_held);
    qtest_add_func("idletime/migration/deadline", test_deadline);
    if (huge_possible()) {
        qtest_add_func("idletime/migration/huge", test_huge);
    }
    qtest_add_func("idletime/migration/multifd", test_multifd);
    qtest_add_func("idletime/migration/compressed", test_compressed);
#ifdef CONFIG_GNUTLS
    qtest_add_func("idletime/migration/tls", test_tls);
    qtest_add_func("idletime/migration/tls-multifd", test_tls_multifd);
#endif
    qtest_add_func("idletime/migration/attach-late", test_attach_late);
    qtest_add_func("idletime/migration/nothing-runs", test_nothing_runs);
    qtest_add_func("idletime/migration/diverges", test_diverges);
    qtest_add_func("idletime/migration/arena", test_arena);
    qtest_add_func("idletime/migration/arena-cancel", test_arena_cancel);
    qtest_add_func("idletime/migration/detach", test_detach);
    qtest_add_func("idletime/migration/detach-and-attach",
                   test_detach_and_attach);
    qtest_add_func("idletime/migration/cancel", test_cancel);
    qtest_add_func("idletime/migration/postcopy", test_postcopy);
    qtest_add_func("idletime/migration/quit", test_quit);
    qtest_add_func("idletime/migration/file", test_file);
    qtest_add_func("idletime/migration/errors", test_errors);
    return g_test_run();
}
