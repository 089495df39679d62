/*
 * Idletime machine tests: racing and malformed requests, at random.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A seed makes a string of steps: requests of all kinds on three disks, time,
 * live changes of classes and settings, stop and cont, resets, unplug, drains,
 * a lost arena, and garbage in the ring of a fourth disk.  The order of what
 * happens inside QEMU is not the seed's: two I/O threads race.
 *
 * Each request has a zone of its disk for itself, so what it must read, and
 * what the image must hold in the end, is known.  A reset forgets requests:
 * then the image says which of them were carried out, block by block.
 *
 * IDLETIME_RACE_SEED=n  IDLETIME_RACE_STEPS=n
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "idletime-machine.h"

#define DISKS           3
#define ZONES           16
#define ZONE_BYTES      (512 * KiB)
#define ZONE_BLOCKS     (ZONE_BYTES / BLOCK_BYTES)
#define HEADER_BYTES    sizeof(struct virtio_blk_outhdr)
#define DEFAULT_STEPS   400
#define SETTLE_US       (15 * G_USEC_PER_SEC)
/* The arena is looked at once in this time. */
#define WATCH_US        (1000 * MS)

/* One request at a time; its data lie behind its header. */
typedef struct Zone {
    TestRequest *r;
    uint64_t addr;
    uint32_t type;
    unsigned first, count;          /* blocks of the zone */
    uint8_t value;
    uint8_t holds[ZONE_BLOCKS];
} Zone;

typedef struct Racer {
    TestDisk *d;
    const char *options;            /* to plug it again */
    Zone zone[ZONES];
} Racer;

typedef struct Race {
    TestMachine *m;
    GRand *rand;
    Racer racer[DISKS];             /* fg, bg, gd */
    TestDisk *mad;
    uint64_t mad_addr;
    bool stopped;
    unsigned requests;
    uint64_t verified_bytes;
} Race;

static unsigned pick(Race *race, unsigned n)
{
    return g_rand_int_range(race->rand, 0, n);
}

/* ---- requests */

static uint64_t image_offset(const Racer *racer, const Zone *z)
{
    return (z - racer->zone) * ZONE_BYTES + z->first * (uint64_t)BLOCK_BYTES;
}

static void send_request(Race *race, Racer *racer, Zone *z, uint32_t ioprio)
{
    QTestState *qts = race->m->qts;
    bool flush = z->type == VIRTIO_BLK_T_FLUSH;
    uint32_t size = flush ? 0 : z->count * BLOCK_BYTES;
    struct virtio_blk_outhdr header = {
        .type = cpu_to_le32(z->type), .ioprio = cpu_to_le32(ioprio),
        .sector = cpu_to_le64(image_offset(racer, z) / SECTOR_BYTES),
    };
    struct virtio_blk_discard_write_zeroes range = {
        .sector = header.sector,
        .num_sectors = cpu_to_le32(size / SECTOR_BYTES),
    };
    bool ranged = z->type == VIRTIO_BLK_T_WRITE_ZEROES ||
                  z->type == VIRTIO_BLK_T_DISCARD;
    TestPart part[] = {
        { z->addr, HEADER_BYTES, false },
        { z->addr + HEADER_BYTES, ranged ? sizeof(range) : size,
          z->type == VIRTIO_BLK_T_IN },
        { 0, 1, true },
    };

    part[2].addr = part[1].addr + part[1].size;
    qtest_bufwrite(qts, z->addr, &header, sizeof(header));
    if (ranged) {
        qtest_bufwrite(qts, part[1].addr, &range, sizeof(range));
    } else {
        qtest_memset(qts, part[1].addr, z->value, size);
    }
    qtest_writeb(qts, part[2].addr, 0xff);
    if (flush) {
        part[1] = part[2];
    }
    z->r = disk_submit_parts(racer->d, pick(race, racer->d->num_queues), part,
                             flush ? 2 : 3);
    z->r->size = flush ? 0 : part[1].size;
    race->requests++;
}

static bool room_in_rings(const TestDisk *d)
{
    for (unsigned i = 0; i < d->num_queues; i++) {
        if (d->vq[i]->num_free < 3) {
            return false;
        }
    }
    return true;
}

static void submit(Race *race, Racer *racer)
{
    static const uint32_t types[] = {
        VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_IN,
        VIRTIO_BLK_T_IN, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_WRITE_ZEROES,
        VIRTIO_BLK_T_DISCARD,
    };
    static const uint32_t ioprios[] = {
        IOPRIO_NONE, IOPRIO_BE_JOURNAL, IOPRIO_BE, IOPRIO_IDLE, IOPRIO_IDLE,
    };
    Zone *z = &racer->zone[pick(race, ZONES)];

    if (z->r || race->stopped || !room_in_rings(racer->d)) {
        return;
    }
    z->type = types[pick(race, ARRAY_SIZE(types))];
    z->first = pick(race, ZONE_BLOCKS - 1);
    /* Mostly small; large ones come in pieces. */
    z->count = 1 + pick(race, pick(race, 4) ? MIN(4, ZONE_BLOCKS - z->first) :
                              ZONE_BLOCKS - z->first);
    z->value = 1 + pick(race, 255);
    send_request(race, racer, z, ioprios[pick(race, ARRAY_SIZE(ioprios))]);
}

/* ---- what became of them */

static void note_done(Race *race, Racer *racer, Zone *z)
{
    QTestState *qts = race->m->qts;
    uint8_t *holds = &z->holds[z->first];

    g_assert_cmpint(qtest_readb(qts, z->addr + HEADER_BYTES + z->r->size), ==,
                    VIRTIO_BLK_S_OK);
    if (z->type == VIRTIO_BLK_T_OUT) {
        memset(holds, z->value, z->count);
    } else if (z->type == VIRTIO_BLK_T_WRITE_ZEROES ||
               z->type == VIRTIO_BLK_T_DISCARD) {
        memset(holds, 0, z->count);
    } else if (z->type == VIRTIO_BLK_T_IN) {
        g_autofree uint8_t *data = g_malloc(z->r->size);

        qtest_bufread(qts, z->addr + HEADER_BYTES, data, z->r->size);
        for (size_t i = 0; i < z->r->size; i++) {
            g_assert_cmphex(data[i], ==, holds[i / BLOCK_BYTES]);
        }
        race->verified_bytes += z->r->size;
    }
    z->r = NULL;
}

/* Returns the number of those that are still on their way. */
static unsigned reap(Race *race)
{
    unsigned pending = 0;

    for (unsigned i = 0; i < DISKS; i++) {
        for (unsigned n = 0; n < ZONES; n++) {
            Zone *z = &race->racer[i].zone[n];

            if (z->r && request_done(z->r)) {
                note_done(race, &race->racer[i], z);
            }
            pending += !!z->r;
        }
    }
    return pending;
}

/* The image of each zone; after a reset, of a forgotten write either state. */
static void compare(Race *race, Racer *racer)
{
    g_autofree uint8_t *data = g_malloc(ZONE_BYTES);
    int fd = open(racer->d->image, O_RDONLY);

    for (unsigned n = 0; n < ZONES; n++) {
        Zone *z = &racer->zone[n];
        bool zeroes = z->type != VIRTIO_BLK_T_OUT;

        g_assert_cmpint(pread(fd, data, ZONE_BYTES, n * ZONE_BYTES), ==,
                        ZONE_BYTES);
        for (unsigned b = 0; b < ZONE_BLOCKS; b++) {
            uint8_t found = data[b * BLOCK_BYTES];

            for (unsigned i = 1; i < BLOCK_BYTES; i++) {
                g_assert_cmphex(data[b * BLOCK_BYTES + i], ==, found);
            }
            if (z->r && z->type != VIRTIO_BLK_T_IN &&
                z->type != VIRTIO_BLK_T_FLUSH &&
                b >= z->first && b < z->first + z->count &&
                found == (zeroes ? 0 : z->value)) {
                z->holds[b] = found;
            }
            g_assert_cmphex(found, ==, z->holds[b]);
        }
        z->r = NULL;
    }
    race->verified_bytes += ZONES * ZONE_BYTES;
    close(fd);
}

/*
 * All that is on its way must end: time passes, and a held request leaves by
 * the interval, which may have been a minute.
 */
static void settle(Race *race)
{
    int64_t until = g_get_monotonic_time() + SETTLE_US;
    unsigned pending;

    if (race->stopped) {
        machine_cont(race->m);
        race->stopped = false;
    }
    machine_set(race->m, "interval-us", INTERVAL_US);
    while ((pending = reap(race))) {
        if (g_get_monotonic_time() > until) {
            g_error("%u requests never end", pending);
        }
        machine_step_us(race->m, 100 * MS);
        g_usleep(1000);
    }
    for (unsigned i = 0; i < DISKS; i++) {
        Racer *racer = &race->racer[i];

        g_assert_cmpint(disk_number(racer->d, "held"), ==, 0);
        g_ptr_array_set_size(racer->d->requests, 0);
        for (unsigned q = 0; q < racer->d->num_queues; q++) {
            qvirtqueue_reset_pool(racer->d->vq[q]);
        }
    }
}

/* ---- what happens to the machine */

static void forgotten(Race *race, Racer *racer)
{
    reap(race);
    compare(race, racer);
}

static void driver_reset(Race *race)
{
    Racer *racer = &race->racer[pick(race, DISKS)];

    qvirtio_reset(&racer->d->pci->vdev);
    forgotten(race, racer);
    disk_init(racer->d);
}

static void system_reset(Race *race)
{
    qtest_system_reset(race->m->qts);
    for (unsigned i = 0; i < DISKS; i++) {
        forgotten(race, &race->racer[i]);
        disk_init(race->racer[i].d);
    }
    disk_init(race->mad);
}

/* A participant cannot come while the arena is lost: wait until it is back. */
static void heal(Race *race)
{
    int64_t until = g_get_monotonic_time() + SETTLE_US;
    bool lost = true;

    machine_step_us(race->m, WATCH_US);
    while (lost) {
        g_autofree char *state = machine_string(race->m, RESOURCE, "state");

        g_assert_cmpint(g_get_monotonic_time(), <, until);
        lost = g_str_equal(state, "lost");
        machine_step_us(race->m, lost ? WATCH_US : 0);
    }
}

static void replug(Race *race)
{
    Racer *racer = &race->racer[pick(race, DISKS)];

    /* An ejected function needs a machine that runs. */
    if (race->stopped) {
        return;
    }
    reap(race);
    disk_unplug(racer->d);
    compare(race, racer);
    heal(race);
    disk_plug(racer->d, racer->options);
}

static void stop_or_cont(Race *race)
{
    if (race->stopped) {
        machine_cont(race->m);
    } else {
        machine_stop(race->m);
    }
    race->stopped = !race->stopped;
}

static void drain(Race *race)
{
    machine_ok(race->m, "block_resize", "{'node-name': %s, 'size': %" PRId64
               "}", race->racer[pick(race, DISKS)].d->id,
               (int64_t)(DISK_BYTES + pick(race, 2) * MiB));
}

static void set_class(Race *race)
{
    static const char *const classes[] = { "foreground", "background",
                                           "guest" };
    static const char *const queues[] = { "", "0", "1", "0-1" };
    Racer *racer = &race->racer[pick(race, DISKS)];

    /* Refused while the arena is lost: the device may need a new slot. */
    qobject_unref(qtest_qmp(race->m->qts, "{'execute': 'idletime-set',"
                            " 'arguments': {'device': %s, 'class': %s,"
                            " 'background-queues': %s}}", racer->d->id,
                            classes[pick(race, 3)],
                            racer->d->num_queues > 1 ?
                            queues[pick(race, ARRAY_SIZE(queues))] : ""));
}

static void set_property(Race *race)
{
    static const struct {
        const char *name;
        int64_t value[4];
    } setting[] = {
        { "interval-us", { 0, 1000, 20000, 60000000 } },
        { "max-hold-ms", { 0, 1, 500, 5000 } },
        { "max-inflight", { 1, 2, 4, 64 } },
        { "max-request-bytes", { 4096, 65536, 131072, 1048576 } },
    };
    unsigned i = pick(race, ARRAY_SIZE(setting));

    machine_set(race->m, setting[i].name, setting[i].value[pick(race, 4)]);
}

static void lose_arena(Race *race)
{
    static const char *const board[] = { "foreground", "background" };

    for (unsigned i = 0; i < ARRAY_SIZE(board); i++) {
        g_autofree char *path = g_strdup_printf("%s/" RESOURCE "/%s",
                                                race->m->dir, board[i]);

        if (pick(race, 2)) {
            g_assert_true(truncate(path, 0) == 0 || errno == ENOENT);
        }
        unlink(path);
    }
}

/* Descriptors of anything; what it may write to is its own, or nowhere. */
static void garbage(Race *race)
{
    static const uint64_t wild[] = { 0, 1ull << 40, UINT64_MAX - 511 };
    QVirtQueue *vq = race->mad->vq[0];

    for (unsigned i = 0; i < 8; i++) {
        bool own = pick(race, 4);
        struct vring_desc desc = {
            .addr = cpu_to_le64(own ? race->mad_addr + pick(race, 4096) :
                                      wild[1 + pick(race, 2)]),
            .len = cpu_to_le32(pick(race, 4) ? pick(race, 8192) :
                               g_rand_int(race->rand)),
            .flags = cpu_to_le16(pick(race, 8)),
            .next = cpu_to_le16(pick(race, 10)),
        };

        qtest_bufwrite(race->m->qts, vq->desc + i * sizeof(desc), &desc,
                       sizeof(desc));
    }
    for (unsigned i = 0; i < 16; i++) {
        qtest_writeb(race->m->qts, race->mad_addr + i,
                     pick(race, 3) ? 0 : pick(race, 256));
    }
    qvirtqueue_kick(race->m->qts, &race->mad->pci->vdev, vq, pick(race, 9));
    if (!pick(race, 3)) {
        disk_init(race->mad);
    }
}

static void pass_time(Race *race)
{
    static const int64_t us[] = { 1, 100, MS, 20 * MS, 500 * MS, 2000 * MS };

    machine_step_us(race->m, us[pick(race, ARRAY_SIZE(us))]);
    reap(race);
}

static void submit_many(Race *race)
{
    for (unsigned n = 0; n < 8; n++) {
        submit(race, &race->racer[pick(race, DISKS)]);
    }
}

static const struct {
    unsigned weight;
    void (*act)(Race *race);
} act[] = {
    { 40, submit_many }, { 16, pass_time }, { 10, garbage }, { 6, settle },
    { 6, stop_or_cont }, { 6, set_class }, { 6, set_property }, { 3, drain },
    { 3, driver_reset }, { 1, system_reset }, { 2, replug }, { 1, lose_arena },
};

static void step(Race *race)
{
    unsigned all = 0, at, i = 0;

    for (unsigned n = 0; n < ARRAY_SIZE(act); n++) {
        all += act[n].weight;
    }
    at = pick(race, all);
    while (at >= act[i].weight) {
        at -= act[i++].weight;
    }
    act[i].act(race);
}

/* ---- the whole */

static void racer_init(Racer *racer, TestDisk *d, const char *options)
{
    racer->d = d;
    racer->options = options;
    for (unsigned n = 0; n < ZONES; n++) {
        racer->zone[n].addr = guest_alloc(&d->m->alloc, ZONE_BYTES +
                                          2 * BLOCK_BYTES);
    }
}

static void race_start(Race *race)
{
    TestMachine *m = race->m = machine_new();
    TestDisk *fg, *bg, *gd;

    machine_args(m, "-object iothread,id=io0 -object iothread,id=io1");
    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    gd = machine_disk(m, "gd", "num-queues=2");
    race->mad = machine_disk(m, "mad", "idletime=" RESOURCE
                             ",idletime-class=background");
    race->mad->more_features = 1ull << VIRTIO_RING_F_INDIRECT_DESC;
    machine_start(m);
    race->mad_addr = guest_alloc(&m->alloc, 16 * KiB);
    racer_init(&race->racer[0], fg, "'idletime': 'r0'");
    racer_init(&race->racer[1], bg, "'idletime': 'r0',"
               " 'idletime-class': 'background'");
    racer_init(&race->racer[2], gd, "'idletime': 'r0',"
               " 'idletime-class': 'guest', 'iothread-vq-mapping':"
               " [{'iothread': 'io0'}, {'iothread': 'io1'}]");
    disk_unplug(gd);
    disk_plug(gd, race->racer[2].options);
}

static unsigned number_from(const char *name, unsigned otherwise)
{
    const char *text = g_getenv(name);
    unsigned value = otherwise;

    if (text && qemu_strtoui(text, NULL, 10, &value) < 0) {
        g_error("%s=%s: use a whole number", name, text);
    }
    return value;
}

static void test_race(void)
{
    unsigned seed = number_from("IDLETIME_RACE_SEED", 1);
    unsigned steps = number_from("IDLETIME_RACE_STEPS", DEFAULT_STEPS);
    Race race = { .rand = g_rand_new_with_seed(seed) };

    race_start(&race);
    for (unsigned i = 0; i < steps; i++) {
        step(&race);
    }
    settle(&race);
    for (unsigned i = 0; i < DISKS; i++) {
        compare(&race, &race.racer[i]);
    }
    g_test_message("seed %u: %u steps, %u requests, %" PRIu64
                   " bytes verified", seed, steps, race.requests,
                   race.verified_bytes);
    g_rand_free(race.rand);
    machine_free(race.m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/race", test_race);
    return g_test_run();
}
