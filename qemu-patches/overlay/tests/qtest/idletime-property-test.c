/*
 * Idletime machine tests: options and QMP commands.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "qapi/error.h"
#include "qobject/qjson.h"

/* One disk with four queues. */
static TestMachine *lone(TestDisk **d)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    *d = machine_disk(m, "d", "num-queues=4,idletime=" RESOURCE);
    machine_start(m);
    return m;
}

/* Either all that is given takes effect, or nothing. */
static void test_all_or_nothing(void)
{
    const char *weight = "idletime-resource property 'weight' is 0, must be "
                         "1 to 10000";
    const char *list = "property 'idletime-background-queues' is '9': queue 9 "
                       "does not exist, the device has the queues 0 to 3 (see "
                       "num-queues)";
    TestDisk *d;
    TestMachine *m = lone(&d);
    g_autofree char *class = NULL, *queues = NULL;

    machine_refused(m, weight, "idletime-set",
                    "{'device': 'd', 'class': 'background',"
                    " 'resource': 'r0', 'interval-us': 7, 'weight': 0}");
    machine_refused(m, list, "idletime-set",
                    "{'device': 'd', 'class': 'background',"
                    " 'background-queues': '9',"
                    " 'resource': 'r0', 'interval-us': 7}");
    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==,
                    INTERVAL_US);
    class = machine_string(m, RESOURCE, "devices.0.class");
    g_assert_cmpstr(class, ==, "foreground");

    machine_ok(m, "idletime-set",
               "{'device': 'd', 'class': 'guest', 'background-queues': '1-3',"
               " 'resource': 'r0', 'interval-us': 7, 'max-inflight': 3,"
               " 'max-request-bytes': 8192, 'max-hold-ms': 9, 'weight': 11}");
    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==, 7);
    g_assert_cmpint(machine_number(m, RESOURCE, "max-inflight"), ==, 3);
    g_assert_cmpint(machine_number(m, RESOURCE, "max-request-bytes"), ==,
                    8192);
    g_assert_cmpint(machine_number(m, RESOURCE, "max-hold-ms"), ==, 9);
    g_assert_cmpint(machine_number(m, RESOURCE, "weight"), ==, 11);
    g_free(class);
    class = machine_string(m, RESOURCE, "devices.0.class");
    g_assert_cmpstr(class, ==, "guest");
    queues = machine_string(m, RESOURCE, "devices.0.background-queues");
    g_assert_cmpstr(queues, ==, "1-3");
    machine_free(m);
}

static void test_defaults(void)
{
    TestDisk *d;
    TestMachine *m = lone(&d);
    g_autofree char *state = machine_string(m, RESOURCE, "state");
    g_autofree char *path = machine_string(m, RESOURCE, "path");
    g_autofree char *dir = g_strdup_printf("%s/" RESOURCE, m->dir);

    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==, 20000);
    g_assert_cmpint(machine_number(m, RESOURCE, "budget-percent"), ==, 3);
    g_assert_cmpint(machine_number(m, RESOURCE, "max-inflight"), ==, 1);
    g_assert_cmpint(machine_number(m, RESOURCE, "max-request-bytes"), ==,
                    131072);
    g_assert_cmpint(machine_number(m, RESOURCE, "max-hold-ms"), ==, 5000);
    g_assert_cmpint(machine_number(m, RESOURCE, "weight"), ==, 100);
    g_assert_cmpint(disk_number(d, "participants"), ==, 1);
    /* No background participant: nobody looks. */
    g_assert_cmpstr(state, ==, "unknown");
    g_assert_cmpstr(path, ==, dir);
    disk_set_class(d, "guest");
    g_assert_cmpint(disk_number(d, "participants"), ==, 2);
    machine_free(m);
}

/*
 * Nobody named an interval: it is learned.  Who names one means that one; who
 * names both means that it is learned from there.
 */
static void test_learned_by_default(void)
{
    static const struct {
        const char *options;    /* JSON */
        int learned;
    } c[] = {
        { "", 1 },
        { ", 'budget-percent': 7", 1 },
        { ", 'interval-us': 7", 0 },
        { ", 'auto': false", 0 },
        { ", 'auto': true, 'interval-us': 7", 1 },
        { ", 'interval-us': 7, 'auto': true", 1 },
    };
    TestMachine *m = machine_new();

    machine_start(m);
    for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
        g_autofree char *json =
            g_strdup_printf("{'qom-type': 'idletime-resource', 'id': 'r0',"
                            " 'path': '%s/r0'%s}", m->dir, c[i].options);

        machine_ok(m, "object-add", "%p", qobject_from_json(json,
                                                            &error_abort));
        g_assert_cmpint(machine_number(m, "r0", "auto"), ==, c[i].learned);
        machine_ok(m, "object-del", "{'id': 'r0'}");
    }
    machine_free(m);
}

/* And live. */
static void test_interval_ends_learning(void)
{
    TestMachine *m = machine_new();
    TestDisk *d;

    machine_args(m, "-object idletime-resource,id=" RESOURCE ",path=%s/r0",
                 m->dir);
    d = machine_disk(m, "d", "idletime=" RESOURCE
                     ",idletime-class=background");
    machine_start(m);
    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 1);
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.ready"), ==, 0);
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'auto': true,"
               " 'interval-us': 9}");
    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 1);
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'interval-us': 8}");
    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 1);
    request_ok(disk_read(d));
    machine_free(m);

    m = machine_new();
    machine_args(m, "-object idletime-resource,id=" RESOURCE ",path=%s/r0",
                 m->dir);
    machine_start(m);
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'weight': 8}");
    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 1);
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'interval-us': 8}");
    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 0);
    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==, 8);
    machine_free(m);
}

/* In use: refused; after the last device has left: deleted. */
static void test_object_del(void)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    machine_args(m, "-blockdev driver=null-co,node-name=spare,"
                 "read-zeroes=on");
    machine_start(m);
    for (int i = 0; i < 2; i++) {
        qtest_qmp_device_add(m->qts, "virtio-blk-pci", "x",
                             "{'drive': 'spare', 'addr': '0x9',"
                             " 'idletime': 'r0',"
                             " 'idletime-class': 'background'}");
        machine_refused(m, "object 'r0' is in use, can not be deleted",
                        "object-del", "{'id': 'r0'}");
        qpci_unplug_acpi_device_test(m->qts, "x", 9);
        machine_ok(m, "object-del", "{'id': 'r0'}");
        machine_ok(m, "object-add", "{'qom-type': 'idletime-resource',"
                   " 'id': 'r0', 'path': %s}", m->dir);
    }
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/property/all-or-nothing", test_all_or_nothing);
    qtest_add_func("idletime/property/defaults", test_defaults);
    qtest_add_func("idletime/property/learned", test_learned_by_default);
    qtest_add_func("idletime/property/interval", test_interval_ends_learning);
    qtest_add_func("idletime/property/object-del", test_object_del);
    return g_test_run();
}
