/*
 * Idletime machine tests: a QEMU with disks on idletime resources.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "libqos/malloc-pc.h"
#include "libqos/pci-pc.h"
#include "standard-headers/linux/virtio_ring.h"

/* PCI slots 0 to 3 are the machine's own. */
#define FIRST_SLOT          4
/* Longer than any interval: at time 0 a fresh slot looks like an event. */
#define START_US            (10 * 1000 * MS)
/* The upper half of the memory, which no driver reaches that starts below. */
#define MOVED_START         (64 * MiB)
#define MOVED_END           (128 * MiB)

static void disk_free(gpointer opaque)
{
    TestDisk *d = opaque;

    disk_forget(d);
    g_ptr_array_free(d->requests, true);
    g_free(d->id);
    g_free(d->image);
    g_free(d);
}

TestMachine *machine_new_beside(const TestMachine *other)
{
    TestMachine *m = g_new0(TestMachine, 1);

    m->dir = other ? g_strdup(other->dir) :
             g_dir_make_tmp("idletime-XXXXXX", NULL);
    g_assert_nonnull(m->dir);
    m->own_dir = !other;
    m->disks = g_ptr_array_new_with_free_func(disk_free);
    m->args = g_string_new("-machine pc -m 128 -nodefaults ");
    return m;
}

TestMachine *machine_new(void)
{
    return machine_new_beside(NULL);
}

void machine_args(TestMachine *m, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    g_string_append_vprintf(m->args, fmt, ap);
    va_end(ap);
    g_string_append_c(m->args, ' ');
}

void machine_resource(TestMachine *m, const char *id, const char *options)
{
    bool is_told = strstr(options, "auto=") || strstr(options, "interval-us=");

    machine_args(m, "-object idletime-resource,id=%s,path=%s/%s%s%s%s",
                 id, m->dir, id, is_told ? "" : ",auto=off",
                 *options ? "," : "", options);
}

static TestDisk *disk_new(TestMachine *m, const char *id)
{
    TestDisk *d = g_new0(TestDisk, 1);

    d->m = m;
    d->id = g_strdup(id);
    d->image = g_strdup_printf("%s/%s.img", m->dir, id);
    d->slot = FIRST_SLOT + m->disks->len;
    d->requests = g_ptr_array_new_with_free_func(g_free);
    d->num_queues = 1;
    d->form = ring_form;
    d->more_features = ring_form & RING_INDIRECT ?
                       1ull << VIRTIO_RING_F_INDIRECT_DESC : 0;
    g_ptr_array_add(m->disks, d);
    return d;
}

static void image_create(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, DISK_BYTES), ==, 0);
    close(fd);
}

static void scsi_args(TestDisk *d, const char *driver, const char *options)
{
    g_autofree char *controller = scsi_controller_options(options);
    g_autofree char *disk = scsi_disk_options(options);

    machine_args(d->m, "-device virtio-scsi-pci,id=%s-hba,addr=0x%x%s%s%s",
                 d->id, d->slot, strstr(options, "ioeventfd=") ? "" :
                                 ",ioeventfd=off",
                 d->form & RING_PACKED ? ",packed=on" : "", controller);
    machine_args(d->m, "-device %s,id=%s,drive=%s,bus=%s-hba.0%s",
                 driver, d->id, d->id, d->id, disk);
}

static void blk_args(TestDisk *d, const char *options)
{
    machine_args(d->m, "-device virtio-blk-pci,id=%s,drive=%s,addr=0x%x,"
                 "ioeventfd=off%s%s%s%s", d->id, d->id, d->slot,
                 d->form & RING_PACKED ? ",packed=on" : "",
                 strstr(options, "num-queues=") ? "" : ",num-queues=1",
                 *options ? "," : "", options);
}

/* @scsi_driver: if disks are SCSI */
static int number_of(const char *options, const char *name, int otherwise)
{
    const char *found = strstr(options, name);

    return found ? atoi(found + strlen(name)) : otherwise;
}

static TestDisk *disk_on(TestMachine *m, const char *id, const char *blockdev,
                         const char *scsi_driver, const char *options)
{
    TestDisk *d = disk_new(m, id);

    d->num_queues = number_of(options, "num-queues=", 1);
    /* QEMU may offer more than that. */
    d->ring_places = number_of(options, "queue-size=", 0);
    g_assert_cmpint(d->num_queues, <=, MAX_QUEUES);
    machine_args(m, "-blockdev %s,node-name=%s", blockdev, id);
    if (disks_are_scsi()) {
        scsi_args(d, scsi_driver, options);
    } else {
        blk_args(d, options);
    }
    return d;
}

TestDisk *machine_disk_on(TestMachine *m, const char *id,
                          const char *blockdev, const char *options)
{
    return disk_on(m, id, blockdev, "scsi-hd", options);
}

TestDisk *machine_disk(TestMachine *m, const char *id, const char *options)
{
    g_autofree char *image = g_strdup_printf("%s/%s.img", m->dir, id);
    /* Without locks, since migration tests open it twice. */
    g_autofree char *blockdev =
        g_strdup_printf("driver=raw,discard=unmap,file.driver=blkdebug,"
                        "file.image.driver=file,file.image.locking=off,"
                        "file.image.filename=%s,file.discard=unmap", image);

    image_create(image);
    return machine_disk_on(m, id, blockdev, options);
}

TestDisk *machine_failing(TestMachine *m, const char *id, const char *rule,
                          const char *options)
{
    g_autofree char *image = g_strdup_printf("%s/%s.img", m->dir, id);
    g_autofree char *blockdev =
        g_strdup_printf("driver=raw,file.driver=blkdebug,"
                        "file.image.driver=file,file.image.locking=off,"
                        "file.image.filename=%s,%s", image, rule);

    image_create(image);
    return machine_disk_on(m, id, blockdev, options);
}

TestDisk *machine_throttled(TestMachine *m, const char *id,
                            const char *limit, const char *options)
{
    g_autofree char *image = g_strdup_printf("%s/%s.img", m->dir, id);
    g_autofree char *blockdev =
        g_strdup_printf("driver=throttle,throttle-group=%s-group,"
                        "discard=unmap,file.driver=file,file.discard=unmap,"
                        "file.filename=%s", id, image);

    image_create(image);
    machine_args(m, "-object throttle-group,id=%s-group,%s", id, limit);
    return machine_disk_on(m, id, blockdev, options);
}

TestDisk *machine_pass_through(TestMachine *m, const char *id,
                               const char *driver, const char *path,
                               const char *options)
{
    struct stat st;
    g_autofree char *blockdev = NULL;

    g_assert_cmpint(stat(path, &st), ==, 0);
    blockdev = g_strdup_printf("driver=host_device,cache.direct=%s,"
                               "filename=%s",
                               S_ISBLK(st.st_mode) ? "on" : "off", path);
    return disk_on(m, id, blockdev, driver, options);
}

static void launch(TestMachine *m)
{
    m->qts = qtest_init_with_env(m->binary, m->args->str, true);
    pc_alloc_init(&m->alloc, m->qts, ALLOC_NO_FLAGS);
    m->bus = qpci_new_pc(m->qts, &m->alloc);
}

void machine_start(TestMachine *m)
{
    launch(m);
    for (unsigned i = 0; i < m->disks->len; i++) {
        disk_init(m->disks->pdata[i]);
    }
    machine_step_us(m, START_US);
}

/* An event may be over before the monitor is connected, so ask. */
static bool is_loading(TestMachine *m)
{
    QDict *status = qtest_qmp_assert_success_ref(m->qts,
                                                 "{'execute': 'query-status'}");
    bool loading = g_str_equal(qdict_get_str(status, "status"), "inmigrate");

    qobject_unref(status);
    return loading;
}

void machine_start_waiting(TestMachine *m)
{
    launch(m);
}

void machine_moved(TestMachine *m, const TestMachine *from)
{
    g_assert_cmpint(m->disks->len, ==, from->disks->len);
    while (is_loading(m)) {
        g_usleep(1000);
    }
    /* Not where the rings of @from are; and fw_cfg was loaded meanwhile. */
    alloc_destroy(&m->alloc);
    alloc_init(&m->alloc, ALLOC_NO_FLAGS, MOVED_START, MOVED_END, 4096);
    for (unsigned i = 0; i < m->disks->len; i++) {
        disk_adopt(m->disks->pdata[i], from->disks->pdata[i]);
    }
}

void machine_start_moved(TestMachine *m, const TestMachine *from)
{
    machine_start_waiting(m);
    machine_moved(m, from);
}

TestMachine *machine_pair(const char *resource_options,
                          TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, resource_options);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_disk(m, "bg", "idletime=" RESOURCE
                       ",idletime-class=background");
    machine_start(m);
    return m;
}

void machine_two(const char *bg_options, TestDisk **fg, TestDisk **bg)
{
    TestMachine *f = machine_new();
    TestMachine *b = machine_new_beside(f);

    machine_resource(f, RESOURCE, "");
    *fg = machine_disk(f, "fg", "idletime=" RESOURCE);
    machine_resource(b, RESOURCE, bg_options);
    *bg = machine_disk(b, "bg", "idletime=" RESOURCE
                       ",idletime-class=background");
    machine_start(f);
    machine_start(b);
}

TestDisk *machine_background(const TestMachine *other, const char *options)
{
    TestMachine *m = machine_new_beside(other);
    TestDisk *d;

    machine_resource(m, RESOURCE, options);
    d = machine_disk(m, "bg", "idletime=" RESOURCE
                     ",idletime-class=background");
    machine_start(m);
    return d;
}

TestMachine *machine_queues(TestDisk **d)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    *d = machine_disk(m, "d", "num-queues=3,idletime=" RESOURCE
                      ",idletime-background-queues=1-2");
    machine_start(m);
    return m;
}

static void remove_tree(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name;

    while (dir && (name = g_dir_read_name(dir))) {
        g_autofree char *child = g_build_filename(path, name, NULL);

        remove_tree(child);
    }
    remove(path);
}

void machine_free(TestMachine *m)
{
    g_ptr_array_free(m->disks, true);
    qpci_free_pc(m->bus);
    alloc_destroy(&m->alloc);
    qtest_quit(m->qts);
    if (m->own_dir) {
        remove_tree(m->dir);
    }
    g_string_free(m->args, true);
    g_free(m->dir);
    g_free(m);
}

void machine_stop(TestMachine *m)
{
    qtest_qmp_assert_success(m->qts, "{'execute': 'stop'}");
    qtest_qmp_eventwait(m->qts, "STOP");
}

void machine_cont(TestMachine *m)
{
    qtest_qmp_assert_success(m->qts, "{'execute': 'cont'}");
    qtest_qmp_eventwait(m->qts, "RESUME");
}

void machine_stop_often(TestDisk *d, int held)
{
    for (int i = 0; i < 100; i++) {
        machine_stop(d->m);
        assert_held(d, 0);
        machine_cont(d->m);
        disk_await(d, "held", held);
    }
}

void machine_step_us(TestMachine *m, int64_t us)
{
    if (us) {
        qtest_clock_step(m->qts, us * 1000);
        m->now_us += us;
    }
}

void machine_step_to(TestMachine *m, const TestMachine *other)
{
    g_assert_cmpint(other->now_us, >=, m->now_us);
    machine_step_us(m, other->now_us - m->now_us);
}

/* ---- arenas */

/* The threads that wait for others follow in real time. */
#define AWAIT_US    (15 * G_USEC_PER_SEC)

void arena_delete_file(TestMachine *m, const char *name)
{
    g_autofree char *path = g_build_filename(m->dir, RESOURCE, name, NULL);

    g_assert_true(remove(path) == 0 || errno == ENOENT);
}

void arena_delete(TestMachine *m)
{
    static const char *const file[] = {
        "foreground", "foreground.lock", "foreground.alive",
        "background", "background.lock", "background.alive", "",
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(file); i++) {
        arena_delete_file(m, file[i]);
    }
}

bool arena_is_lost(TestMachine *m)
{
    g_autofree char *state = machine_string(m, RESOURCE, "state");

    return g_str_equal(state, "lost");
}

/* Mappings of boards that are not at their paths any more. */
static unsigned stale_boards(TestMachine *m)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/maps",
                                            (int)qtest_pid(m->qts));
    g_autofree char *maps = NULL;
    g_auto(GStrv) line = NULL;
    unsigned n = 0;

    g_assert_true(g_file_get_contents(path, &maps, NULL, NULL));
    line = g_strsplit(maps, "\n", -1);
    for (unsigned i = 0; line[i]; i++) {
        n += strstr(line[i], "ground (deleted)") != NULL;
    }
    return n;
}

void arena_await(TestMachine *m)
{
    int64_t until = g_get_monotonic_time() + AWAIT_US;

    while (arena_is_lost(m) || stale_boards(m)) {
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        machine_step_us(m, ARENA_LOOK_US);
    }
}

/* ---- forms of rings */

RingForm ring_form;

typedef struct RingTest {
    RingForm form;
    void (*fn)(void);
    void (*data_fn)(const void *data);
    const void *data;
} RingTest;

static void run_test(const void *opaque)
{
    const RingTest *test = opaque;

    ring_form = test->form;
    if (test->fn) {
        test->fn();
    } else {
        test->data_fn(test->data);
    }
    ring_form = RING_SPLIT;
}

static void add_tests(const char *path, const RingTest *template)
{
    static const char *const name[RING_FORMS] = {
        [RING_SPLIT] = "",
        [RING_PACKED] = "/packed",
        [RING_INDIRECT] = "/indirect",
        [RING_PACKED | RING_INDIRECT] = "/packed-indirect",
    };

    for (unsigned form = 0; form < RING_FORMS; form++) {
        g_autofree char *full = g_strconcat(path, name[form], NULL);
        RingTest *test = g_memdup2(template, sizeof(*template));

        test->form = form;
        qtest_add_data_func_full(full, test, run_test, g_free);
    }
}

void ring_test(const char *path, void (*fn)(void))
{
    add_tests(path, &(RingTest) { .fn = fn });
}

void ring_data_test(const char *path, const void *data,
                    void (*fn)(const void *data))
{
    add_tests(path, &(RingTest) { .data_fn = fn, .data = data });
}
