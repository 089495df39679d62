/*
 * Idletime observer: the few fields of the kernel's structures that are read.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Where they are in the kernel at hand, libbpf looks up when it loads the
 * programs (CO-RE), so what stands between them does not matter here.
 */
#ifndef OBSERVER_KERNEL_H
#define OBSERVER_KERNEL_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s64 int64_t;

#pragma clang attribute push(__attribute__((preserve_access_index)), \
                             apply_to = record)

struct kernfs_node {
    __u64 id;
};

struct cgroup {
    struct kernfs_node *kn;
};

struct cgroup_subsys_state {
    struct cgroup *cgroup;
    int id;
    __u64 serial_nr;
    struct cgroup_subsys_state *parent;
};

struct blkcg {
    struct cgroup_subsys_state css;
};

struct blkcg_gq {
    struct blkcg *blkcg;
};

struct bio {
    short unsigned int bi_ioprio;
    struct blkcg_gq *bi_blkg;
};

struct gendisk {
    int major;
    int first_minor;
    char disk_name[32];
};

struct request_queue {
    struct gendisk *disk;
};

enum mq_rq_state {
    MQ_RQ_IDLE = 0,
};

struct request {
    struct request_queue *q;
    unsigned int cmd_flags;
    unsigned int __data_len;
    struct bio *bio;
    __u64 start_time_ns;
    enum mq_rq_state state;
};

struct sk_buff {
    int skb_iif;
};

#pragma clang attribute pop

#endif
