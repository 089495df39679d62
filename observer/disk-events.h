/*
 * Idletime observer: the three events of a disk's requests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Included twice by disk.bpf.c.  READ(pointer, field) reads a field: a plain
 * load where the kernel has the types of tracepoints, else a helper.  NAME(x) is
 * a name for each.
 *
 * How a request is told again at its end, without a table of requests: all
 * that is asked of it does not change between.
 *
 *   state            who ends without having been issued, and who is given
 *                    back to the queue unissued, is idle
 *   bytes            those without are not counted: the request of a flush,
 *                    which is never issued itself, and the second end of a
 *                    write that a flush follows
 *   start_time_ns    when it was made: before we came, or before its cgroup
 *                    became background?
 */

/*
 * Is its cgroup, or one above it, background at that time?  Computed: seldom,
 * so out of the way.  @b: when else it is, if that is one time; else when it
 * never is.
 */
static __noinline bool NAME(search)(struct cgroup_subsys_state *css,
                                    __u64 made_ns, struct background *b)
{
    bool within = false, apart = false;

    *b = (struct background) { .from_ns = FOREVER };
    for (int level = 0; level < DEEPEST && css; level++) {
        struct cgroup *cgroup = READ(css, cgroup);
        struct kernfs_node *kn = READ(cgroup, kn);
        __u64 id = READ(kn, id);
        struct background *found = bpf_map_lookup_elem(&background, &id);

        if (found) {
            within |= is_within(found, made_ns);
            apart |= b->until_ns && (found->from_ns > b->until_ns ||
                                     found->until_ns < b->from_ns);
            b->from_ns = b->from_ns < found->from_ns ? b->from_ns :
                                                       found->from_ns;
            b->until_ns = b->until_ns > found->until_ns ? b->until_ns :
                                                          found->until_ns;
        }
        css = READ(css, parent);
    }
    if (apart) {
        *b = (struct background) { .until_ns = 0 };
    }
    return within;
}

/* The same, from the cache where it knows. */
static __always_inline bool
NAME(in_background)(struct cgroup_subsys_state *css, __u64 made_ns)
{
    __u64 version = *(volatile __u64 *)&orders.version;
    __u64 serial = READ(css, serial_nr);
    __u32 id = READ(css, id);
    struct verdict *v = bpf_map_lookup_elem(&verdicts, &id);
    struct background b;
    bool within;

    if (v && v->serial == serial && v->version == version) {
        return is_within(&v->background, made_ns);
    }
    within = NAME(search)(css, made_ns, &b);
    if (v && (b.from_ns || b.until_ns)) {
        remember(v, &b, serial, version);
    }
    return within;
}

static __always_inline bool NAME(is_foreground)(struct bio *bio, __u64 made_ns)
{
    struct blkcg_gq *blkg;
    struct blkcg *blkcg;

    if (!bio) {
        return true;
    }
    if (orders.idle_class_is_background && READ(bio, bi_ioprio) >> 13 == 3) {
        return false;
    }
    if (!orders.has_background || !(blkg = READ(bio, bi_blkg)) ||
        !(blkcg = READ(blkg, blkcg))) {
        return true;
    }
    return !NAME(in_background)(&blkcg->css, made_ns);
}

static __noinline bool NAME(is_leaf)(struct request_queue *q)
{
    struct gendisk *disk = READ(q, disk);

    if (leaf_hidden) {
        return disk && has_name(disk);
    }
    return disk && READ(disk, first_minor) == leaf_minor &&
           READ(disk, major) == leaf_major;
}

/* By its queue, once that is known; the loader has it looked for again. */
static __always_inline bool NAME(is_ours)(struct request *rq)
{
    __u64 known = *(volatile __u64 *)&orders.queue;
    struct request_queue *q = READ(rq, q);

    if (known) {
        return (__u64)q == known;
    }
    if (!NAME(is_leaf)(q)) {
        return false;
    }
    *(volatile __u64 *)&orders.queue = (__u64)q;
    return true;
}

#define IS_PASSTHROUGH(rq) ((READ(rq, cmd_flags) & 0xff) >= OP_PASSTHROUGH)

/* Whose request it is; false: nobody's whom we were told of. */
static __always_inline bool NAME(classify)(struct request *rq, struct bio *bio,
                                           struct seen *e)
{
    e->page = observed();
    e->made_ns = READ(rq, start_time_ns);
    if (!e->made_ns) {
        e->made_ns = bpf_ktime_get_ns();    /* no iostats: nobody knows */
    }
    if (!e->page || !is_told(e->made_ns)) {
        return false;
    }
    e->foreground = NAME(is_foreground)(bio, e->made_ns);
    return true;
}

static __always_inline int NAME(on_issue)(struct request *rq)
{
    struct seen e;
    bool passthrough;
    __u64 bytes;

    if (!NAME(is_ours)(rq)) {
        return 0;
    }
    bytes = READ(rq, __data_len);
    passthrough = IS_PASSTHROUGH(rq);
    if ((!bytes && !passthrough) || !NAME(classify)(rq, READ(rq, bio), &e)) {
        return 0;
    }
    if (passthrough) {
        if (e.foreground) {
            event(e.page, bpf_ktime_get_ns());
            __sync_fetch_and_add(&e.page->started, 1);
        }
    } else if (e.foreground) {
        begin(e.page, e.made_ns, bytes);
    } else {
        begin_background(e.page);
        __sync_fetch_and_add(&told.begun_background, 1);
    }
    return 0;
}

static __always_inline int NAME(on_complete)(struct request *rq,
                                             unsigned int nr_bytes)
{
    struct seen e;
    struct bio *bio;
    __u64 bytes;

    if (!NAME(is_ours)(rq)) {
        return 0;
    }
    bytes = READ(rq, __data_len);
    bio = READ(rq, bio);
    /*
     * Without either it is a flush's own request, or one whose bios NVMe moved
     * to another path: whose that was is not known any more; it is healed.
     */
    if (nr_bytes < bytes || (!bytes && !bio) || !NAME(classify)(rq, bio, &e)) {
        return 0;
    }
    if (!bytes || IS_PASSTHROUGH(rq)) {
        if (e.foreground) {
            event(e.page, bpf_ktime_get_ns());
        }
    } else if (READ(rq, state) != MQ_RQ_IDLE) {
        end_of(&e);
    }
    return 0;
}

static __always_inline int NAME(on_requeue)(struct request *rq)
{
    struct seen e;

    if (!NAME(is_ours)(rq) || READ(rq, state) == MQ_RQ_IDLE ||
        !READ(rq, __data_len) || IS_PASSTHROUGH(rq) ||
        !NAME(classify)(rq, READ(rq, bio), &e)) {
        return 0;
    }
    end_of(&e);
    if (e.foreground) {
        __sync_fetch_and_add(&e.page->requeued, 1);
    }
    return 0;
}

#undef IS_PASSTHROUGH
#undef READ
#undef NAME
