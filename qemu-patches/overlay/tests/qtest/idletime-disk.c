/*
 * Idletime machine tests: disks, as a guest driver and its host see them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "qobject/qjson.h"
#include "hw/pci/pci_regs.h"
#include "idletime-machine.h"

/* Real time; on a loaded machine a thread pool may take seconds. */
#define WAIT_US             (15 * G_USEC_PER_SEC)
#define POLL_US             500
/* Control and events. */
#define SCSI_FIXED_QUEUES   2

/* The allocator of this machine knows nothing of an adopted ring. */
static void queue_free(TestDisk *d, QVirtQueue *vq)
{
    if (d->adopted) {
        g_free(container_of(vq, QVirtQueuePCI, vq));
    } else {
        qvirtqueue_cleanup(d->pci->vdev.bus, vq, &d->m->alloc);
    }
}

void disk_forget(TestDisk *d)
{
    for (unsigned i = 0; i < d->num_queues; i++) {
        if (d->vq[i]) {
            queue_free(d, d->vq[i]);
            d->vq[i] = NULL;
        }
    }
    if (d->ctrl.vq) {
        queue_free(d, d->ctrl.vq);
        d->ctrl.vq = NULL;
    }
    g_ptr_array_set_size(d->requests, 0);
    if (d->pci) {
        qvirtio_pci_destructor(&d->pci->obj);
        g_free(d->pci);
        d->pci = NULL;
    }
}

static uint64_t features_of(TestDisk *d)
{
    uint64_t dropped = QVIRTIO_F_BAD_FEATURE |
                       (1ull << VIRTIO_RING_F_INDIRECT_DESC) |
                       (1ull << VIRTIO_RING_F_EVENT_IDX);

    return qvirtio_get_features(&d->pci->vdev) &
           ~(dropped & ~d->more_features);
}

void disk_init(TestDisk *d)
{
    QPCIAddress address = { .devfn = QPCI_DEVFN(d->slot, 0) };

    disk_forget(d);
    d->pci = virtio_pci_new(d->m->bus, &address);
    g_assert_nonnull(d->pci);
    qvirtio_pci_device_enable(d->pci);
    qvirtio_start_device(&d->pci->vdev);
    qvirtio_set_features(&d->pci->vdev, features_of(d));
    for (unsigned i = 0; i < d->num_queues; i++) {
        uint16_t index = i + (disks_are_scsi() ? SCSI_FIXED_QUEUES : 0);

        if (d->ring_places) {
            ring_resize(d->pci, index, d->ring_places);
        }
        ring_setup(&d->ring[i], d->m->qts, &d->pci->vdev, &d->m->alloc, index);
        d->vq[i] = d->ring[i].vq;
    }
    if (disks_are_scsi()) {
        ring_setup(&d->ctrl, d->m->qts, &d->pci->vdev, &d->m->alloc, 0);
    }
    qvirtio_set_driver_ok(&d->pci->vdev);
    if (disks_are_scsi()) {
        scsi_ready(d);
    }
}

void disk_adopt(TestDisk *d, const TestDisk *from)
{
    d->pci = g_memdup2(from->pci, sizeof(*from->pci));
    d->pci->pdev = g_memdup2(from->pci->pdev, sizeof(*from->pci->pdev));
    d->pci->pdev->bus = d->m->bus;
    for (unsigned i = 0; i < d->num_queues; i++) {
        QVirtQueuePCI *vq = container_of(from->vq[i], QVirtQueuePCI, vq);

        vq = g_memdup2(vq, sizeof(*vq));
        vq->vq.vdev = &d->pci->vdev;
        d->vq[i] = &vq->vq;
        d->ring[i] = from->ring[i];
        d->ring[i].vq = d->vq[i];
        d->ring[i].qts = d->m->qts;
        d->ring[i].alloc = &d->m->alloc;
    }
    d->adopted = true;
}

/* Its parts are deleted with events of their own, without an id. */
static void await_deleted(TestDisk *d, const char *id)
{
    bool found = false;

    while (!found) {
        QDict *event = qtest_qmp_eventwait_ref(d->m->qts, "DEVICE_DELETED");
        QDict *data = qdict_get_qdict(event, "data");

        found = g_strcmp0(qdict_get_try_str(data, "device"), id) == 0;
        qobject_unref(event);
    }
}

void disk_unplug_begin(TestDisk *d)
{
    qtest_qmp_device_del_send(d->m->qts, d->id);
    if (!disks_are_scsi()) {
        /* The guest lets go of it. */
        qtest_outl(d->m->qts, PC_EJECT_PORT, 1 << d->slot);
    }
}

void disk_unplug(TestDisk *d)
{
    disk_unplug_begin(d);
    await_deleted(d, d->id);
    disk_forget(d);
}

static void blk_plug(TestDisk *d, const char *options)
{
    g_autofree char *json =
        g_strdup_printf("{'id': '%s', 'drive': '%s', 'addr': '0x%x',"
                        " 'ioeventfd': %s, 'num-queues': %u%s%s%s}",
                        d->id, d->id, d->slot,
                        strstr(options, "iothread") ? "true" : "false",
                        d->num_queues,
                        d->form & RING_PACKED ? ", 'packed': true" : "",
                        *options ? ", " : "", options);
    QObject *object = qobject_from_json(json, &error_abort);

    qtest_qmp_device_add_qdict(d->m->qts, "virtio-blk-pci",
                               qobject_to(QDict, object));
    qobject_unref(object);
}

/* Another one with @options, which are the caller's. */
static void scsi_replace_controller(TestDisk *d, QDict *options)
{
    g_autofree char *id = g_strdup_printf("%s-hba", d->id);
    g_autofree char *addr = g_strdup_printf("0x%x", d->slot);

    qtest_qmp_device_del_send(d->m->qts, id);
    qtest_outl(d->m->qts, PC_EJECT_PORT, 1 << d->slot);
    await_deleted(d, id);
    qdict_put_str(options, "id", id);
    qdict_put_str(options, "addr", addr);
    qdict_put_bool(options, "ioeventfd", true);
    qdict_put_int(options, "num_queues", d->num_queues);
    if (d->form & RING_PACKED) {
        qdict_put_bool(options, "packed", true);
    }
    qtest_qmp_device_add_qdict(d->m->qts, "virtio-scsi-pci", options);
}

/* What is not of the disk is of its controller. */
static void scsi_plug(TestDisk *d, const char *options)
{
    g_autofree char *json = g_strdup_printf("{%s}", options);
    g_autofree char *bus = g_strdup_printf("%s-hba.0", d->id);
    QDict *disk = qobject_to(QDict, qobject_from_json(json, &error_abort));
    QDict *controller = qdict_new();
    const QDictEntry *e = qdict_first(disk);

    while (e) {
        const char *key = qdict_entry_key(e);
        const QDictEntry *next = qdict_next(disk, e);

        if (!g_str_has_prefix(key, "idletime")) {
            qdict_put_obj(controller, key, qobject_ref(qdict_entry_value(e)));
            qdict_del(disk, key);
        }
        e = next;
    }
    if (qdict_size(controller)) {
        scsi_replace_controller(d, controller);
    }
    qdict_put_str(disk, "id", d->id);
    qdict_put_str(disk, "drive", d->id);
    qdict_put_str(disk, "bus", bus);
    qtest_qmp_device_add_qdict(d->m->qts, "scsi-hd", disk);
    qobject_unref(controller);
    qobject_unref(disk);
}

void disk_plug(TestDisk *d, const char *options)
{
    if (disks_are_scsi()) {
        scsi_plug(d, options);
    } else {
        blk_plug(d, options);
    }
    disk_init(d);
}

void disk_bus_master(TestDisk *d, bool may)
{
    QPCIDevice *pdev = d->pci->pdev;
    uint16_t command = qpci_config_readw(pdev, PCI_COMMAND);

    command = may ? command | PCI_COMMAND_MASTER :
                    command & ~PCI_COMMAND_MASTER;
    qpci_config_writew(pdev, PCI_COMMAND, command);
}

void disk_set_class(TestDisk *d, const char *class)
{
    machine_ok(d->m, "idletime-set", "{'device': %s, 'class': %s}",
               d->id, class);
}

void disk_attach(TestDisk *d, const char *class)
{
    machine_ok(d->m, "idletime-attach",
               "{'device': %s, 'resource': '" RESOURCE "', 'class': %s}",
               d->id, class);
}

void disk_detach(TestDisk *d)
{
    machine_ok(d->m, "idletime-detach", "{'device': %s}", d->id);
}

void disk_await_detached(TestDisk *d)
{
    g_autofree char *path = g_strdup_printf("/machine/peripheral/%s", d->id);
    QDict *event = qtest_qmp_eventwait_ref(d->m->qts, "IDLETIME_DETACHED");
    QDict *data = qdict_get_qdict(event, "data");

    g_assert_cmpstr(qdict_get_str(data, "device"), ==, d->id);
    g_assert_cmpstr(qdict_get_str(data, "path"), ==, path);
    qobject_unref(event);
    g_assert_false(disk_is_attached(d));
}

void disk_until_detached(TestDisk *d)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;

    while (disk_is_attached(d)) {
        if (g_get_monotonic_time() > until) {
            g_error("%s is not detached", d->id);
        }
        g_usleep(POLL_US);
    }
}

/* By the device's own backend: a new one would be drained at its end. */
static void qemu_io(TestDisk *d, const char *command)
{
    g_autofree char *answer =
        qtest_hmp(d->m->qts, "qemu-io -d /machine/peripheral/%s%s \"%s\"",
                  d->id, disks_are_scsi() ? "" : "/virtio-backend", command);

    g_assert_cmpstr(answer, ==, "");
}

static void pause_at(TestDisk *d, const char *event, const char *tag)
{
    g_autofree char *command = g_strdup_printf("break %s %s", event, tag);

    qemu_io(d, command);
}

void disk_pause_read(TestDisk *d, const char *tag)
{
    pause_at(d, "read_aio", tag);
}

void disk_pause_write(TestDisk *d, const char *tag)
{
    pause_at(d, "write_aio", tag);
}

void disk_resume(TestDisk *d, const char *tag)
{
    g_autofree char *command = g_strdup_printf("resume %s", tag);

    qemu_io(d, command);
}

void disk_let_go(TestDisk *d)
{
    machine_ok(d->m, "block_resize", "{'node-name': %s, 'size': %" PRId64 "}",
               d->id, (int64_t)DISK_BYTES);
}

void disk_fill(TestDisk *d, uint64_t offset, size_t size, uint8_t value)
{
    g_autofree char *buffer = g_malloc(size);
    int fd = open(d->image, O_WRONLY);

    memset(buffer, value, size);
    g_assert_cmpint(pwrite(fd, buffer, size, offset), ==, size);
    close(fd);
}

bool disk_holds(TestDisk *d, uint64_t offset, size_t size, uint8_t value)
{
    g_autofree uint8_t *buffer = g_malloc(size);
    int fd = open(d->image, O_RDONLY);
    size_t i = 0;

    g_assert_cmpint(pread(fd, buffer, size, offset), ==, size);
    close(fd);
    while (i < size && buffer[i] == value) {
        i++;
    }
    return i == size;
}

void disk_await(TestDisk *d, const char *member, int64_t value)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;
    int64_t now;

    while ((now = disk_number(d, member)) != value) {
        if (g_get_monotonic_time() > until) {
            g_error("%s of %s is %" PRId64 ", not %" PRId64, member, d->id,
                    now, value);
        }
        g_usleep(POLL_US);
    }
}
