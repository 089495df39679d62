/*
 * Idletime observer: sees the foreground of an uplink in the kernel.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * At the uplink's egress, before its queue: each packet is foreground that did
 * not come in on the interface of a background VM, and that the host itself
 * has not marked as lower effort (RFC 8622), as a migration's are that QEMU
 * sends when the uplink is idle.  As on the foreground board a packet is an
 * event: when it will have left is not known.
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

/* DSCP 1 of IPv4 or IPv6; the two bits below it are ECN's. */
static __always_inline bool is_lower_effort(struct __sk_buff *skb)
{
    __u8 begin[2], class;

    if (bpf_skb_load_bytes_relative(skb, 0, begin, sizeof(begin),
                                    BPF_HDR_START_NET)) {
        return false;
    }
    class = begin[0] >> 4 == 4 ? begin[1] :
            begin[0] >> 4 == 6 ? begin[0] << 4 | begin[1] >> 4 : 0;
    return class >> 2 == 1;
}

SEC("tc")
int egress(struct __sk_buff *skb)
{
    __u32 from = skb->ingress_ifindex;  /* 0: the host's own */
    IdletimeObserved *o;

    if (from && bpf_map_lookup_elem(&background, &from)) {
        return PASS_ON;
    }
    if (!from && is_lower_effort(skb)) {
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
