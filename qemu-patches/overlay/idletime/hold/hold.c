/*
 * Idletime hold: a request comes, a request ends.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "hold-impl.h"

/* ---- a request comes */

bool idletime_hold_judge(IdletimeHolder *hold, unsigned queue,
                         IdletimeHoldVerdict verdict, IdletimePromotion cause)
{
    IdletimeHoldPart *part = idletime_hold_part(hold, queue);

    idletime_hold_assert_thread(part);
    if (verdict == IDLETIME_HOLD_PASS) {
        idletime_stat_add(&part->gate->stats.passed, 1);
    } else if (verdict == IDLETIME_HOLD_EXPEDITE &&
               !idletime_hold_blocked(hold)) {
        idletime_hold_expedite(part, cause);
    }
    return verdict == IDLETIME_HOLD_HOLD;
}

bool idletime_hold_put(IdletimeHolder *hold, IdletimeReq *req, unsigned queue)
{
    IdletimeHoldPart *part = idletime_hold_part(hold, queue);
    IdletimePromotion cause;
    IdletimeAside aside;
    bool again, first;

    idletime_hold_assert_thread(part);
    req->queue = queue;
    again = req->number != 0;
    aside = idletime_hold_set_aside(hold, req);
    if (aside != IDLETIME_ASIDE_NO) {
        return aside == IDLETIME_ASIDE_DONE;
    }
    first = QTAILQ_EMPTY(&part->held);
    idletime_hold_list_append(part, req);
    if (again) {
        /* After a stop, in whichever order: others may be put before it. */
        idletime_gate_kick(part->gate);
    } else if (first || idletime_hold_expedited(part, &cause)) {
        idletime_hold_pump(part);
    }
    return true;
}

/* Others may be cancelled next, so nothing is released in here. */
void idletime_hold_take(IdletimeHolder *hold, IdletimeReq *req)
{
    IdletimeHoldPart *part = idletime_hold_part(hold, req->queue);

    idletime_hold_assert_thread(part);
    idletime_hold_list_remove(part, req);
    idletime_gate_kick(part->gate);
}

/* ---- a request ends */

static void end_background(IdletimeHoldPart *part, IdletimeReq *req)
{
    idletime_hold_assert_thread(part);
    idletime_gate_done(part->gate, &req->lease, !QTAILQ_EMPTY(&part->held));
    idletime_hold_pump(part);
}

static void end_foreground(IdletimeHoldPart *part, int64_t now_ns)
{
    idletime_gate_end(part->gate, now_ns);
    if (unlikely(qatomic_read(&part->owner->leaving))) {
        idletime_hold_leave(part);
    }
}

static void end_expedited(IdletimeHoldPart *part, bool seen, int64_t now_ns)
{
    idletime_hold_assert_thread(part);
    if (seen) {
        idletime_gate_end(part->gate, now_ns);
    }
    part->expedited--;
    idletime_hold_pump(part);
}

void idletime_hold_end(IdletimeHolder *hold, IdletimeReq *req, int64_t now_ns)
{
    uint8_t state = req->state;
    IdletimeHoldPart *part = idletime_hold_part(hold, req->queue);

    req->state = IDLETIME_REQ_NONE;
    req->number = 0;
    if (state == IDLETIME_REQ_FOREGROUND) {
        end_foreground(part, now_ns);
    } else if (state == IDLETIME_REQ_EXPEDITED_FG ||
               state == IDLETIME_REQ_EXPEDITED_UNSEEN) {
        end_expedited(part, state == IDLETIME_REQ_EXPEDITED_FG, now_ns);
    } else if (state == IDLETIME_REQ_BACKGROUND) {
        end_background(part, req);
    }
}
