/*
 * virtio-net: what a transmit queue waits for.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *                a background packet              the gate says no,
 *                is first in line                 or the link is busy
 *        IDLE ----------------------> ASKING ----------------------> HELD
 *        | ^                           |  ^                           | |
 *        | |    it leaves, and none    |  |   the gate, the tap or    | |
 *        | +------- is behind it ------+  +--- a timer calls ---------+ |
 *        | |                                                            |
 *        | +----- it was dropped, or its queue is foreground now -------+
 *        |
 *        +--> PAUSED: the VM is stopped, the guest turned the queue off, or
 *             the link is down; from any state, and back to IDLE
 *
 * The first in line is the first packet of the list or, where that is empty,
 * of the ring.  A queue asks in ASKING only; each "no" has somebody who calls:
 *
 *   the gate says no               its timer and its waker
 *   as many as may are in service  the tap, or the service timer
 *   the link sends foreground      the service timer
 *   another queue waits longer     that one, when it moves
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "virtio-net-idletime-impl.h"

/* An event that does not matter in a state is 0 here: the state stays. */
#define TO(state) (IDLETIME_NET_ ## state + 1)

static const uint8_t next_state[IDLETIME_NET_STATE__MAX]
                               [IDLETIME_NET_EVENT__MAX] = {
    [IDLETIME_NET_IDLE] = {
        [IDLETIME_NET_FIRST] = TO(ASKING),
        [IDLETIME_NET_PAUSE] = TO(PAUSED),
    },
    [IDLETIME_NET_ASKING] = {
        [IDLETIME_NET_REFUSED] = TO(HELD),
        [IDLETIME_NET_NONE] = TO(IDLE),
        [IDLETIME_NET_PAUSE] = TO(PAUSED),
        [IDLETIME_NET_RESET] = TO(IDLE),
    },
    [IDLETIME_NET_HELD] = {
        [IDLETIME_NET_CALLED] = TO(ASKING),
        [IDLETIME_NET_NONE] = TO(IDLE),
        [IDLETIME_NET_PAUSE] = TO(PAUSED),
        [IDLETIME_NET_RESET] = TO(IDLE),
    },
    [IDLETIME_NET_PAUSED] = {
        [IDLETIME_NET_RESUME] = TO(IDLE),
        [IDLETIME_NET_RESET] = TO(IDLE),
    },
};

bool idletime_net_anything_waits(const VirtIONetIdletime *it)
{
    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        if (idletime_net_waits(&it->queue[i])) {
            return true;
        }
    }
    return false;
}

bool idletime_net_is_first(const IdletimeNetQueue *nq)
{
    const VirtIONetIdletime *it = nq->owner;

    for (unsigned i = 0; i < it->dev.num_queues; i++) {
        if (idletime_net_waits(&it->queue[i]) &&
            it->queue[i].since_ns < nq->since_ns) {
            return false;
        }
    }
    return true;
}

/* ---- the books show what is on lists, and the first one of a ring */

static unsigned held_now(const IdletimeNetQueue *nq)
{
    return MAX(nq->num_held, idletime_net_waits(nq));
}

static void note_held(const IdletimeNetQueue *nq, unsigned before)
{
    idletime_stat_add(&nq->owner->gate->stats.held,
                      (int64_t)held_now(nq) - before);
}

void idletime_net_set_num_held(IdletimeNetQueue *nq, unsigned num_held)
{
    unsigned before = held_now(nq);

    nq->num_held = num_held;
    note_held(nq, before);
}

/* ---- the machine */

/* The first in line of this queue is another one, or none, from now on. */
static void first_changed(IdletimeNetQueue *nq)
{
    if (!idletime_net_anything_waits(nq->owner)) {
        idletime_gate_rest(nq->owner->gate);
    } else if (nq->owner->dev.num_queues > 1) {
        /* Another queue may be first now. */
        idletime_gate_kick(nq->owner->gate);
    }
}

void idletime_net_move(IdletimeNetQueue *nq, IdletimeNetEvent event)
{
    unsigned before = held_now(nq);
    bool waited = idletime_net_waits(nq);
    uint8_t next = next_state[nq->state][event];

    assert(bql_locked());
    if (next) {
        nq->state = next - 1;
        note_held(nq, before);
        if (waited && !idletime_net_waits(nq)) {
            first_changed(nq);
        }
    }
}

void idletime_net_first(IdletimeNetQueue *nq, int64_t since_ns)
{
    bool waited = idletime_net_waits(nq);

    if (waited && nq->since_ns == since_ns) {
        return;
    }
    nq->since_ns = since_ns;
    idletime_net_move(nq, IDLETIME_NET_FIRST);
    if (waited) {
        first_changed(nq);
    }
}
