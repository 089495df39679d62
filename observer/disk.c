/*
 * Idletime observer: loads the programs of a disk, and heals what they count.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The kernel does not run a program at every event: not where the same program
 * is running on that processor (it counts these), and there are kernels that
 * run none on top of process 1 (not counted: bursts of ends that an interrupt
 * brings while it has the processor).  An end without a begin is left out at
 * once, by the program; a begin without an end is found by healing (heal.c).
 */
#include "observer.h"

#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "share.h"
#include "disk.skel.h"

static struct {
    struct disk_bpf *bpf;
    const IdletimeObserved *page;
    Leaf leaf;
    Groups groups;
    Member member[OBSERVER_CGROUPS];
    uint64_t ticks;
    bool blind;                 /* the kernel counts nothing: said once */
} disk;

static bool put(void *opaque, uint64_t id, uint64_t from_ns, uint64_t until_ns)
{
    struct background value = { from_ns, until_ns };

    return bpf_map_update_elem(bpf_map__fd(disk.bpf->maps.background), &id,
                               &value, BPF_ANY) == 0;
}

static bool drop(void *opaque, uint64_t id)
{
    return bpf_map_delete_elem(bpf_map__fd(disk.bpf->maps.background),
                               &id) == 0;
}

static void set_order(unsigned long long *order, uint64_t value)
{
    __atomic_store_n(order, value, __ATOMIC_RELEASE);
}

/* The page is frozen for all but programs: one of them corrects it. */
static void correct(struct correction correction)
{
    LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = &correction,
                .ctx_size_in = sizeof(correction));

    bpf_prog_test_run_opts(bpf_program__fd(disk.bpf->progs.correct), &run);
}

static uint64_t misses(const struct bpf_program *program)
{
    struct bpf_prog_info info = { 0 };
    uint32_t size = sizeof(info);
    int fd = bpf_program__fd(program);

    return fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &size) == 0 ?
           info.recursion_misses : 0;
}

static void count_misses(void)
{
    struct bpf_program *program;
    uint64_t sum = 0;

    bpf_object__for_each_program(program, disk.bpf->obj) {
        sum += misses(program);
    }
    if (sum > disk.page->missed) {
        correct((struct correction) { .missed = sum - disk.page->missed });
    }
}

/* A device that is gone has nothing in service: its last ends come too late. */
static void clear(void)
{
    correct((struct correction) {
        .lost = disk.page->all_in_service,
        .lost_foreground = disk.page->in_service,
    });
}

/* False when the device is gone. */
static bool heal(void)
{
    bool blind = !heal_is_counted();
    struct correction correction;

    if (blind && !disk.blind) {
        warn("%s has queue/iostats 0 now: lost events cannot be told until it "
             "is 1 again", disk.leaf.name);
    }
    disk.blind = blind;
    if (blind) {
        heal_forget();
        return true;
    }
    if (!heal_look(disk.page, &disk.bpf->bss->told.begun_background,
                   &correction)) {
        clear();
        return fail("%s is gone", disk.leaf.name);
    }
    if (correction.lost || correction.lost_foreground) {
        correct(correction);
    }
    return true;
}

/* LVM moves, paths change: what is observed must be what the disk is on. */
static bool same_leaf(void)
{
    char why[1024];
    Leaf leaf;

    if (!leaf_of(disk.groups.options->disk, &leaf)) {
        snprintf(why, sizeof(why), "%s", what());
        return fail("%s is gone, or not what it was: %s", disk.leaf.name, why);
    }
    if (leaf.hidden && !disk.leaf.hidden && is_short()) {
        return true;                    /* its number could not be read */
    }
    return (!strcmp(leaf.name, disk.leaf.name) &&
            leaf.major == disk.leaf.major && leaf.minor == disk.leaf.minor &&
            leaf.hidden == disk.leaf.hidden) ||
           fail("%s is on %s now (%d:%d), not on %s (%d:%d) any more: start the "
                "observer again", disk.groups.options->disk, leaf.name,
                leaf.major, leaf.minor, disk.leaf.name, disk.leaf.major,
                disk.leaf.minor);
}

static bool tick(void)
{
    if (disk.ticks++ % (1000 / TICK_MS) == 0) {
        if (!same_leaf()) {
            clear();
            return false;
        }
        /*
         * A device that came back under its number has another queue, and
         * the memory of the old one may be somebody else's.
         */
        set_order(&disk.bpf->bss->orders.queue, 0);
    }
    if (groups_update(&disk.groups)) {
        set_order(&disk.bpf->bss->orders.version,
                  disk.bpf->bss->orders.version + 1);
    }
    count_misses();
    return heal();
}

/* ---- loading */

static void set_constants(const Options *options)
{
    struct disk_bpf__rodata *constant = disk.bpf->rodata;

    constant->leaf_major = disk.leaf.major;
    constant->leaf_minor = disk.leaf.minor;
    constant->leaf_hidden = disk.leaf.hidden;
    memcpy((void *)constant->leaf_name, disk.leaf.name,
           sizeof(constant->leaf_name));
    disk.bpf->bss->orders.has_background = options->list ||
                                           options->backgrounds;
    disk.bpf->bss->orders.idle_class_is_background = options->idle_class;
}

/* Of each program there are two; the other one stays in the file. */
static void choose(bool raw)
{
    struct bpf_program *program;

    bpf_object__for_each_program(program, disk.bpf->obj) {
        if (strstr(bpf_program__name(program), raw ? "_typed" : "_raw")) {
            bpf_program__set_autoload(program, false);
        }
    }
}

static const char *remedy(int error)
{
    return error == EPERM ?
           "it needs root, or CAP_BPF and CAP_PERFMON" :
           "it needs Linux 6.1 or later with CONFIG_DEBUG_INFO_BTF and "
           "CONFIG_BPF_EVENTS; OBSERVER_DEBUG=1 shows what the kernel said";
}

/* The page's head before the programs run. */
static bool start(Source *source)
{
    int error = disk_bpf__load(disk.bpf);

    if (!error && !page_open(source, bpf_map__fd(disk.bpf->maps.page),
                             IDLETIME_OBSERVED_DISK, disk.leaf.name)) {
        return false;
    }
    error = error ?: disk_bpf__attach(disk.bpf);
    return !error || fail("the kernel does not take the programs: %s: %s",
                          strerror(-error), remedy(-error));
}

static bool load(const Options *options, bool raw, Source *source)
{
    disk.bpf = disk_bpf__open();
    if (!disk.bpf) {
        return fail("libbpf cannot read the programs: %s", strerror(errno));
    }
    set_constants(options);
    choose(raw);
    if (!start(source)) {
        disk_bpf__destroy(disk.bpf);
        return false;
    }
    return true;
}

static void begin_to_count(void)
{
    struct timespec pause = { .tv_nsec = SOON_NS };

    set_order(&disk.bpf->bss->orders.version, 1);
    groups_update(&disk.groups);
    set_order(&disk.bpf->bss->orders.epoch_ns, now_ns() + SOON_NS);
    nanosleep(&pause, NULL);
}

static void warn_of_absent(const Options *options)
{
    for (unsigned i = 0; i < options->backgrounds; i++) {
        if (!cgroup_resolve(options->background[i])) {
            warn("--background-cgroup %s is not there (yet): until it is, what "
                 "it does is foreground", options->background[i]);
        }
    }
}

static void close_disk(void)
{
    disk_bpf__destroy(disk.bpf);
}

bool disk_open(const Options *options, Source *source)
{
    if (!leaf_of(options->disk, &disk.leaf) || !heal_open(disk.leaf.name)) {
        return false;
    }
    warn_of_absent(options);
    disk.groups = (Groups) {
        .options = options, .resolve = cgroup_resolve, .check = cgroup_check,
        .put = put, .drop = drop, .member = disk.member,
        .most = OBSERVER_CGROUPS,
    };
    if ((options->raw || !load(options, false, source)) &&
        !load(options, true, source)) {
        return false;
    }
    disk.page = source->page;
    source->tick = tick;
    source->close = close_disk;
    begin_to_count();
    return true;
}
