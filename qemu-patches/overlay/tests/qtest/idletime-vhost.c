/*
 * Idletime machine tests: network devices whose tap has vhost, the host
 * kernel's.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "idletime-vhost.h"
#include "qobject/qdict.h"

#define SETTLE_US       (20 * MS)
#define ETH_P_RARP      0x8035

/* ---- facts */

bool vhost_runs(TestNic *nic)
{
    g_autofree char *path = g_strdup_printf("/machine/peripheral/%s/"
                                            "virtio-backend", nic->id);
    QDict *status = qtest_qmp_assert_success_ref(nic->m->qts,
        "{'execute': 'x-query-virtio-status', 'arguments': {'path': %s}}",
        path);
    bool runs = qdict_get_bool(status, "vhost-started");

    qobject_unref(status);
    return runs;
}

/* "voluntary_ctxt_switches" of the thread in @folder, if it has this name. */
static int64_t switches_in(const char *folder, const char *name)
{
    g_autofree char *comm_path = g_strconcat(folder, "/comm", NULL);
    g_autofree char *status_path = g_strconcat(folder, "/status", NULL);
    g_autofree char *comm = NULL, *status = NULL;
    const char *line;

    if (!g_file_get_contents(comm_path, &comm, NULL, NULL) ||
        strcmp(g_strchomp(comm), name) != 0 ||
        !g_file_get_contents(status_path, &status, NULL, NULL)) {
        return 0;
    }
    line = strstr(status, "\nvoluntary_ctxt_switches:");
    g_assert_nonnull(line);
    return g_ascii_strtoll(strchr(line, ':') + 1, NULL, 10);
}

static int64_t switches_below(const char *folder, const char *name)
{
    g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
    const char *entry;
    int64_t sum = 0;

    while (dir && (entry = g_dir_read_name(dir))) {
        g_autofree char *path = g_build_filename(folder, entry, NULL);

        sum += g_ascii_isdigit(entry[0]) ? switches_in(path, name) : 0;
    }
    return sum;
}

/* How often vhost's thread went to sleep, having worked. */
static int64_t worker_switches(TestNic *nic)
{
    g_autofree char *name = g_strdup_printf("vhost-%d",
                                            (int)qtest_pid(nic->m->qts));
    /* A thread of the process since Linux 6.4. */
    g_autofree char *tasks = g_strdup_printf("/proc/%d/task",
                                             (int)qtest_pid(nic->m->qts));

    return switches_below("/proc", name) + switches_below(tasks, name);
}

/* When it sleeps: its last work may be over for others a little earlier. */
static int64_t settled_switches(TestNic *nic)
{
    int64_t before, now = worker_switches(nic);

    do {
        before = now;
        g_usleep(SETTLE_US);
        now = worker_switches(nic);
    } while (now != before);
    return now;
}

/* ---- bench */

TestNic *vhost_nic(TestMachine *m, const char *tap_name,
                          const char *options)
{
    int tap = tap_open(tap_name, 0);
    g_autofree char *netdev = g_strdup_printf("tap,fd=%d,vhost=on", tap);
    TestNic *nic = machine_nic_on(m, "vm", 20, netdev, options);

    /* Closed at the machine's start; the test's end closes it for QEMU. */
    nic->host = tap;
    return nic;
}

VhostBench vhost_bench(const char *resource, const char *options)
{
    VhostBench b = { .m = machine_new() };

    machine_resource(b.m, RESOURCE, resource);
    b.fg = machine_nic_at(b.m, "fg", 21, "idletime=" RESOURCE);
    b.vm = vhost_nic(b.m, "tap-vhost", options);
    b.watched = tap_watch("tap-vhost");
    machine_start(b.m);
    close(b.vm->host);
    b.vm->host = -1;
    nic_init(b.fg);
    nic_init(b.vm);
    return b;
}

void vhost_done(VhostBench *b)
{
    nic_free(b->fg);
    tap_done(b->m, b->vm, b->watched);
}

void vhost_step(VhostBench *b, int64_t us)
{
    machine_step_us(b->m, us);
    nic_settle(b->m);
}

void vhost_send(VhostBench *b, uint32_t number)
{
    nic_send(b->vm, (TestPacket) { .dscp = DSCP_LE, .number = number });
}

int64_t vhost_seen(VhostBench *b)
{
    uint8_t frame[2048];
    size_t size;

    do {
        size = tap_seen(b->watched, frame, sizeof(frame));
        /* A device that has moved announces itself. */
    } while (size && lduw_be_p(frame + 12) == ETH_P_RARP);
    return size ? ldl_be_p(frame + ETHERNET + IP4 + UDP) : -1;
}

int64_t vhost_awaited(VhostBench *b)
{
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;
    int64_t number;

    while ((number = vhost_seen(b)) < 0) {
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
        nic_settle(b->m);
    }
    return number;
}

void vhost_await_returned(VhostBench *b, unsigned count)
{
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;

    while (nic_returned(b->vm) != count) {
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
    }
}

/* The interval begins; from then on numbers @first to @first + 2 are held. */
static void vhost_hold_some(VhostBench *b, uint32_t first)
{
    nic_send(b->fg, (TestPacket) { .port = 2000 });
    for (int i = 0; i < NIC_HELD; i++) {
        vhost_send(b, first + i);
    }
    g_assert_cmpint(vhost_seen(b), ==, -1);
    g_assert_cmpint(nic_number(b->vm, "held"), >=, 1);
}

void assert_by_vhost(VhostBench *b, uint32_t number)
{
    int64_t before = settled_switches(b->vm);

    g_assert_true(vhost_runs(b->vm));
    vhost_send(b, number);
    g_assert_cmpint(vhost_awaited(b), ==, number);
    g_assert_cmpint(settled_switches(b->vm), >, before);
}

void assert_by_qemu(VhostBench *b, uint32_t number)
{
    int64_t before = settled_switches(b->vm);

    g_assert_false(vhost_runs(b->vm));
    g_assert_cmpint(nic_number(b->vm, "seen"), ==, 1);
    vhost_hold_some(b, number);
    g_assert_cmpint(settled_switches(b->vm), ==, before);
}

void assert_left_held(VhostBench *b, uint32_t first)
{
    for (int i = 0; i < NIC_HELD; i++) {
        g_assert_cmpint(vhost_awaited(b), ==, first + i);
    }
}

/* ---- */

bool vhost_possible(void)
{
    if (access("/dev/vhost-net", R_OK | W_OK) != 0) {
        g_print("1..0 # SKIP no /dev/vhost-net: modprobe vhost_net\n");
        return false;
    }
    return tap_possible();
}
