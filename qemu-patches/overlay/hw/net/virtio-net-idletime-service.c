/*
 * virtio-net: background packets in service, that is in the host's queues.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A write to the backend returns when the host's queue has the packet, not
 * when the link has sent it.  Until it has, the packet's lease is kept and
 * nothing else of the background starts.  Who tells:
 *
 *   send buffer  A tap does, by its send buffer (net/idletime-tap.c).
 *   clock        Where the tap's buffer holds nothing (below), and for other
 *                backends where rate-bps is set: the link clock in the arena,
 *                by the rate and the bytes that all background processes gave;
 *                and nothing starts before those of the foreground are sent.
 *   completion   Else nobody: what was written counts as gone.
 *
 * WHEN A SEND BUFFER HOLDS NOTHING
 *
 * Some things on a packet's way take it out of the send buffer before it has
 * left: br_netfilter (bridge-nf-call-iptables=1), another guest's tap, a host
 * that is a virtual machine with an old driver.  We see it in this: the tap is
 * writable at once after each packet, for more bytes than any link takes at
 * once.  Then the clock takes over, with a warning.  We go on looking: a
 * packet that the buffer holds is the proof that it works.
 *
 * The send buffer is the tap's, not a queue's: each look at a queue binds it to
 * what that look wants to know.  On a device that sends foreground too, it is
 * bound only while background is in service, and freed before each foreground
 * packet; after that the tap is writable when both have left, so the background
 * waits for its own foreground as well.
 */
#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "virtio-net-idletime-impl.h"

/*
 * A packet that is in service for so long meets a stopped link, or a send
 * buffer that is too small: 1 s is 100 times a queue of 1,000 packets at
 * 1 Gbit/s.
 */
#define STALL_NS            (1000 * 1000 * 1000LL)

/*
 * What a link may take at once: the burst of a token bucket.  They are made
 * for one or two timer ticks (10 ms at 100 Hz), and of 64 KiB at least; where
 * the rate is not known, for 1 Gbit/s.
 */
#define BURST_BYTES         (64 * 1024)
#define BURST_PER_S         100
#define BURST_UNKNOWN       (1024 * 1024)
/* Where the rate is not known a slow link is assumed: background pays. */
#define RATE_UNKNOWN_BPS    10000000

static unsigned packet_bound(const VirtIONetIdletime *it)
{
    return MIN(idletime_resource_get(it->dev.res, IDLETIME_MAX_INFLIGHT),
               IDLETIME_TOKENS);
}

static uint64_t rate_bps(const VirtIONetIdletime *it)
{
    return idletime_resource_get(it->dev.res, IDLETIME_RATE_BPS);
}

bool idletime_net_room(IdletimeNetQueue *nq)
{
    return nq->in_service < packet_bound(nq->owner);
}

/* The @count oldest have left. */
static void end_oldest(IdletimeNetQueue *nq, unsigned count)
{
    VirtIONetIdletime *it = nq->owner;

    for (unsigned i = 0; i < count; i++) {
        idletime_gate_done(it->gate, &nq->service[i],
                           idletime_net_anything_waits(it));
    }
    nq->in_service -= count;
    memmove(nq->service, nq->service + count,
            nq->in_service * sizeof(nq->service[0]));
    memmove(nq->free_ns, nq->free_ns + count,
            nq->in_service * sizeof(nq->free_ns[0]));
}

/* ---- by the send buffer */

static uint64_t burst_bytes(const VirtIONetIdletime *it)
{
    uint64_t rate = rate_bps(it);

    return rate ? BURST_BYTES + rate / 8 / BURST_PER_S : BURST_UNKNOWN;
}

static void warn_once(const IdletimeNetQueue *nq)
{
    const VirtIONetIdletime *it = nq->owner;
    NetClientState *peer = it->n->nic_conf.peers.ncs[nq->index];
    uint64_t rate = rate_bps(it);

    warn_report_once("netdev '%s': packets leave the tap's send buffer before "
                     "the link has sent them, so background packets of "
                     "idletime-resource '%s' go by a clock of %" PRIu64
                     " bit/s%s; is br_netfilter active? sysctl "
                     "net.bridge.bridge-nf-call-iptables=0 (and -ip6tables, "
                     "-arptables) helps", peer ? peer->name : "",
                     idletime_resource_id(it->dev.res),
                     rate ?: RATE_UNKNOWN_BPS,
                     rate ? "" : ", as its property rate-bps is not set");
}

static bool is_full(const IdletimeNetQueue *nq)
{
    return nq->in_service >= packet_bound(nq->owner);
}

/* It has taken more than any link takes at once, and held nothing. */
static bool holds_nothing(const IdletimeNetQueue *nq)
{
    return nq->unheld_bytes > burst_bytes(nq->owner);
}

/*
 * What the tap tells is whether one of the full number has left, or whether
 * all have; the send buffer is bound to what we want to know.
 */
static void end_what_left(IdletimeNetQueue *nq, uint64_t bytes)
{
    bool full = is_full(nq), by_clock = holds_nothing(nq);

    idletime_tap_bind(&nq->owner->tap, full ? packet_bound(nq->owner) : 1);
    if (!idletime_tap_drained(&nq->tap)) {
        nq->unheld_bytes = 0;
        return;
    }
    nq->unheld_bytes += bytes;
    if (by_clock) {
        return;
    }
    if (holds_nothing(nq)) {
        warn_once(nq);
    } else {
        end_oldest(nq, full ? 1 : nq->in_service);
    }
}

/* ---- by the clock */

static void end_by_clock(IdletimeNetQueue *nq)
{
    int64_t now_ns = idletime_now_ns();
    unsigned count = 0;

    while (count < nq->in_service && nq->free_ns[count] <= now_ns) {
        count++;
    }
    end_oldest(nq, count);
}

static void take_link(IdletimeNetQueue *nq, uint64_t bytes)
{
    VirtIONetIdletime *it = nq->owner;

    nq->free_ns[nq->in_service - 1] =
        idletime_uplink_clock_take(&it->gate->scan,
                                   rate_bps(it) ?: RATE_UNKNOWN_BPS,
                                   bytes + IDLETIME_FRAME_EXTRA,
                                   idletime_now_ns());
}

/* ---- both */

static IdletimeServiceEnd service_of(const IdletimeNetQueue *nq)
{
    if (idletime_tap_is_open(&nq->tap)) {
        return holds_nothing(nq) ? IDLETIME_SERVICE_END_CLOCK :
                                   IDLETIME_SERVICE_END_SEND_BUFFER;
    }
    return rate_bps(nq->owner) ? IDLETIME_SERVICE_END_CLOCK :
                                 IDLETIME_SERVICE_END_COMPLETION;
}

/* No background of it is in service: only the foreground may be waited for. */
static void watch_link(IdletimeNetQueue *nq)
{
    if (nq->busy_until_ns) {
        timer_mod(nq->service_timer, nq->busy_until_ns);
    } else {
        timer_del(nq->service_timer);
    }
}

/* Be called when the next one has left. */
static void watch(IdletimeNetQueue *nq)
{
    IdletimeServiceEnd service = service_of(nq);

    nq->owner->dev.service = service;
    if (!nq->in_service) {
        idletime_tap_unwatch(&nq->tap);
        watch_link(nq);
    } else if (service == IDLETIME_SERVICE_END_CLOCK) {
        idletime_tap_unwatch(&nq->tap);
        timer_mod(nq->service_timer, nq->free_ns[0]);
    } else {
        idletime_tap_watch(&nq->tap);
        timer_mod(nq->service_timer, idletime_now_ns() + STALL_NS);
    }
}

bool idletime_net_link_busy(IdletimeNetQueue *nq, int64_t due_ns)
{
    VirtIONetIdletime *it = nq->owner;
    int64_t now_ns = idletime_now_ns();
    int64_t free_ns;

    nq->busy_until_ns = 0;
    if (service_of(nq) != IDLETIME_SERVICE_END_CLOCK || !rate_bps(it)) {
        return false;
    }
    idletime_guard_thread();
    free_ns = idletime_uplink_clock_foreground(&it->uplink, &it->gate->scan,
                                               rate_bps(it), now_ns);
    if (free_ns <= now_ns || due_ns <= now_ns) {
        return false;
    }
    nq->busy_until_ns = MIN(free_ns, due_ns);
    watch(nq);
    return true;
}

void idletime_net_prepare(IdletimeNetQueue *nq)
{
    if (nq->in_service && idletime_tap_is_open(&nq->tap)) {
        idletime_tap_bind(&nq->owner->tap, packet_bound(nq->owner));
    }
}

static void settle(IdletimeNetQueue *nq, uint64_t bytes)
{
    if (idletime_tap_is_open(&nq->tap)) {
        end_what_left(nq, bytes);
    }
    if (service_of(nq) == IDLETIME_SERVICE_END_CLOCK) {
        end_by_clock(nq);
    } else if (service_of(nq) == IDLETIME_SERVICE_END_COMPLETION) {
        end_oldest(nq, nq->in_service);
    }
    watch(nq);
}

void idletime_net_settle(IdletimeNetQueue *nq)
{
    if (nq->in_service && !is_full(nq)) {
        settle(nq, 0);
    }
}

void idletime_net_serve(IdletimeNetQueue *nq)
{
    uint64_t bytes = nq->leased_bytes;

    nq->leased_bytes = 0;
    nq->free_ns[nq->in_service] = 0;
    nq->service[nq->in_service++] = nq->lease;
    if (service_of(nq) == IDLETIME_SERVICE_END_CLOCK) {
        take_link(nq, bytes);
    }
    if (is_full(nq)) {
        settle(nq, bytes);
    }
}

void idletime_net_drained(void *opaque)
{
    IdletimeNetQueue *nq = opaque;

    /* It may have been freed for foreground meanwhile: bind and look. */
    settle(nq, 0);
    if (idletime_net_waits(nq) && !is_full(nq)) {
        /* The next one is written, or idletime_net_settle() comes. */
        idletime_tap_unwatch(&nq->tap);
    }
    idletime_gate_pump(nq->owner->gate);
}

void idletime_net_service_timer(void *opaque)
{
    IdletimeNetQueue *nq = opaque;

    assert(bql_locked());
    nq->busy_until_ns = 0;
    if (service_of(nq) == IDLETIME_SERVICE_END_SEND_BUFFER) {
        idletime_tap_stalled(&nq->owner->tap);
    }
    settle(nq, 0);
    idletime_gate_pump(nq->owner->gate);
}

void idletime_net_leave(IdletimeNetQueue *nq)
{
    end_oldest(nq, nq->in_service);
    nq->busy_until_ns = 0;
    idletime_tap_unwatch(&nq->tap);
    timer_del(nq->service_timer);
}

void idletime_net_close_tap(VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        idletime_net_leave(&it->queue[i]);
        idletime_tap_queue_close(&it->queue[i].tap);
    }
    idletime_tap_close(&it->tap);
}
