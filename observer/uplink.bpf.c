/*
 * Idletime observer: sees the foreground of an uplink in the kernel.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * At the uplink's egress, before its queue: each packet is foreground that did
 * not come in on the interface of a background VM.  As on the foreground
 * board a packet is an event: when it will have left is not known.
 */
#include "page.h"

/* TCX_NEXT and TC_ACT_UNSPEC: whoever is attached beside us decides. */
#define PASS_ON -1

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, OBSERVER_INTERFACES);
    __type(key, __u32);
    __type(value, __u8);
} background SEC(".maps");

SEC("tc")
int egress(struct __sk_buff *skb)
{
    __u32 from = skb->ingress_ifindex;  /* 0: the host's own */
    IdletimeObserved *o;

    if (from && bpf_map_lookup_elem(&background, &from)) {
        return PASS_ON;
    }
    o = observed();
    if (o) {
        event(o, bpf_ktime_get_ns());
        __sync_fetch_and_add(&o->started, 1);
        /* A large packet is counted as the frames that it will be. */
        __sync_fetch_and_add(&o->bytes, skb->wire_len);
    }
    return PASS_ON;
}

char licence[] SEC("license") = "GPL";
