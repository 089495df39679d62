/*
 * Idletime machine tests: as many requests as an SSD does.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * No guest is in the way: its processor is halted, its memory is a file that
 * this program maps, and so the driver's side of the rings is a loop here.
 * Time is real, and the disk answers at once, or after a set time.
 *
 * As a test a short run, in which all has to come back.  With
 * IDLETIME_RATE_SECONDS=S each case takes S seconds and prints a line of JSON
 * (tests/bench/rate.py).
 */
#include "qemu/osdep.h"
#include <math.h>
#include "qemu/atomic.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "standard-headers/linux/virtio_ring.h"

#define MEMORY_BYTES        (128 * MiB)
#define FIRMWARE_BYTES      (64 * KiB)
#define RESET_OFFSET        (FIRMWARE_BYTES - 16)
#define DEPTH               32
#define PARTS               3       /* header, data, status */
#define TEST_SECONDS        0.2
#define SAMPLES_MAX         (4 * 1000 * 1000)
#define NULL_DISK           "driver=null-co,size=67108864,latency-ns=%d"

/* A disk's ring, as its driver sees it in the guest's memory. */
typedef struct Driver {
    TestDisk *disk;
    struct vring vring;
    uint16_t available, used;
    unsigned in_service;
    uint64_t status[DEPTH];     /* where each request's status is */
    int64_t since_ns[DEPTH];
    uint64_t done;
    uint32_t *sample_ns;            /* latencies; NULL: not wanted */
    uint64_t samples;
} Driver;

typedef struct Rig {
    TestMachine *m;
    uint8_t *memory;
} Rig;

typedef struct Case {
    const char *name;
    const char *resource;           /* its options; NULL: none */
    const char *foreground, *background;    /* of the disk; NULL: none */
    int latency_ns;
    double rate;                    /* of the foreground, 1/s; 0: greedy */
} Case;

static const char FG[] = ",idletime=" RESOURCE;
static const char BG[] = ",idletime=" RESOURCE ",idletime-class=background";

/*
 * Greedy on a disk that answers at once: what a request takes of a processor.
 * Then 100 us a request, the foreground comes 50,000 times a second.
 */
static const Case cases[] = {
    { "unset", NULL, "", NULL, 0 },
    { "foreground", "", FG, NULL, 0 },
    { "background", "interval-us=0,max-inflight=32", NULL, BG, 0 },
    { "background-auto", "auto=on", NULL, BG, 0 },
    { "alone", "", FG, NULL, 100 * 1000, 50000 },
    { "beside-unset", NULL, "", "", 100 * 1000, 50000 },
    { "beside-interval", "interval-us=1000,max-inflight=32", FG, BG,
      100 * 1000, 50000 },
    { "beside-auto", "auto=on,budget-percent=5", FG, BG, 100 * 1000, 50000 },
};

/* ---- a machine that does nothing by itself */

static void write_firmware(const char *path)
{
    const uint8_t halt[] = { 0xfa, 0xf4, 0xeb, 0xfd };  /* cli; hlt; jmp hlt */
    g_autofree uint8_t *image = g_malloc0(FIRMWARE_BYTES);

    memcpy(image + RESET_OFFSET, halt, sizeof(halt));
    g_assert_true(g_file_set_contents(path, (char *)image, FIRMWARE_BYTES,
                                      NULL));
}

static void *map_memory(const char *path)
{
    int fd = open(path, O_RDWR);
    void *memory;

    g_assert_cmpint(fd, >=, 0);
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  0);
    close(fd);
    g_assert_true(memory != MAP_FAILED);
    return memory;
}

static void rig_init(Rig *rig)
{
    TestMachine *m = rig->m = machine_new();
    g_autofree char *firmware = g_strdup_printf("%s/firmware", m->dir);

    write_firmware(firmware);
    machine_args(m, "-accel tcg -bios %s -machine memory-backend=ram "
                 "-object memory-backend-file,id=ram,size=128M,share=on,"
                 "mem-path=%s/ram "
                 "-object iothread,id=io0,poll-max-ns=1000000000",
                 firmware, m->dir);
}

static void rig_start(Rig *rig)
{
    g_autofree char *path = g_strdup_printf("%s/ram", rig->m->dir);

    machine_start_waiting(rig->m);
    for (unsigned i = 0; i < rig->m->disks->len; i++) {
        disk_init(rig->m->disks->pdata[i]);
    }
    rig->memory = map_memory(path);
}

static void rig_free(Rig *rig)
{
    munmap(rig->memory, MEMORY_BYTES);
    machine_free(rig->m);
}

static TestDisk *rig_disk(Rig *rig, const char *id, int latency_ns,
                          const char *options)
{
    g_autofree char *blockdev = g_strdup_printf(NULL_DISK, latency_ns);
    g_autofree char *all = g_strdup_printf("iothread=io0,ioeventfd=on,"
                                           "queue-size=256%s", options);

    return machine_disk_on(rig->m, id, blockdev, all);
}

/* ---- the driver */

/* Blocks that are not in a row: the device would merge those. */
static void fill_slot(Driver *d, Rig *rig, unsigned slot)
{
    uint64_t addr = disk_header(d->disk, VIRTIO_BLK_T_IN, IOPRIO_NONE,
                                2 * slot * BLOCK_BYTES / SECTOR_BYTES, NULL,
                                BLOCK_BYTES);
    size_t header = sizeof(struct virtio_blk_outhdr);
    struct vring_desc *desc = &d->vring.desc[slot * PARTS];

    desc[0] = (struct vring_desc) { addr, header, VRING_DESC_F_NEXT,
                                    slot * PARTS + 1 };
    desc[1] = (struct vring_desc) { addr + header, BLOCK_BYTES,
                                    VRING_DESC_F_NEXT | VRING_DESC_F_WRITE,
                                    slot * PARTS + 2 };
    desc[2] = (struct vring_desc) { addr + header + BLOCK_BYTES, 1,
                                    VRING_DESC_F_WRITE, 0 };
    d->status[slot] = addr + header + BLOCK_BYTES;
}

static void driver_init(Driver *d, Rig *rig, TestDisk *disk)
{
    QVirtQueue *vq = disk->vq[0];

    *d = (Driver) { .disk = disk };
    d->vring.num = vq->size;
    d->vring.desc = (void *)(rig->memory + vq->desc);
    d->vring.avail = (void *)(rig->memory + vq->avail);
    d->vring.used = (void *)(rig->memory + vq->used);
    d->vring.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
    for (unsigned slot = 0; slot < DEPTH; slot++) {
        fill_slot(d, rig, slot);
    }
}

static void submit(Driver *d, Rig *rig, unsigned slot, int64_t now_ns)
{
    QVirtioDevice *v = d->disk->vq[0]->vdev;

    rig->memory[d->status[slot]] = 0xff;
    d->since_ns[slot] = now_ns;
    d->vring.avail->ring[d->available++ % d->vring.num] = slot * PARTS;
    qatomic_store_release(&d->vring.avail->idx, d->available);
    d->in_service++;
    /* The device sets the flag, and then looks at the index again. */
    smp_mb();
    if (!(qatomic_read(&d->vring.used->flags) & VRING_USED_F_NO_NOTIFY)) {
        v->bus->virtqueue_kick(v, d->disk->vq[0]);
    }
}

/* Returns the slot of one that came back, or -1. */
static int complete(Driver *d, Rig *rig, int64_t now_ns)
{
    unsigned slot;

    if (d->used == qatomic_load_acquire(&d->vring.used->idx)) {
        return -1;
    }
    slot = d->vring.used->ring[d->used++ % d->vring.num].id / PARTS;
    g_assert_cmpint(slot, <, DEPTH);
    g_assert_cmpint(rig->memory[d->status[slot]], ==, VIRTIO_BLK_S_OK);
    d->in_service--;
    d->done++;
    if (d->sample_ns && d->samples < SAMPLES_MAX) {
        d->sample_ns[d->samples++] = now_ns - d->since_ns[slot];
    }
    return slot;
}

static int64_t now(void)
{
    return g_get_monotonic_time() * 1000;
}

/* ---- loads */

static void greedy(Driver *d, Rig *rig, int64_t now_ns, bool more)
{
    int slot = complete(d, rig, now_ns);

    if (slot >= 0 && more) {
        submit(d, rig, slot, now_ns);
    }
}

/* Poisson arrivals; one that finds all slots taken comes when one is free. */
typedef struct Arrivals {
    GRand *rand;
    double rate;
    int64_t next_ns;
    unsigned free[DEPTH], n_free;
} Arrivals;

static void paced(Driver *d, Rig *rig, Arrivals *a, int64_t now_ns, bool more)
{
    int slot = complete(d, rig, now_ns);

    if (slot >= 0) {
        a->free[a->n_free++] = slot;
    }
    if (more && a->n_free && now_ns >= a->next_ns) {
        submit(d, rig, a->free[--a->n_free], now_ns);
        a->next_ns += -log(1 - g_rand_double(a->rand)) / a->rate * 1e9;
    }
}

static void begin(Driver *d, Rig *rig, Arrivals *a, double rate, int64_t at_ns)
{
    *a = (Arrivals) { .rand = g_rand_new_with_seed(1), .rate = rate,
                      .next_ns = at_ns };
    for (unsigned slot = 0; d->disk && slot < DEPTH; slot++) {
        if (rate) {
            a->free[a->n_free++] = slot;
        } else {
            submit(d, rig, slot, at_ns);
        }
    }
}

static void step(Driver *d, Rig *rig, Arrivals *a, bool more)
{
    if (!d->disk) {
        return;
    } else if (a->rate) {
        paced(d, rig, a, now(), more);
    } else {
        greedy(d, rig, now(), more);
    }
}

/* For @seconds, and then until all have come back; returns how long. */
static double run(Rig *rig, Driver *fg, Driver *bg, double rate,
                  double seconds)
{
    int64_t began = now(), end = began + seconds * 1e9;
    Arrivals a, b;

    begin(fg, rig, &a, rate, began);
    begin(bg, rig, &b, 0, began);
    while (now() < end) {
        step(fg, rig, &a, true);
        step(bg, rig, &b, true);
    }
    seconds = (now() - began) / 1e9;
    while (fg->in_service || bg->in_service) {
        step(fg, rig, &a, false);
        step(bg, rig, &b, false);
    }
    g_rand_free(a.rand);
    g_rand_free(b.rand);
    return seconds;
}

/* ---- cases */

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static double quantile_us(const Driver *d, double q)
{
    return d->samples ? d->sample_ns[(uint64_t)(q * (d->samples - 1))] / 1e3
                      : 0;
}

static void print(const Case *c, Driver *fg, const Driver *bg, double seconds)
{
    qsort(fg->sample_ns, fg->samples, sizeof(*fg->sample_ns), compare);
    printf("{\"case\": \"%s\", \"foreground_per_second\": %.0f, "
           "\"background_per_second\": %.0f, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, \"p999_us\": %.1f}\n", c->name,
           fg->done / seconds, bg->done / seconds, quantile_us(fg, 0.5),
           quantile_us(fg, 0.99), quantile_us(fg, 0.999));
    fflush(stdout);
}

static void test_case(const void *data)
{
    const char *asked = getenv("IDLETIME_RATE_SECONDS");
    double seconds = asked ? atof(asked) : TEST_SECONDS;
    const Case *c = data;
    TestDisk *fg_disk = NULL, *bg_disk = NULL;
    Driver fg = { 0 }, bg = { 0 };
    Rig rig;

    rig_init(&rig);
    if (c->resource) {
        machine_resource(rig.m, RESOURCE, c->resource);
    }
    if (c->foreground) {
        fg_disk = rig_disk(&rig, "fg", c->latency_ns, c->foreground);
    }
    if (c->background) {
        bg_disk = rig_disk(&rig, "bg", c->latency_ns, c->background);
    }
    rig_start(&rig);
    if (fg_disk) {
        driver_init(&fg, &rig, fg_disk);
    }
    if (bg_disk) {
        driver_init(&bg, &rig, bg_disk);
    }
    /* The event loop learns to poll, and the learner learns. */
    run(&rig, &fg, &bg, c->rate, seconds);
    fg.done = bg.done = 0;
    fg.sample_ns = g_new(uint32_t, SAMPLES_MAX);
    seconds = run(&rig, &fg, &bg, c->rate, seconds);
    g_assert_cmpint(fg.done + bg.done, >, 0);
    if (asked) {
        print(c, &fg, &bg, seconds);
    }
    g_free(fg.sample_ns);
    rig_free(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        g_autofree char *path = g_strdup_printf("idletime/rate/%s",
                                                cases[i].name);

        qtest_add_data_func(path, &cases[i], test_case);
    }
    return g_test_run();
}
