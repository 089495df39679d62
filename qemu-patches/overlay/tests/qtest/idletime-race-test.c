/*
 * Idletime machine tests: racing and malformed requests, at random.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A seed makes a string of steps: requests of all kinds on three disks, time,
 * live changes of classes and settings, attach and detach, stop and cont,
 * resets, unplug, drains, a lost arena, task management of SCSI disks, and
 * garbage in the rings of a fourth disk.  The order of what happens inside
 * QEMU is not the seed's: two I/O threads race.
 *
 * What each request must read, and what the images must hold in the end, is
 * known: idletime-zones.h.
 *
 * Their rings are split or packed, direct or indirect, by the seed's two last
 * bits.
 *
 * IDLETIME_RACE_SEED=n  IDLETIME_RACE_STEPS=n
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/cutils.h"
#include "idletime-zones.h"
#include "scsi/constants.h"
#include "standard-headers/linux/virtio_scsi.h"

#define DISKS           3
#define DEFAULT_STEPS   400
#define SETTLE_US       (15 * G_USEC_PER_SEC)
/* The arena is looked at once in this time. */
#define WATCH_US        (1000 * MS)

typedef struct Racer {
    TestDisk *d;
    const char *options;            /* to plug it again */
    unsigned tmfs;                  /* without a response yet */
    TestZones zones;
} Racer;

typedef struct Race {
    TestMachine *m;
    GRand *rand;
    Racer racer[DISKS];             /* fg, bg, gd */
    TestDisk *mad;
    uint64_t mad_addr;
    bool stopped;
} Race;

static unsigned pick(Race *race, unsigned n)
{
    return g_rand_int_range(race->rand, 0, n);
}

static unsigned reap_tmfs(Racer *racer)
{
    uint32_t id;

    while (racer->tmfs && ring_get(&racer->d->ctrl, &id)) {
        racer->tmfs--;
    }
    return racer->tmfs;
}

/* Returns the number of requests that are still on their way. */
static unsigned reap(Race *race)
{
    unsigned pending = 0;

    for (unsigned i = 0; i < DISKS; i++) {
        pending += zones_reap(&race->racer[i].zones) +
                   reap_tmfs(&race->racer[i]);
    }
    return pending;
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

        g_assert_true(!disk_is_attached(racer->d) ||
                      disk_number(racer->d, "held") == 0);
        g_ptr_array_set_size(racer->d->requests, 0);
        for (unsigned q = 0; q < racer->d->num_queues; q++) {
            qvirtqueue_reset_pool(racer->d->vq[q]);
        }
    }
}

/* ---- what happens to the machine */

static void forget(Racer *racer)
{
    zones_compare(&racer->zones);
    racer->tmfs = 0;
}

static void forgotten(Race *race, Racer *racer)
{
    reap(race);
    forget(racer);
}

static void driver_reset(Race *race)
{
    Racer *racer = &race->racer[pick(race, DISKS)];

    qvirtio_reset(&racer->d->pci->vdev);
    forgotten(race, racer);
    disk_init(racer->d);
}

/* As a driver that is about to reset the device. */
static void no_bus_master(Race *race)
{
    Racer *racer = &race->racer[pick(race, DISKS)];

    disk_bus_master(racer->d, false);
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
    forget(racer);
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

/*
 * Refused while it is attached or detached already, or the arena is lost; a
 * detach goes on while other things happen.
 */
static void attach_or_detach(Race *race)
{
    static const char *const classes[] = { "foreground", "background",
                                           "guest" };
    const char *id = race->racer[pick(race, DISKS)].d->id;

    if (pick(race, 2)) {
        qobject_unref(qtest_qmp(race->m->qts, "{'execute': 'idletime-detach',"
                                " 'arguments': {'device': %s}}", id));
    } else {
        qobject_unref(qtest_qmp(race->m->qts, "{'execute': 'idletime-attach',"
                                " 'arguments': {'device': %s, 'resource': 'r0',"
                                " 'class': %s}}", id,
                                classes[pick(race, 3)]));
    }
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

/* Of one of the disk's requests, or of none. */
static void manage_tasks(Race *race)
{
    static const uint32_t subtype[] = {
        VIRTIO_SCSI_T_TMF_ABORT_TASK, VIRTIO_SCSI_T_TMF_ABORT_TASK,
        VIRTIO_SCSI_T_TMF_ABORT_TASK, VIRTIO_SCSI_T_TMF_ABORT_TASK_SET,
        VIRTIO_SCSI_T_TMF_CLEAR_TASK_SET, VIRTIO_SCSI_T_TMF_QUERY_TASK,
        VIRTIO_SCSI_T_TMF_QUERY_TASK_SET, VIRTIO_SCSI_T_TMF_I_T_NEXUS_RESET,
        VIRTIO_SCSI_T_TMF_LOGICAL_UNIT_RESET,
    };
    Racer *racer = &race->racer[pick(race, DISKS)];
    const GPtrArray *requests = racer->d->requests;
    const TestRequest *r;

    if (!disks_are_scsi() || race->stopped) {
        return;
    }
    r = requests->len ? requests->pdata[pick(race, requests->len)] : NULL;
    if (!reap_tmfs(racer) && !racer->d->ctrl.packed) {
        qvirtqueue_reset_pool(racer->d->ctrl.vq);
    }
    racer->tmfs += !!scsi_tmf_send(racer->d,
                                   subtype[pick(race, ARRAY_SIZE(subtype))],
                                   r ? r->tag : 0);
}

/* Mostly one that is obeyed. */
static void write_header(Race *race, bool is_ctrl)
{
    static const uint8_t code[] = {
        READ_10, WRITE_10, UNMAP, WRITE_SAME_16, SYNCHRONIZE_CACHE, 0xdf,
    };
    QTestState *qts = race->m->qts;
    unsigned size = disks_are_scsi() ? SCSI_HEADER_BYTES : 16;

    for (unsigned i = 0; i < size; i++) {
        qtest_writeb(qts, race->mad_addr + i, pick(race, 3) ? 0 :
                     pick(race, pick(race, 2) ? 8 : 256));
    }
    if (disks_are_scsi() && pick(race, 4)) {
        qtest_bufwrite(qts, race->mad_addr + (is_ctrl ? 8 : 0),
                       (uint8_t[8]) { 1 }, 8);
        if (!is_ctrl) {
            qtest_writeb(qts, race->mad_addr +
                         offsetof(struct virtio_scsi_cmd_req, cdb),
                         code[pick(race, ARRAY_SIZE(code))]);
        }
    }
}

/* Descriptors of anything; what it may write to is its own, or nowhere. */
static void garbage(Race *race)
{
    static const uint64_t wild[] = { 0, 1ull << 40, UINT64_MAX - 511 };
    bool is_ctrl = race->mad->ctrl.vq && !pick(race, 4);
    QVirtQueue *vq = is_ctrl ? race->mad->ctrl.vq : race->mad->vq[0];

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
    write_header(race, is_ctrl);
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
    /* A stopped guest kicks nothing. */
    for (unsigned n = 0; n < 8 && !race->stopped; n++) {
        zones_submit(&race->racer[pick(race, DISKS)].zones, race->rand);
    }
}

static const struct {
    unsigned weight;
    void (*act)(Race *race);
} act[] = {
    { 40, submit_many }, { 16, pass_time }, { 10, garbage }, { 6, settle },
    { 6, stop_or_cont }, { 6, set_class }, { 6, set_property }, { 3, drain },
    { 9, attach_or_detach }, { 9, manage_tasks },
    { 3, driver_reset }, { 1, system_reset }, { 2, replug }, { 2, lose_arena },
    { 2, no_bus_master },
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
    zones_init(&racer->zones, d);
}

static void race_start(Race *race, RingForm form)
{
    TestMachine *m = race->m = machine_new();
    TestDisk *fg, *bg, *gd;

    machine_args(m, "-object iothread,id=io0 -object iothread,id=io1");
    machine_resource(m, RESOURCE, "");
    ring_form = form;
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    gd = machine_disk(m, "gd", "num-queues=2");
    ring_form = RING_SPLIT;
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
    uint64_t verified_bytes = 0;
    unsigned requests = 0, ended = 0;

    race_start(&race, seed % RING_FORMS);
    for (unsigned i = 0; i < steps; i++) {
        step(&race);
    }
    settle(&race);
    for (unsigned i = 0; i < DISKS; i++) {
        TestZones *zones = &race.racer[i].zones;

        zones_compare(zones);
        requests += zones->requests;
        ended += zones->ended;
        verified_bytes += zones->verified_bytes;
    }
    g_test_message("seed %u: %u steps, %u requests, %" PRIu64
                   " bytes verified, %u ended without their own result",
                   seed, steps, requests, verified_bytes, ended);
    g_rand_free(race.rand);
    machine_free(race.m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/race", test_race);
    return g_test_run();
}
