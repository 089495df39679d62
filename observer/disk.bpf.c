/*
 * Idletime observer: sees the foreground of a disk in the kernel.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Foreground is every request that is not known as background, by the cgroup
 * of its first bio: never by the process at hand, since ends come in
 * interrupts.  A request has bios of one cgroup and one priority only.
 *
 *   reads, writes, discards    in service from issue to the last byte's end
 *   requests passed through    (SG_IO, NVMe commands) events at both ends: the
 *                              kernel's own count, by which errors heal, has
 *                              not got them
 *   flushes                    events at their end: the device's flush serves
 *                              many at once and is nobody's
 *
 * No lock, no table of requests, no loop of unknown length.
 */
#include "page.h"
#include "share.h"

#define FOREVER         (~0ULL)
/* Cgroups above one that are looked at; systemd's are 4 to 6 deep. */
#define DEEPEST         16
/* REQ_OP_DRV_IN, the first of the two. */
#define OP_PASSTHROUGH  34
/* Cgroups with a place in the cache; others are searched each time. */
#define VERDICTS        4096

const volatile int leaf_major;
const volatile int leaf_minor;
const volatile bool leaf_hidden;    /* has no number: known by its name */
const volatile char leaf_name[32];

struct orders orders;
struct told told;

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, OBSERVER_CGROUPS);
    __type(key, __u64);
    __type(value, struct background);
} background SEC(".maps");

/* By the cgroup's number, which is its alone while one of its bios lives. */
struct verdict {
    struct background background;
    __u64 version;
    __u64 serial;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, VERDICTS);
    __type(key, __u32);
    __type(value, struct verdict);
} verdicts SEC(".maps");

/*
 * Who reads beside us finds the serial only when the times are there: an
 * exchange is a full barrier, which a store of BPF is not.
 */
static __always_inline void remember(struct verdict *v,
                                     const struct background *b,
                                     __u64 serial, __u64 version)
{
    volatile struct verdict *to = v;

    __sync_lock_test_and_set(&v->serial, 0);
    to->background.from_ns = b->from_ns;
    to->background.until_ns = b->until_ns;
    to->version = version;
    __sync_lock_test_and_set(&v->serial, serial);
}

static __always_inline bool has_name(struct gendisk *disk)
{
    char name[32];

    bpf_core_read_str(name, sizeof(name), &disk->disk_name);
    for (int i = 0; i < (int)sizeof(name); i++) {
        if (name[i] != leaf_name[i]) {
            return false;
        }
        if (!name[i]) {
            break;
        }
    }
    return true;
}

static __always_inline bool is_within(const struct background *b,
                                      __u64 made_ns)
{
    return made_ns >= b->from_ns && made_ns < b->until_ns;
}

/* Was it made after all programs were there? */
static __always_inline bool is_told(__u64 made_ns)
{
    __u64 epoch_ns = *(volatile __u64 *)&orders.epoch_ns;

    return epoch_ns && made_ns >= epoch_ns;
}

/* An event of a request that counts. */
struct seen {
    IdletimeObserved *page;
    __u64 made_ns;
    bool foreground;
};

static __always_inline void end_of(const struct seen *e)
{
    if (e->foreground) {
        end(e->page, bpf_ktime_get_ns());
    } else {
        end_background(e->page);
    }
}

#define READ(pointer, field) ((pointer)->field)
#define NAME(name) name##_typed
#include "disk-events.h"

#define READ(pointer, field) BPF_CORE_READ(pointer, field)
#define NAME(name) name##_raw
#include "disk-events.h"

SEC("tp_btf/block_rq_issue")
int BPF_PROG(issue_typed, struct request *rq)
{
    return on_issue_typed(rq);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(complete_typed, struct request *rq, int error,
             unsigned int nr_bytes)
{
    return on_complete_typed(rq, nr_bytes);
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(requeue_typed, struct request *rq)
{
    return on_requeue_typed(rq);
}

SEC("raw_tp/block_rq_issue")
int BPF_PROG(issue_raw, struct request *rq)
{
    return on_issue_raw(rq);
}

SEC("raw_tp/block_rq_complete")
int BPF_PROG(complete_raw, struct request *rq, int error,
             unsigned int nr_bytes)
{
    return on_complete_raw(rq, nr_bytes);
}

SEC("raw_tp/block_rq_requeue")
int BPF_PROG(requeue_raw, struct request *rq)
{
    return on_requeue_raw(rq);
}

char licence[] SEC("license") = "GPL";
