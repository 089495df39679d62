/*
 * Idletime machine tests: what network devices refuse.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each wrong use gets one line that names property, value and remedy, and
 * the QEMU goes on.
 */
#include "qemu/osdep.h"
#include "idletime-nic.h"
#include "qapi/error.h"
#include "qobject/qjson.h"
#include <sys/un.h>

#define DEVICE(more) "{'driver': 'virtio-net-pci', " more "}"
#define NETDEV(more) DEVICE("'netdev': 'spare', 'idletime': 'r0', " more)
#define DSCP_BAD(text) \
    "property 'idletime-dscp' is '" text "', must be a list of code points " \
    "from 0 to 63, such as 1,8,10-12"
#define UNSET(property, value) \
    "property '" property "' is '" value "', but 'idletime' is not set: add " \
    "idletime=ID of an idletime-resource object"
#define BYPASS(property, value, netdev, how) \
    "property '" property "' is '" value "', but netdev '" netdev "' is " how \
    ": its packets do not come by QEMU, which cannot hold them; use a tap " \
    "(libvirt: <interface type='network'> or 'bridge'), or class 'foreground'"

typedef struct BadCase {
    const char *arguments;      /* of device_add, JSON */
    const char *text;
} BadCase;

static const BadCase bad[] = {
    { DEVICE("'idletime': 'nope'"),
      "property 'idletime': no idletime-resource has the id 'nope'; add "
      "-object idletime-resource,id=nope,path=DIRECTORY" },
    { NETDEV("'idletime-class': 'idle'"),
      "property 'idletime-class' is 'idle', must be 'foreground', "
      "'background' or 'guest'" },
    { NETDEV("'idletime-background-queues': '1'"),
      "property 'idletime-background-queues' is '1': queue 1 does not exist, "
      "the device has the queues 0 to 0 (see num-queues)" },
    { NETDEV("'idletime-dscp': '64'"), DSCP_BAD("64") },
    { NETDEV("'idletime-dscp': 'LE'"), DSCP_BAD("LE") },
    { NETDEV("'idletime-dscp': '1,'"), DSCP_BAD("1,") },
    { DEVICE("'idletime-class': 'background'"),
      UNSET("idletime-class", "background") },
    { DEVICE("'idletime-dscp': '1'"), UNSET("idletime-dscp", "1") },
};

static const BadCase bypassed[] = {
    { DEVICE("'netdev': 'user', 'idletime': 'r0', "
             "'idletime-class': 'background'"),
      BYPASS("idletime-class", "background", "user", "vhost-user") },
    { DEVICE("'netdev': 'user', 'idletime': 'r0', 'idletime-class': 'guest'"),
      BYPASS("idletime-class", "guest", "user", "vhost-user") },
    { DEVICE("'netdev': 'user', 'idletime': 'r0', "
             "'idletime-background-queues': '0'"),
      BYPASS("idletime-background-queues", "0", "user", "vhost-user") },
};

static void assert_refused(TestMachine *m, const BadCase *c)
{
    QObject *object = qobject_from_json(c->arguments, &error_abort);

    machine_refused(m, c->text, "device_add", "%p", object);
}

static TestMachine *bench(TestNic **nic)
{
    TestMachine *m = machine_new();

    nic_resource(m, "");
    *nic = machine_nic(m, "bg", "idletime=" RESOURCE
                       ",idletime-class=background");
    machine_args(m, "-netdev hubport,id=spare,hubid=7");
    return m;
}

static void test_refused(void)
{
    TestNic *nic;
    TestMachine *m = bench(&nic);

    machine_start(m);
    nic_init(nic);
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_refused(m, &bad[i]);
    }
    nic_send(nic, (TestPacket) { .number = 1 });
    assert_left(nic, 1);
    nic_free(nic);
    machine_free(m);
}

/* ---- netdevs that pass packets by QEMU */

/* As much of a vhost-user backend as QEMU asks for at its start. */
typedef struct Backend {
    int listening;
    GThread *thread;
} Backend;

typedef struct VhostMessage {
    uint32_t request;
    uint32_t flags;
    uint32_t size;
    uint64_t payload[64];
} QEMU_PACKED VhostMessage;

#define VHOST_HEADER        offsetof(VhostMessage, payload)
#define VHOST_GET_FEATURES  1
#define VHOST_REPLY         5       /* version 1, and bit 2 */

static bool serve_one(int fd)
{
    VhostMessage message = { 0 };

    if (read(fd, &message, VHOST_HEADER) != VHOST_HEADER ||
        message.size > sizeof(message.payload) ||
        read(fd, message.payload, message.size) != message.size) {
        return false;
    }
    if (message.request == VHOST_GET_FEATURES) {
        message.flags = VHOST_REPLY;
        message.size = sizeof(uint64_t);
        message.payload[0] = 0;
        return write(fd, &message, VHOST_HEADER + message.size) > 0;
    }
    return true;
}

static void *serve(void *opaque)
{
    int fd = accept(GPOINTER_TO_INT(opaque), NULL, NULL);

    while (fd >= 0 && serve_one(fd)) {
        /* Until QEMU ends. */
    }
    close(fd);
    return NULL;
}

static Backend backend_start(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    Backend backend = { .listening = socket(AF_UNIX, SOCK_STREAM, 0) };

    g_strlcpy(address.sun_path, path, sizeof(address.sun_path));
    g_assert_cmpint(bind(backend.listening, (void *)&address,
                         sizeof(address)), ==, 0);
    g_assert_cmpint(listen(backend.listening, 1), ==, 0);
    backend.thread = g_thread_new("vhost-user", serve,
                                  GINT_TO_POINTER(backend.listening));
    return backend;
}

static bool has_vhost_user(void)
{
    const char *qemu = g_getenv("QTEST_QEMU_BINARY");
    g_autofree char *command =
        g_strconcat(qemu, " -machine none -display none "
                    "-netdev vhost-user,id=x,chardev=none", NULL);
    g_autofree char *err = NULL;

    /* It fails in any case, for one reason or the other. */
    return g_spawn_command_line_sync(command, NULL, &err, NULL, NULL) &&
           !strstr(err, "not compiled");
}

static void test_bypass(void)
{
    g_autofree char *path = NULL;
    g_autofree char *class = NULL;
    Backend backend;
    TestNic *nic;
    TestMachine *m;

    if (!has_vhost_user()) {
        g_test_skip("this QEMU is built without vhost-user");
        return;
    }
    m = bench(&nic);
    path = g_strdup_printf("%s/vhost", m->dir);
    backend = backend_start(path);
    machine_args(m, "-chardev socket,id=vhost,path=%s", path);
    machine_args(m, "-netdev vhost-user,id=user,chardev=vhost");
    machine_start(m);
    nic_init(nic);
    for (unsigned i = 0; i < ARRAY_SIZE(bypassed); i++) {
        assert_refused(m, &bypassed[i]);
    }
    /* Foreground is fine, and not seen; attached at its start or later. */
    machine_ok(m, "device_add", "{'driver': 'virtio-net-pci', 'id': 'v',"
               " 'netdev': 'user', 'idletime': 'r0'}");
    g_assert_cmpint(machine_number(m, RESOURCE, "devices.1.seen"), ==, 0);
    machine_ok(m, "idletime-detach", "{'device': 'v'}");
    machine_refused(m, BYPASS("idletime-class", "background", "user",
                              "vhost-user"), "idletime-attach",
                    "{'device': 'v', 'resource': 'r0',"
                    " 'class': 'background'}");
    machine_ok(m, "idletime-attach", "{'device': 'v', 'resource': 'r0'}");
    g_assert_cmpint(machine_number(m, RESOURCE, "devices.1.seen"), ==, 0);
    g_assert_cmpint(machine_number(m, RESOURCE, "devices.0.seen"), ==, 1);
    machine_refused(m, BYPASS("idletime-class", "background", "user",
                              "vhost-user"), "idletime-set",
                    "{'device': 'v', 'class': 'background'}");
    machine_refused(m, BYPASS("idletime-class", "guest", "user",
                              "vhost-user"), "idletime-set",
                    "{'device': 'v', 'class': 'guest'}");
    machine_refused(m, BYPASS("idletime-background-queues", "0", "user",
                              "vhost-user"), "idletime-set",
                    "{'device': 'v', 'background-queues': '0'}");
    class = machine_string(m, RESOURCE, "devices.1.class");
    g_assert_cmpstr(class, ==, "foreground");
    nic_free(nic);
    machine_free(m);
    g_thread_join(backend.thread);
    close(backend.listening);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/net-bad/refused", test_refused);
    qtest_add_func("idletime/net-bad/bypass", test_bypass);
    return g_test_run();
}
