/*
 * Idletime machine tests: a stopped VM, and who serves a device's queues.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The device has an I/O thread.  Without host notifiers QEMU serves its queues
 * in the main thread instead: a shortage of file descriptors brings that about.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "idletime-machine.h"
#include <sys/resource.h>
#include <sys/syscall.h>

#define HELD        4
#define WAIT_US     (15 * G_USEC_PER_SEC)
#define LONG_US     (60 * 1000 * MS)
/* Fewer than any QEMU has, so it gets no more; but all that it polls. */
#define FEW_FILES   16

static const char in_thread[] =
    "'idletime': 'r0', 'idletime-class': 'background', 'iothread': 'io0'";

/* The disk is plugged while the machine runs, so with ioeventfd. */
static TestMachine *with_thread(const char *args, TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();

    /* A thread that polls may leave the guest told not to notify. */
    machine_args(m, "-object iothread,id=io0,poll-max-ns=0 %s", args);
    machine_resource(m, RESOURCE, "");
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_disk(m, "bg", "");
    machine_start(m);
    disk_unplug(*bg);
    disk_plug(*bg, in_thread);
    return m;
}

static void hold_some(TestDisk *fg, TestDisk *bg, TestRequest **r)
{
    foreground(fg);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_write(bg, i * BLOCK_BYTES, BLOCK_BYTES, 0x5a);
    }
    disk_await(bg, "held", HELD);
}

static void all_ok(TestRequest **r)
{
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
}

/* ---- cont while a request comes */

/*
 * QEMU's log is a full pipe, so the I/O thread stops at the trace event
 * between the look at a request and what becomes of it.
 */
static int full_pipe(const char *path)
{
    const char byte = '\n';
    int fd;

    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    fd = open(path, O_RDWR | O_NONBLOCK);
    g_assert_cmpint(fd, >=, 0);
    while (write(fd, &byte, 1) == 1) {
        continue;
    }
    g_assert_cmpint(errno, ==, EAGAIN);
    return fd;
}

static void empty_pipe(int fd)
{
    char buffer[4096];

    while (read(fd, buffer, sizeof(buffer)) > 0) {
        continue;
    }
}

/* Which system call the thread of that name is in; -1: none, or not there */
static long system_call_of(pid_t pid, const char *thread)
{
    g_autofree char *tasks = g_strdup_printf("/proc/%d/task", pid);
    g_autoptr(GDir) dir = g_dir_open(tasks, 0, NULL);
    const char *tid;
    long number = -1;

    while (dir && (tid = g_dir_read_name(dir))) {
        g_autofree char *comm = g_strdup_printf("%s/%s/comm", tasks, tid);
        g_autofree char *call = g_strdup_printf("%s/%s/syscall", tasks, tid);
        g_autofree char *name = NULL, *text = NULL;

        if (g_file_get_contents(comm, &name, NULL, NULL) &&
            g_str_has_prefix(name, thread) &&
            g_file_get_contents(call, &text, NULL, NULL) &&
            g_ascii_isdigit(*text)) {
            number = atol(text);
        }
    }
    return number;
}

static void await_write(TestMachine *m, const char *thread)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;

    while (system_call_of(qtest_pid(m->qts), thread) != SYS_write) {
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        g_usleep(1000);
    }
}

/* Long enough for a monitor command that waits for nothing. */
#define COMMAND_US  (200 * 1000)

static void cont_begin(TestMachine *m)
{
    qtest_qmp_send(m->qts, "{'execute': 'cont'}");
    g_usleep(COMMAND_US);
}

static void cont_end(TestMachine *m)
{
    QDict *answer = qtest_qmp_receive(m->qts);

    g_assert_true(qdict_haskey(answer, "return"));
    qobject_unref(answer);
}

/* The I/O thread is at @event of a request while the VM goes on. */
static void cont_at(const char *event)
{
    g_autofree char *dir = g_dir_make_tmp("idletime-XXXXXX", NULL);
    g_autofree char *log = g_strdup_printf("%s/log", dir);
    g_autofree char *args =
        g_strdup_printf("-name debug-threads=on -D %s -d trace:%s", log,
                        event);
    int fd = full_pipe(log);
    TestDisk *fg, *bg;
    TestMachine *m = with_thread(args, &fg, &bg);
    TestRequest *r;

    machine_stop(m);
    r = disk_write(bg, 0, BLOCK_BYTES, 0x5a);
    await_write(m, "IO io0");
    cont_begin(m);
    empty_pipe(fd);
    cont_end(m);
    request_ok(r);
    g_assert_true(disk_holds(bg, 0, BLOCK_BYTES, 0x5a));
    machine_free(m);
    close(fd);
    unlink(log);
    rmdir(dir);
}

/* Looked at while the VM is stopped, and decided after it goes on. */
static void test_lost_at_cont(void)
{
    cont_at(disks_are_scsi() ? "scsi_idletime_hold" :
                               "virtio_blk_idletime_hold");
}

/* Decided while it is stopped: cont waits until the request is put aside. */
static void test_aside_at_cont(void)
{
    cont_at("idletime_device_aside");
}

/* ---- stop while requests are expedited */

/* One is in service at a backend that is stuck, two wait for its end. */
static void test_expedited(void)
{
    TestMachine *m = machine_new();
    TestRequest *r[3];
    TestDisk *d;
    char block[BLOCK_BYTES];

    machine_resource(m, RESOURCE, "");
    d = machine_throttled(m, "d", ONE_WRITE, "idletime=" RESOURCE
                          ",idletime-class=guest");
    machine_start(m);
    memset(block, 0x5a, sizeof(block));
    request_ok(disk_write(d, MiB, BLOCK_BYTES, 0x11));
    for (int i = 0; i < 3; i++) {
        r[i] = disk_submit(d, 0, VIRTIO_BLK_T_OUT, IOPRIO_IDLE, 8 * i, block,
                           sizeof(block));
    }
    assert_held(d, 3);
    request_ok(disk_flush(d));
    assert_held(d, 2);
    machine_stop(m);
    /* All are on s->rq, or done: nothing is left for a migration to lose. */
    assert_held(d, 0);
    machine_cont(m);
    machine_step_us(m, LONG_US);
    for (int i = 0; i < 3; i++) {
        while (!request_done(r[i])) {
            disk_let_go(d);
            machine_step_us(m, INTERVAL_US);
        }
        request_ok(r[i]);
    }
    g_assert_true(disk_holds(d, 0, 3 * BLOCK_BYTES, 0x5a));
    g_assert_cmpint(disk_number(d, "promotions.flush"), ==, 1);
    machine_free(m);
}

/* ---- host notifiers */

static struct rlimit limit_files(TestMachine *m, rlim_t files)
{
    struct rlimit old, limit;

    g_assert_cmpint(prlimit(qtest_pid(m->qts), RLIMIT_NOFILE, NULL, &old), ==,
                    0);
    limit = old;
    limit.rlim_cur = files;
    g_assert_cmpint(prlimit(qtest_pid(m->qts), RLIMIT_NOFILE, &limit, NULL),
                    ==, 0);
    return old;
}

/* What a device does, in whichever thread. */
static void live_a_little(TestDisk *fg, TestDisk *bg)
{
    TestMachine *m = bg->m;
    TestRequest *r[HELD], *large;

    hold_some(fg, bg, r);
    machine_step_us(m, INTERVAL_US);
    all_ok(r);

    hold_some(fg, bg, r);
    machine_stop_often(bg, HELD);
    machine_step_us(m, INTERVAL_US);
    all_ok(r);

    hold_some(fg, bg, r);
    disk_set_class(bg, "foreground");
    all_ok(r);
    disk_set_class(bg, "background");
    large = disk_write(bg, 0, MiB, 0x77);
    disk_await(bg, "held", 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(large);
    g_assert_true(disk_holds(bg, 0, MiB, 0x77));
    disk_await(bg, "in-service", 0);
}

static void test_no_notifiers(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = with_thread("", &fg, &bg);
    TestRequest *r[HELD];
    struct rlimit old;

    live_a_little(fg, bg);
    hold_some(fg, bg, r);
    old = limit_files(m, FEW_FILES);
    disk_init(bg);
    assert_held(bg, 0);
    machine_step_us(m, INTERVAL_US);
    live_a_little(fg, bg);

    /* There are files again; a sanitizer needs some at the end. */
    limit_files(m, old.rlim_cur);
    /* Stock virtio-scsi that fell back ends QEMU when it is reset. */
    if (disks_are_scsi()) {
        machine_free(m);
        return;
    }

    /* Back to the I/O thread, from a held list. */
    hold_some(fg, bg, r);
    disk_init(bg);
    machine_step_us(m, INTERVAL_US);
    live_a_little(fg, bg);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/stop/lost-at-cont", test_lost_at_cont);
    ring_test("idletime/stop/aside-at-cont", test_aside_at_cont);
    ring_test("idletime/stop/expedited", test_expedited);
    ring_test("idletime/stop/no-notifiers", test_no_notifiers);
    return g_test_run();
}
