/*
 * Idletime machine tests: a QEMU with disks on idletime resources.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Time is virtual: it moves by machine_step_us() alone, so a release has an
 * exact time.  Completions come in real time; request_wait() polls for them
 * and leaves the clock alone.  The devices have no ioeventfd unless a test
 * asks for it: a kick is then carried out before disk_submit() returns.
 */
#ifndef IDLETIME_MACHINE_H
#define IDLETIME_MACHINE_H

#include "libqtest.h"
#include "libqos/libqos-malloc.h"
#include "libqos/pci.h"
#include "libqos/virtio-pci.h"
#include "idletime-ring.h"
#include "standard-headers/linux/virtio_blk.h"

#define SECTOR_BYTES    512
#define DISK_BYTES      (64 * MiB)
#define BLOCK_BYTES     4096
#define MS              1000        /* microseconds */
#define INTERVAL_US     (20 * MS)   /* the standard of disks */

/* ioprio words of Linux: class << 13 | level */
#define IOPRIO_NONE         0
#define IOPRIO_BE_JOURNAL   0x4003
#define IOPRIO_BE           0x4004
#define IOPRIO_RT           0x2000
#define IOPRIO_IDLE         0x6000

#define RESOURCE            "r0"
#define MAX_QUEUES          4

/*
 * What a disk is, as long as the process runs: virtio-blk, or with this
 * variable set to "scsi" scsi-hd on a virtio-scsi-pci of its own.
 */
#define DISK_VARIABLE       "IDLETIME_DISK"
bool disks_are_scsi(void);

typedef struct TestMachine {
    QTestState *qts;
    QGuestAllocator alloc;
    QPCIBus *bus;
    GString *args;
    const char *binary;     /* environment variable; NULL: the usual one */
    char *dir;              /* arena, images, sockets */
    bool own_dir;
    int64_t now_us;         /* virtual time */
    GPtrArray *disks;
} TestMachine;

typedef struct TestDisk {
    TestMachine *m;
    char *id;
    char *image;
    unsigned slot;
    unsigned num_queues;
    unsigned ring_places;   /* what the driver makes; 0: as offered */
    bool adopted;           /* its rings are of a migrated machine */
    uint64_t more_features;
    QVirtioPCIDevice *pci;
    QVirtQueue *vq[MAX_QUEUES];     /* those of ring */
    TestRing ring[MAX_QUEUES];
    TestRing ctrl;          /* SCSI: of task management; vq NULL: none */
    unsigned form;          /* RingForm */
    GPtrArray *requests;
    unsigned completed;
} TestDisk;

typedef struct TestRequest {
    TestDisk *disk;
    TestRing *ring;
    uint64_t addr;          /* header, data, status in a row */
    size_t size;            /* of the data */
    uint64_t tag;           /* SCSI */
    uint32_t head;
    bool done;
    unsigned order;         /* among the disk's completions, from 1 */
} TestRequest;

/* Names a stock QEMU; the tests that need one are skipped without. */
#define UNPATCHED_QEMU  "IDLETIME_QEMU_UNPATCHED"

/* ---- the arena of RESOURCE */

/* Each process looks at its arenas once a second of virtual time. */
#define ARENA_LOOK_US   (1000 * MS)

/** arena_delete_file: one of its files, if it is there. */
void arena_delete_file(TestMachine *m, const char *name);
/** arena_delete: what there is of it. */
void arena_delete(TestMachine *m);
bool arena_is_lost(TestMachine *m);
/** arena_await: step until it is back and no board of the old one is mapped. */
void arena_await(TestMachine *m);

/* ---- rings: those of the disks that are made from now on */

typedef enum RingForm {
    RING_SPLIT,
    RING_PACKED = 1,
    RING_INDIRECT = 2,
    RING_FORMS = 4,
} RingForm;

extern RingForm ring_form;

/** ring_test, ring_data_test: add a test for each form of ring. */
void ring_test(const char *path, void (*fn)(void));
void ring_data_test(const char *path, const void *data,
                    void (*fn)(const void *data));

/* ---- machine: new, resources and disks, start, tests, free */

TestMachine *machine_new(void);
/** machine_new_beside: shares the folder, and so the arenas, with @other. */
TestMachine *machine_new_beside(const TestMachine *other);
void machine_args(TestMachine *m, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
/**
 * machine_resource: @options such as "interval-us=0", or ""; the interval is
 * the standard one and not learned, unless they say another or auto
 */
void machine_resource(TestMachine *m, const char *id, const char *options);
/** machine_disk: a raw file below blkdebug; @options of virtio-blk-pci */
TestDisk *machine_disk(TestMachine *m, const char *id, const char *options);
/** machine_disk_on: the same on a block device of the test's own. */
TestDisk *machine_disk_on(TestMachine *m, const char *id,
                          const char *blockdev, const char *options);
/**
 * machine_failing: what @rule of blkdebug describes fails, such as
 * "file.inject-error.0.event=read_aio,file.inject-error.0.errno=5"
 */
TestDisk *machine_failing(TestMachine *m, const char *id, const char *rule,
                          const char *options);
/**
 * machine_throttled: by @limit of a throttle-group, in real time.  What waits
 * for it is in service; drains let go.
 */
TestDisk *machine_throttled(TestMachine *m, const char *id,
                            const char *limit, const char *options);
/* Two requests a second, and so rare that only a drain ends a write. */
#define TWO_A_SECOND    "x-iops-total=2"
#define ONE_WRITE       "x-bps-write=1"
/** machine_pass_through: SCSI @driver on the host's device @path */
TestDisk *machine_pass_through(TestMachine *m, const char *id,
                               const char *driver, const char *path,
                               const char *options);
/** disk_let_go: a drain; what waits for the throttle completes. */
void disk_let_go(TestDisk *d);
/** machine_start: and away from time 0, at which no foreground was. */
void machine_start(TestMachine *m);
/**
 * machine_start_moved: with -incoming, a machine like @from: the driver's
 * memory is in the stream, so the device is found as it is.  Returns when the
 * stream is loaded.
 */
void machine_start_moved(TestMachine *m, const TestMachine *from);
/** machine_start_waiting, machine_moved: the same with -incoming defer. */
void machine_start_waiting(TestMachine *m);
void machine_moved(TestMachine *m, const TestMachine *from);
/** machine_pair: "fg" and "bg" on one resource, started. */
TestMachine *machine_pair(const char *resource_options,
                          TestDisk **fg, TestDisk **bg);
/** machine_two: "fg" and "bg" in two processes, on one resource, started. */
void machine_two(const char *bg_options, TestDisk **fg, TestDisk **bg);
/** machine_background: "bg" in a process of its own, beside @other, started. */
TestDisk *machine_background(const TestMachine *other, const char *options);
/** machine_queues: one disk of three queues, 1 and 2 background, started. */
TestMachine *machine_queues(TestDisk **d);
void machine_free(TestMachine *m);
/* ACPI PCI hotplug of the machine "pc": eject the slots of a bit mask */
#define PC_EJECT_PORT       0xae08

/** machine_stop, machine_cont: and wait for the event */
void machine_stop(TestMachine *m);
void machine_cont(TestMachine *m);
/** machine_stop_often: 100 times; all @held of @d are held again each time. */
void machine_stop_often(TestDisk *d, int held);

void machine_step_us(TestMachine *m, int64_t us);
/** machine_step_to: to the time of @other. */
void machine_step_to(TestMachine *m, const TestMachine *other);
/** machine_ok: a QMP command, by name and arguments in JSON */
void machine_ok(TestMachine *m, const char *command, const char *fmt, ...)
    G_GNUC_PRINTF(3, 4);
/** machine_refused: it fails with exactly this text. */
void machine_refused(TestMachine *m, const char *text, const char *command,
                     const char *fmt, ...) G_GNUC_PRINTF(4, 5);
/**
 * machine_number: "state.member" of query-idletime, below resource @id;
 * false is 0, true is 1, fractions are cut off
 */
int64_t machine_number(TestMachine *m, const char *id, const char *member);
char *machine_string(TestMachine *m, const char *id, const char *member);
void machine_set(TestMachine *m, const char *property, int64_t value);

/* ---- disks */

/** disk_init: reset and set up the device as a guest driver does. */
void disk_init(TestDisk *d);
/** disk_forget: the device's memory of requests is gone (reset). */
void disk_forget(TestDisk *d);
/**
 * disk_unplug, disk_plug: @options as a JSON object's members; with an
 * iothread among them, with ioeventfd.
 */
void disk_unplug(TestDisk *d);
/** disk_unplug_begin: the same, but the event is the caller's to wait for. */
void disk_unplug_begin(TestDisk *d);
void disk_plug(TestDisk *d, const char *options);
/** disk_adopt: go on where @from was; same device in another machine. */
void disk_adopt(TestDisk *d, const TestDisk *from);
/** disk_bus_master: may the device access the guest's memory? */
void disk_bus_master(TestDisk *d, bool may);
int64_t disk_number(TestDisk *d, const char *member);
void disk_set_class(TestDisk *d, const char *class);
/** disk_attach: to RESOURCE, as @class */
void disk_attach(TestDisk *d, const char *class);
/**
 * disk_detach: and do not wait; disk_await_detached: for the event;
 * disk_until_detached: where a wait for another event may have dropped it
 */
void disk_detach(TestDisk *d);
void disk_await_detached(TestDisk *d);
void disk_until_detached(TestDisk *d);
bool disk_is_attached(TestDisk *d);
/** disk_pause: the next read (write) stays in service until resumed. */
void disk_pause_read(TestDisk *d, const char *tag);
void disk_pause_write(TestDisk *d, const char *tag);
void disk_resume(TestDisk *d, const char *tag);
/** disk_fill, disk_check: the image on the host, in bytes of one value */
void disk_fill(TestDisk *d, uint64_t offset, size_t size, uint8_t value);
bool disk_holds(TestDisk *d, uint64_t offset, size_t size, uint8_t value);
/** disk_await: wait for a counter of query-idletime, in real time. */
void disk_await(TestDisk *d, const char *member, int64_t value);

#define assert_held(d, n) g_assert_cmpint(disk_number(d, "held"), ==, n)
#define assert_in_service(d, n) \
    g_assert_cmpint(disk_number(d, "in-service"), ==, n)

/* ---- SCSI: what virtio-blk has no word for */

/** scsi_controller_options, scsi_disk_options: those of each in @options */
char *scsi_controller_options(const char *options);
char *scsi_disk_options(const char *options);
/** scsi_ready: unit attentions, of a reset say, are taken away. */
void scsi_ready(TestDisk *d);
/** scsi_header: command, @size bytes, response in guest memory */
uint64_t scsi_header(TestDisk *d, uint64_t tag, const uint8_t *cdb,
                     size_t cdb_size, uint8_t priority,
                     const void *data, size_t size);
/** scsi_submit: @written: the device writes the data */
TestRequest *scsi_submit(TestDisk *d, unsigned queue, const uint8_t *cdb,
                         size_t cdb_size, uint8_t priority, const void *data,
                         size_t size, bool written);
/** scsi_submit_as: what virtio-blk calls @type and @ioprio */
TestRequest *scsi_submit_as(TestDisk *d, unsigned queue, uint32_t type,
                            uint32_t ioprio, uint64_t sector,
                            const void *data, size_t size);
/* Of a command, with the standard size of its CDB. */
#define SCSI_HEADER_BYTES       51
#define SCSI_RESPONSE_BYTES     108

/** scsi_response, scsi_status, scsi_sense_key: of one that is done */
uint8_t scsi_response(TestRequest *r);
uint8_t scsi_status(TestRequest *r);
uint8_t scsi_sense_key(TestRequest *r);
/** scsi_assert_response: wait for it first. */
void scsi_assert_response(TestRequest *r, uint8_t response);
/**
 * scsi_was_ended: by task management, or a unit attention took its place;
 * other failures than these are none
 */
bool scsi_was_ended(TestRequest *r);
/**
 * scsi_tmf_send: @subtype on @tag; the response comes on d->ctrl.  Returns
 * its address, or 0: no room while others are on their way.
 */
uint64_t scsi_tmf_send(TestDisk *d, uint32_t subtype, uint64_t tag);
/** scsi_tmf: the same; returns the response, when it comes. */
uint8_t scsi_tmf(TestDisk *d, uint32_t subtype, uint64_t tag);

/* ---- requests */

TestRequest *disk_submit(TestDisk *d, unsigned queue, uint32_t type,
                         uint32_t ioprio, uint64_t sector,
                         const void *data, size_t size);
typedef RingPart TestPart;

/** disk_submit_parts: descriptors as the test likes them */
TestRequest *disk_submit_parts(TestDisk *d, unsigned queue,
                               const TestPart *part, unsigned n);
/** disk_header: header, @size bytes, status in guest memory */
uint64_t disk_header(TestDisk *d, uint32_t type, uint32_t ioprio,
                     uint64_t sector, const void *data, size_t size);
/* One block of ioprio 0 on queue 0. */
TestRequest *disk_read(TestDisk *d);
TestRequest *disk_write(TestDisk *d, uint64_t offset, size_t size,
                        uint8_t value);
/** disk_write_joined: header and data in one descriptor, from sector 0 on */
TestRequest *disk_write_joined(TestDisk *d, size_t size, uint8_t value);
/** disk_read_on: of @queue */
TestRequest *disk_read_on(TestDisk *d, unsigned queue);
TestRequest *disk_flush(TestDisk *d);
TestRequest *disk_read_as(TestDisk *d, uint32_t ioprio);

/** request_moved: @r of another machine is now one of @d. */
TestRequest *request_moved(TestDisk *d, const TestRequest *r);
bool request_done(TestRequest *r);
/** request_wait: returns the status byte.  No clock step. */
uint8_t request_wait(TestRequest *r);
/** request_ok: wait, and it must have succeeded. */
void request_ok(TestRequest *r);
bool request_holds(TestRequest *r, uint8_t value);
/** request_data: where its data are in guest memory */
uint64_t request_data(TestRequest *r);
/** foreground: one read of @d, complete */
void foreground(TestDisk *d);

#endif
