/*
 * Idletime observer: the page that readers map, as the programs write it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef OBSERVER_PAGE_H
#define OBSERVER_PAGE_H

#include "kernel.h"
#include "share.h"
#include "idletime/arena/observed.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, IdletimeObserved);
} page SEC(".maps");

static __always_inline IdletimeObserved *observed(void)
{
    __u32 first = 0;

    return bpf_map_lookup_elem(&page, &first);
}

/* Before in_service falls: nobody may see it idle with an old time. */
static __always_inline void event(IdletimeObserved *o, __u64 now_ns)
{
    *(volatile int64_t *)&o->last_ns = now_ns;
}

static __always_inline void transition(IdletimeObserved *o, __u64 now_ns,
                                       bool busy)
{
    __u64 head = __sync_fetch_and_add(&o->ring_head, 1);

    *(volatile uint64_t *)&o->ring[head % IDLETIME_OBSERVED_RING] =
        now_ns << 1 | busy;
}

/* in_service, and all_in_service after it, as one word: one atomic add. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "which half of the word is in_service?"
#endif
#define OF_ALL          (1ULL << 32)
#define OF_FOREGROUND   (OF_ALL + 1)

static __always_inline uint64_t *both(IdletimeObserved *o)
{
    return (uint64_t *)&o->in_service;
}

/*
 * @made_ns: a request begins when it was made, or at the last event if that is
 * later: to read a clock here would cost more than all the rest.  As it is in
 * service from now on, nobody waits by this time; the end has a fresh one.
 */
static __always_inline void begin(IdletimeObserved *o, __u64 made_ns,
                                  __u64 bytes)
{
    bool first = (__u32)__sync_fetch_and_add(both(o), OF_FOREGROUND) == 0;
    __u64 last_ns = *(volatile int64_t *)&o->last_ns;
    __u64 begin_ns = made_ns > last_ns ? made_ns : last_ns;

    event(o, begin_ns);
    if (first) {
        transition(o, begin_ns, true);
    }
    __sync_fetch_and_add(&o->service_ns, -(int64_t)begin_ns);
    __sync_fetch_and_add(&o->started, 1);
    __sync_fetch_and_add(&o->bytes, bytes);
}

/* An end whose begin was not told must not wrap the numbers. */
static __always_inline void end(IdletimeObserved *o, __u64 now_ns)
{
    __u64 before;

    event(o, now_ns);
    before = __sync_fetch_and_add(both(o), -OF_FOREGROUND);
    if ((__s32)before <= 0) {
        __sync_fetch_and_add(both(o), OF_FOREGROUND);
        __sync_fetch_and_add(&o->unpaired, 1);
        return;
    }
    if ((__s64)before < (__s64)OF_ALL) {
        __sync_fetch_and_add(both(o), OF_ALL);
    }
    __sync_fetch_and_add(&o->service_ns, (int64_t)now_ns);
    if ((__u32)before == 1) {
        transition(o, now_ns, false);
    }
}

static __always_inline void begin_background(IdletimeObserved *o)
{
    __sync_fetch_and_add(both(o), OF_ALL);
}

static __always_inline void end_background(IdletimeObserved *o)
{
    if ((__s64)__sync_fetch_and_add(both(o), -OF_ALL) < (__s64)OF_ALL) {
        __sync_fetch_and_add(both(o), OF_ALL);
    }
}

static __always_inline __u32 at_most(__s32 there, __u32 wanted)
{
    return there < 0 ? 0 : (__u32)there < wanted ? (__u32)there : wanted;
}

/* At most what is there; how many of the foreground. */
static __always_inline __u32 take_back(IdletimeObserved *o, __u32 lost,
                                       __u32 lost_foreground)
{
    for (int i = 0; i < 100; i++) {
        __u64 now = *(volatile uint64_t *)both(o);
        __u32 foreground = at_most(now, lost_foreground);
        __u64 all = at_most(now >> 32, lost);

        if (__sync_val_compare_and_swap(both(o), now, now - foreground -
                                        all * OF_ALL) == now) {
            return foreground;
        }
    }
    return 0;
}

/* Only programs can write the page. */
SEC("syscall")
int correct(struct correction *correction)
{
    __u64 now_ns = bpf_ktime_get_ns();
    IdletimeObserved *o = observed();
    __u32 taken;

    if (!o) {
        return 0;
    }
    __sync_fetch_and_add(&o->missed, correction->missed);
    taken = take_back(o, correction->lost, correction->lost_foreground);
    if (taken) {
        __sync_fetch_and_add(&o->service_ns, (int64_t)(taken * now_ns));
        __sync_fetch_and_add(&o->healed, taken);
        if (!*(volatile uint32_t *)&o->in_service) {
            transition(o, now_ns, false);
        }
    }
    return 0;
}

#endif
