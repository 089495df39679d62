/*
 * Idletime hold: a device that holds requests is stopped, drained, and served
 * by other threads.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context: BQL, unless said otherwise.
 */
#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "hold-impl.h"

/* ---- stop and cont */

static void each_part(IdletimeHolder *hold, void (*fn)(void *part))
{
    for (unsigned i = 0; i < hold->dev.num_gates; i++) {
        idletime_gate_run(hold->part[i].gate, fn, &hold->part[i]);
    }
}

/* Context: the part's thread. */
static void part_park(void *opaque)
{
    IdletimeHoldPart *part = opaque;
    IdletimeReq *req;
    IdletimeAside aside;

    idletime_hold_assert_thread(part);
    while ((req = QTAILQ_FIRST(&part->held))) {
        req->waited_ns = idletime_now_ns() - req->held_ns;
        idletime_hold_list_remove(part, req);
        aside = idletime_hold_set_aside(part->owner, req);
        assert(aside != IDLETIME_ASIDE_NO);
        if (aside == IDLETIME_ASIDE_START) {
            idletime_hold_expel(part, req, IDLETIME_PROMOTION_STOP);
        }
    }
    /* What was expedited waits like all others when it is restarted. */
    part->expedite_number = 0;
    idletime_gate_rest(part->gate);
    idletime_hold_leave(part);
}

static void set_parked(IdletimeHolder *hold, bool parked)
{
    QEMU_LOCK_GUARD(hold->park_lock);
    qatomic_set(&hold->parked, parked);
}

void idletime_hold_park(IdletimeHolder *hold)
{
    GLOBAL_STATE_CODE();
    set_parked(hold, true);
    each_part(hold, part_park);
}

void idletime_hold_unpark(IdletimeHolder *hold)
{
    GLOBAL_STATE_CODE();
    set_parked(hold, false);
}

/* ---- drains */

void idletime_hold_drain(IdletimeHolder *hold, bool drained)
{
    GLOBAL_STATE_CODE();
    if (drained) {
        hold->drained_since_ns = idletime_now_ns();
    } else if (hold->drained) {
        hold->dev.drained_ns += idletime_now_ns() - hold->drained_since_ns;
    }
    qatomic_set(&hold->drained, drained);
    idletime_device_kick(&hold->dev);
}

/* ---- threads */

void idletime_hold_serve(IdletimeHolder *hold, bool ioeventfd)
{
    GLOBAL_STATE_CODE();
    for (unsigned i = 0; i < hold->dev.num_gates; i++) {
        IdletimeHoldPart *part = &hold->part[i];

        idletime_gate_set_context(part->gate,
                                  ioeventfd ? part->ioeventfd_ctx :
                                              qemu_get_aio_context());
    }
}
