/*
 * Idletime observer: loads the program of an uplink.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "observer.h"

#include <net/if.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "share.h"
#include "uplink.skel.h"

/* Of Linux 6.6; the headers of Debian 12 do not have them. */
#define TCX_EGRESS  47
#define TCX_BEFORE  (1U << 3)
/*
 * Of our filter where there is no tcx, below it a number of the arena: the next
 * observer of that replaces it, and those of others go beside.
 */
#define HANDLE      0x1d1e0000
/* The first: one before us that accepts packets would end the chain. */
#define PRIORITY    1

static struct {
    struct uplink_bpf *bpf;
    const char *name;
    unsigned index;
    int link;                   /* -1: a filter, which does not end with us */
    uint32_t handle;            /* of the filter */
    uint32_t program;           /* its number; 0: not attached */
    Groups groups;
    Member member[OBSERVER_INTERFACES];
} uplink = { .link = -1 };

static uint64_t resolve(const char *name)
{
    return if_nametoindex(name);
}

static bool drop(void *opaque, uint64_t id)
{
    uint32_t index = id;

    return bpf_map_delete_elem(bpf_map__fd(uplink.bpf->maps.background),
                               &index) == 0;
}

/* A packet is judged once: no times are needed. */
static bool put(void *opaque, uint64_t id, uint64_t from_ns, uint64_t until_ns)
{
    uint32_t index = id;
    uint8_t one = 1;

    if (until_ns != UINT64_MAX) {
        return drop(opaque, id);
    }
    return bpf_map_update_elem(bpf_map__fd(uplink.bpf->maps.background),
                               &index, &one, BPF_ANY) == 0;
}

/* Is the filter there, and ours?  What cannot be found out, is. */
static bool is_mine(void)
{
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = uplink.index,
                .attach_point = BPF_TC_EGRESS);
    LIBBPF_OPTS(bpf_tc_opts, filter, .handle = uplink.handle,
                .priority = PRIORITY);
    int error = bpf_tc_query(&hook, &filter);

    /* Without the qdisc: EINVAL. */
    return error ? error != -ENOENT && error != -EINVAL :
                   filter.prog_id == uplink.program;
}

static bool tick(void)
{
    unsigned index;

    groups_update(&uplink.groups);
    index = if_nametoindex(uplink.name);
    if (index != uplink.index) {
        return (!index && is_short()) ||
               fail("the interface %s is gone", uplink.name);
    }
    return uplink.link >= 0 || is_mine() ||
           fail("%s: somebody has removed the filter, or put another in its "
                "place", uplink.name);
}

static bool attach_filter(int program)
{
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = uplink.index,
                .attach_point = BPF_TC_EGRESS);
    LIBBPF_OPTS(bpf_tc_opts, filter, .handle = uplink.handle,
                .priority = PRIORITY, .prog_fd = program,
                .flags = BPF_TC_F_REPLACE);
    int error = bpf_tc_hook_create(&hook);

    if (error && error != -EEXIST) {
        return fail("%s takes neither a tcx program (Linux 6.6) nor a clsact "
                    "qdisc: %s", uplink.name, strerror(-error));
    }
    error = bpf_tc_attach(&hook, &filter);
    uplink.program = error ? 0 : filter.prog_id;
    return !error || fail("%s: the filter cannot be attached as the first of "
                          "its egress: %s: 'tc filter show dev %s egress' shows "
                          "which has priority %d; give it another", uplink.name,
                          strerror(-error), uplink.name, PRIORITY);
}

static void close_uplink(void)
{
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = uplink.index,
                .attach_point = BPF_TC_EGRESS);
    LIBBPF_OPTS(bpf_tc_opts, filter, .handle = uplink.handle,
                .priority = PRIORITY);

    if (uplink.program && is_mine()) {
        bpf_tc_detach(&hook, &filter);
    }
    uplink_bpf__destroy(uplink.bpf);
}

/* The first of its programs: one before us that accepts would end the chain. */
static int attach_first(int program)
{
    LIBBPF_OPTS(bpf_link_create_opts, first, .flags = TCX_BEFORE);

    return bpf_link_create(program, uplink.index, TCX_EGRESS, &first);
}

/* djb2, by D. J. Bernstein. */
static uint16_t number_of(const char *arena)
{
    uint32_t hash = 5381;

    for (; *arena; arena++) {
        hash = hash * 33 + (uint8_t)*arena;
    }
    return hash ^ hash >> 16;
}

static bool start(const Options *options, Source *source)
{
    int program = bpf_program__fd(uplink.bpf->progs.egress);
    char *arena = realpath(options->arena, NULL);

    uplink.handle = HANDLE | number_of(arena ?: options->arena);
    free(arena);
    uplink.link = options->raw ? -1 : attach_first(program);
    source->net_admin = uplink.link < 0;
    return uplink.link >= 0 || attach_filter(program);
}

bool uplink_open(const Options *options, Source *source)
{
    int error;

    uplink.name = options->uplink;
    uplink.index = if_nametoindex(options->uplink);
    if (!uplink.index) {
        return fail("--uplink %s: there is no such interface here; "
                    "'ip link' lists them", options->uplink);
    }
    uplink.bpf = uplink_bpf__open();
    error = uplink.bpf ? uplink_bpf__load(uplink.bpf) : -errno;
    if (error) {
        return fail("the kernel does not take the program: %s: it needs root, "
                    "or CAP_BPF and CAP_NET_ADMIN, and Linux 6.1 or later",
                    strerror(-error));
    }
    source->close = close_uplink;
    if (!page_open(source, bpf_map__fd(uplink.bpf->maps.page),
                   IDLETIME_OBSERVED_UPLINK, options->uplink)) {
        return false;
    }
    uplink.groups = (Groups) {
        .options = options, .resolve = resolve, .put = put, .drop = drop,
        .member = uplink.member, .most = OBSERVER_INTERFACES,
    };
    groups_update(&uplink.groups);
    source->start = start;
    source->tick = tick;
    return true;
}
