/*
 * Idletime machine tests: what options and QMP commands refuse.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each wrong use gets one line that names property, value and remedy, and
 * the QEMU goes on.  In the tables DIR stands for the test's folder.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "qapi/error.h"
#include "qobject/qjson.h"

typedef struct BadCase {
    const char *command;
    const char *arguments;      /* JSON */
    const char *text;
} BadCase;

#define OBJECT(more)    "{'qom-type': 'idletime-resource', 'id': 'x', " \
                        "'path': 'DIR/x', " more "}"
#define OBJECT_ON(path) "{'qom-type': 'idletime-resource', 'id': 'x', " \
                        "'path': '" path "'}"
#define DEVICE(more)    "{'driver': 'virtio-blk-pci', 'drive': 'spare', " \
                        "'num-queues': 4, " more "}"
#define MUST_BE(property, value, range) \
    "idletime-resource property '" property "' is " value ", must be " range
#define PIECES  "4096 to 1073741824 and a multiple of 4096"
#define QUEUES_BAD(text) \
    "property 'idletime-background-queues' is '" text "', must be a list of " \
    "queues such as '2-3,6'"
#define QUEUES_RANGE(text, queue) \
    "property 'idletime-background-queues' is '" text "': queue " queue \
    " does not exist, the device has the queues 0 to 3 (see num-queues)"
#define UNSET(property, value) \
    "property '" property "' is '" value "', but 'idletime' is not set: add " \
    "idletime=ID of an idletime-resource object"

static const BadCase bad_object[] = {
    { "object-add", OBJECT("'interval-us': -1"),
      MUST_BE("interval-us", "-1", "0 to 3600000000") },
    { "object-add", OBJECT("'interval-us': 3600000001"),
      MUST_BE("interval-us", "3600000001", "0 to 3600000000") },
    { "object-add", OBJECT("'max-inflight': 0"),
      MUST_BE("max-inflight", "0", "1 to 64") },
    { "object-add", OBJECT("'max-inflight': 65"),
      MUST_BE("max-inflight", "65", "1 to 64") },
    { "object-add", OBJECT("'max-request-bytes': 5000"),
      MUST_BE("max-request-bytes", "5000", PIECES) },
    { "object-add", OBJECT("'max-request-bytes': 0"),
      MUST_BE("max-request-bytes", "0", PIECES) },
    { "object-add", OBJECT("'max-hold-ms': -1"),
      MUST_BE("max-hold-ms", "-1", "0 to 3600000") },
    { "object-add", OBJECT("'weight': 0"),
      MUST_BE("weight", "0", "1 to 10000") },
    { "object-add", OBJECT("'weight': 9223372036854775807"),
      MUST_BE("weight", "9223372036854775807", "1 to 10000") },
    { "object-add", OBJECT_ON(""),
      "idletime-resource needs the property 'path': the directory of the "
      "arena, such as /run/idletime/sda" },
    { "object-add", OBJECT_ON("DIR/spare.img"),
      "idletime-resource 'x': cannot create arena board "
      "'DIR/spare.img/foreground': Not a directory; create the arena as a "
      "user who may write there, or change 'path'" },
    { "object-add", OBJECT_ON("DIR/spare.img/x"),
      "idletime-resource 'x': cannot create arena directory "
      "'DIR/spare.img/x': Not a directory; create it, or point 'path' to a "
      "directory that this user may write" },
    { "object-add", OBJECT_ON("DIR/" RESOURCE),
      "idletime-resource property 'path': 'DIR/r0' is already used by 'r0'; "
      "use one object per path" },
    { "object-add", OBJECT_ON("DIR/./" RESOURCE "/"),
      "idletime-resource property 'path': 'DIR/./r0/' is already used by "
      "'r0'; use one object per path" },
};

static const BadCase bad_device[] = {
    { "device_add", DEVICE("'idletime': 'nope'"),
      "property 'idletime': no idletime-resource has the id 'nope'; add "
      "-object idletime-resource,id=nope,path=DIRECTORY" },
    /* An object of another type. */
    { "device_add", DEVICE("'idletime': 'other'"),
      "property 'idletime': no idletime-resource has the id 'other'; add "
      "-object idletime-resource,id=other,path=DIRECTORY" },
    { "device_add", DEVICE("'idletime': ''"),
      "property 'idletime': no idletime-resource has the id ''; add "
      "-object idletime-resource,id=,path=DIRECTORY" },
    { "device_add", DEVICE("'idletime': 'r0', 'idletime-class': 'Background'"),
      "property 'idletime-class' is 'Background', must be 'foreground', "
      "'background' or 'guest'" },
    { "device_add", DEVICE("'idletime': 'r0', 'idletime-class': ''"),
      "property 'idletime-class' is '', must be 'foreground', 'background' "
      "or 'guest'" },
    { "device_add", DEVICE("'idletime-class': 'background'"),
      UNSET("idletime-class", "background") },
    { "device_add", DEVICE("'idletime-background-queues': '1'"),
      UNSET("idletime-background-queues", "1") },
};

/* Of 'idletime-background-queues', with four queues. */
static const BadCase bad_queues[] = {
    { NULL, "4", QUEUES_RANGE("4", "4") },
    { NULL, "0-4", QUEUES_RANGE("0-4", "4") },
    { NULL, "1,65535", QUEUES_RANGE("1,65535", "65535") },
    { NULL, "65536", QUEUES_BAD("65536") },
    { NULL, "-1", QUEUES_BAD("-1") },
    { NULL, "3-1", QUEUES_BAD("3-1") },
    { NULL, "1-", QUEUES_BAD("1-") },
    { NULL, "a", QUEUES_BAD("a") },
    { NULL, "1;2", QUEUES_BAD("1;2") },
    { NULL, " ", QUEUES_BAD(" ") },
    { NULL, ",", QUEUES_BAD(",") },
    { NULL, "0-18446744073709551615", QUEUES_BAD("0-18446744073709551615") },
};

static const BadCase bad_set[] = {
    { "idletime-set", "{'class': 'background'}",
      "idletime-set changes the class of a device: add 'device', its id" },
    { "idletime-set", "{'background-queues': '1'}",
      "idletime-set changes the class of a device: add 'device', its id" },
    { "idletime-set", "{'interval-us': 1}",
      "idletime-set changes a property of a resource: add 'resource', the id "
      "of an idletime-resource object" },
    { "idletime-set", "{'device': 'nope', 'class': 'background'}",
      "no device 'nope' is attached to an idletime-resource; query-idletime "
      "lists those that are" },
    /* Attached to nothing. */
    { "idletime-set", "{'device': 'stock', 'class': 'background'}",
      "no device 'stock' is attached to an idletime-resource; query-idletime "
      "lists those that are" },
    { "idletime-set", "{'resource': 'nope', 'interval-us': 1}",
      "property 'resource': no idletime-resource has the id 'nope'; add "
      "-object idletime-resource,id=nope,path=DIRECTORY" },
    { "idletime-set", "{'device': 'd', 'class': 'idle'}",
      "Parameter 'class' does not accept value 'idle'" },
    { "idletime-set", "{'resource': 'r0', 'weight': 0}",
      MUST_BE("weight", "0", "1 to 10000") },
    { "qom-set", "{'path': '/objects/r0', 'property': 'interval-us', "
      "'value': -1}", MUST_BE("interval-us", "-1", "0 to 3600000000") },
    { "qom-set", "{'path': '/objects/r0', 'property': 'path', "
      "'value': 'DIR/y'}",
      "idletime-resource property 'path' cannot be changed to 'DIR/y' while "
      "the object exists; add another object" },
    { "object-del", "{'id': 'r0'}",
      "object 'r0' is in use, can not be deleted" },
};

static const BadCase bad_attach[] = {
    { "idletime-attach", "{'device': 'nope', 'resource': 'r0'}",
      "no device has the id or the QOM path 'nope'" },
    { "idletime-attach", "{'device': '', 'resource': 'r0'}",
      "no device has the id or the QOM path ''" },
    /* An object, but no device. */
    { "idletime-attach", "{'device': '/objects/other', 'resource': 'r0'}",
      "no device has the id or the QOM path '/objects/other'" },
    { "idletime-attach", "{'device': 'd', 'resource': 'r0'}",
      "device 'd' is attached to idletime-resource 'r0': use idletime-detach "
      "first, or idletime-set to change its class" },
    { "idletime-attach", "{'device': 'stock', 'resource': 'nope'}",
      "property 'idletime': no idletime-resource has the id 'nope'; add "
      "-object idletime-resource,id=nope,path=DIRECTORY" },
    { "idletime-attach", "{'device': 'stock', 'resource': 'r0',"
      " 'class': 'idle'}", "Parameter 'class' does not accept value 'idle'" },
    { "idletime-attach", "{'device': 'stock', 'resource': 'r0',"
      " 'background-queues': '1'}",
      "property 'idletime-background-queues' is '1': queue 1 does not exist, "
      "the device has the queues 0 to 0 (see num-queues)" },
    { "idletime-attach", "{'device': 'stock', 'resource': 'r0',"
      " 'dscp': '1'}",
      "'dscp' is '1', but a virtio-blk-device has no packets: leave it out" },
    { "idletime-detach", "{'device': 'nope'}",
      "no device has the id or the QOM path 'nope'" },
    { "idletime-detach", "{'device': 'stock'}",
      "device '/machine/peripheral/stock/virtio-backend' is attached to no "
      "idletime-resource; query-idletime lists those that are" },
};

static char *in_folder(TestMachine *m, const char *text)
{
    g_auto(GStrv) part = g_strsplit(text, "DIR/", -1);
    g_autofree char *folder = g_strconcat(m->dir, "/", NULL);

    return g_strjoinv(folder, part);
}

static void assert_refused(TestMachine *m, const BadCase *c)
{
    g_autofree char *arguments = in_folder(m, c->arguments);
    g_autofree char *text = in_folder(m, c->text);
    QObject *object = qobject_from_json(arguments, &error_abort);

    machine_refused(m, text, c->command, "%p", object);
}

/* One with four queues on the resource, one stock, one spare block device. */
static TestMachine *bench(TestDisk **d)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    *d = machine_disk(m, "d", "num-queues=4,idletime=" RESOURCE);
    machine_disk(m, "stock", "");
    machine_args(m, "-object memory-backend-ram,id=other,size=4096");
    machine_args(m, "-blockdev driver=null-co,node-name=spare,"
                 "read-zeroes=on");
    machine_start(m);
    return m;
}

static void test_refused(const BadCase *c, unsigned n)
{
    TestDisk *d;
    TestMachine *m = bench(&d);
    g_autofree char *file = g_strdup_printf("%s/spare.img", m->dir);

    g_assert_true(g_file_set_contents(file, "", 0, NULL));
    for (unsigned i = 0; i < n; i++) {
        assert_refused(m, &c[i]);
    }
    /* It goes on, with what it had. */
    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==,
                    INTERVAL_US);
    request_ok(disk_read(d));
    machine_free(m);
}

static void test_bad_object(void)
{
    test_refused(bad_object, ARRAY_SIZE(bad_object));
}

static void test_bad_device(void)
{
    test_refused(bad_device, ARRAY_SIZE(bad_device));
}

static void test_bad_set(void)
{
    test_refused(bad_set, ARRAY_SIZE(bad_set));
}

static void test_bad_attach(void)
{
    test_refused(bad_attach, ARRAY_SIZE(bad_attach));
}

/* A device of another kind: the answer says which are served. */
static void test_not_served(void)
{
    TestMachine *m = machine_new();
    QDict *response;
    const char *text;

    machine_resource(m, RESOURCE, "");
    machine_start(m);
    response = qtest_qmp(m->qts, "{'execute': 'idletime-attach', 'arguments':"
                         " {'device': '/machine/i440fx', 'resource': 'r0'}}");
    text = qdict_get_str(qdict_get_qdict(response, "error"), "desc");
    g_assert_true(g_str_has_prefix(text, "device '/machine/i440fx' is a "
                                   "i440FX-pcihost, which cannot be attached "
                                   "to an idletime-resource; served are: "
                                   "scsi-block, scsi-generic, scsi-hd, "
                                   "virtio-blk-device"));
    qobject_unref(response);
    machine_free(m);
}

static void test_bad_queues(void)
{
    TestDisk *d;
    TestMachine *m = bench(&d);

    for (unsigned i = 0; i < ARRAY_SIZE(bad_queues); i++) {
        const BadCase *c = &bad_queues[i];

        machine_refused(m, c->text, "idletime-set",
                        "{'device': 'd', 'background-queues': %s}",
                        c->arguments);
        machine_refused(m, c->text, "device_add",
                        "{'driver': 'virtio-blk-pci', 'drive': 'spare',"
                        " 'num-queues': 4, 'idletime': 'r0',"
                        " 'idletime-background-queues': %s}", c->arguments);
    }
    request_ok(disk_read(d));
    machine_free(m);
}

/* ---- the command line */

static int run_qemu(const char *options, char **errors)
{
    g_autofree char *command =
        g_strdup_printf("%s -machine pc -accel qtest -display none -nodefaults"
                        " -S %s", g_getenv("QTEST_QEMU_BINARY"), options);
    int status = -1;

    g_assert_true(g_spawn_command_line_sync(command, NULL, errors, &status,
                                            NULL));
    g_assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_command_line(void)
{
    TestMachine *m = machine_new();
    g_autofree char *object =
        g_strdup_printf("-object idletime-resource,id=a,path=%s/a,weight=0",
                        m->dir);
    g_autofree char *errors = NULL, *more_errors = NULL;

    g_assert_cmpint(run_qemu(object, &errors), ==, 1);
    g_assert_nonnull(strstr(errors, bad_object[7].text));
    g_assert_cmpint(run_qemu("-blockdev null-co,node-name=n,read-zeroes=on "
                             "-device virtio-blk-pci,drive=n,idletime=nope",
                             &more_errors), ==, 1);
    g_assert_nonnull(strstr(more_errors, bad_device[0].text));
    rmdir(m->dir);
    g_ptr_array_free(m->disks, true);
    g_string_free(m->args, true);
    g_free(m->dir);
    g_free(m);
}

/* A device that could not be made leaves nothing behind. */
static void test_failed_device(void)
{
    TestMachine *m = machine_new();
    const BadCase *c = &bad_device[3];

    machine_resource(m, RESOURCE, "");
    machine_args(m, "-blockdev driver=null-co,node-name=spare,"
                 "read-zeroes=on");
    machine_start(m);
    for (int i = 0; i < 20; i++) {
        assert_refused(m, c);
    }
    machine_ok(m, "object-del", "{'id': 'r0'}");
    machine_free(m);
}

/* ---- disks and network devices on one resource */

#define NIC     "{'driver': 'virtio-net-pci', 'id': 'nic', 'netdev': 'net', " \
                "'addr': '0x9', 'idletime': 'r0'}"
#define DISK    "{'driver': 'virtio-blk-pci', 'id': 'disk', " \
                "'drive': 'spare', 'share-rw': true, 'addr': '0xa', " \
                "'idletime': 'r0'}"

/* Who comes first says what the resource is, with its standards. */
static void test_kinds(void)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    machine_args(m, "-netdev hubport,id=net,hubid=1"
                 " -blockdev driver=null-co,node-name=spare");
    machine_start(m);
    for (int i = 0; i < 2; i++) {
        machine_ok(m, "device_add", DISK);
        machine_refused(m, "property 'idletime' is 'r0', which a disk uses, "
                        "so a network device cannot: add an "
                        "idletime-resource with another path",
                        "device_add", NIC);
        g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==, 20000);
        g_assert_cmpint(machine_number(m, RESOURCE, "max-inflight"), ==, 1);
        qpci_unplug_acpi_device_test(m->qts, "disk", 0xa);
        machine_ok(m, "device_add", NIC);
        machine_refused(m, "property 'idletime' is 'r0', which a network "
                        "device uses, so a disk cannot: add an "
                        "idletime-resource with another path",
                        "device_add", DISK);
        g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==, 5000);
        g_assert_cmpint(machine_number(m, RESOURCE, "max-inflight"), ==, 2);
        qpci_unplug_acpi_device_test(m->qts, "nic", 9);
    }
    machine_free(m);
}

/* ---- record and replay */

/* A held request leaves by the host's clock, so a replay would differ. */
static void test_record(void)
{
    g_autofree char *dir = g_dir_make_tmp("idletime-XXXXXX", NULL);
    g_autofree char *log = g_strdup_printf("%s/log", dir);
    g_autofree char *command =
        g_strdup_printf("%s -accel tcg -icount shift=auto,rr=record,rrfile=%s"
                        " -nodefaults -display none -S"
                        " -object idletime-resource,id=r0,path=%s/r0"
                        " -blockdev driver=null-co,node-name=a"
                        " -blockdev driver=null-co,node-name=b"
                        " -device virtio-blk-pci,id=fg,drive=a,idletime=r0"
                        " -device virtio-blk-pci,id=bg,drive=b,idletime=r0,"
                        "idletime-class=background",
                        g_getenv("QTEST_QEMU_BINARY"), log, dir);
    g_autofree char *remove = g_strdup_printf("rm -r %s", dir);
    g_autofree char *err = NULL;
    int status;

    g_assert_true(g_spawn_command_line_sync(command, NULL, &err, &status,
                                            NULL));
    g_assert_cmpint(status, !=, 0);
    g_assert_nonnull(strstr(err, "device 'bg' cannot hold requests (class "
                            "'background', background queues '') while "
                            "execution is recorded or replayed: use class "
                            "'foreground', or no 'rr' in -icount"));
    g_assert_true(g_spawn_command_line_sync(remove, NULL, NULL, NULL, NULL));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/bad/object", test_bad_object);
    qtest_add_func("idletime/bad/device", test_bad_device);
    qtest_add_func("idletime/bad/queues", test_bad_queues);
    qtest_add_func("idletime/bad/set", test_bad_set);
    qtest_add_func("idletime/bad/attach", test_bad_attach);
    qtest_add_func("idletime/bad/not-served", test_not_served);
    qtest_add_func("idletime/bad/command-line", test_command_line);
    qtest_add_func("idletime/bad/failed-device", test_failed_device);
    qtest_add_func("idletime/bad/kinds", test_kinds);
    qtest_add_func("idletime/bad/record", test_record);
    return g_test_run();
}
