/*
 * Idletime: notice that the arena is lost, and move to a new one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   intact --lost--> blind: held requests leave by deadline only
 *                      |
 *                 boards at the path are good again (the directory is made
 *                 anew if it was deleted; a damaged one stays until somebody
 *                 removes it): participants move, each in its own thread
 *                      |             ^
 *                      |             |  lost again: some may be on boards of
 *                      |             |  before still
 *                 one period after all its gates have moved: those of other
 *                 processes have, too
 *                      |
 *   intact <-----------+
 *
 * Foreground takes part so that a background participant that starts later
 * sees it; it never waits for any of this.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "idletime/gate/gate.h"
#include "trace.h"

/* Others have moved when we see again: all look with the same period. */
#define WATCH_PERIOD_NS (NANOSECONDS_PER_SECOND)

/* ---- moving */

static bool move_gate(IdletimeGate *gate, IdletimeBoards *boards, Error **errp)
{
    /* Under way, or there already. */
    if (!idletime_gate_moved(gate) || gate->slots.boards == boards) {
        return true;
    }
    return idletime_gate_move(gate, boards, errp);
}

/*
 * All that participants claim.  They would be between two sets of boards for
 * good if one of the new ones were damaged.
 */
static bool are_whole(IdletimeBoards *boards, const IdletimeResource *res)
{
    const IdletimeGate *gate;
    bool fg = false, bg = false;

    QTAILQ_FOREACH(gate, &res->gates, next) {
        fg |= gate->fg_ready;
        bg |= gate->bg_ready;
    }
    return idletime_boards_map(boards, IDLETIME_BOARD_FOREGROUND, false,
                               NULL) &&
           (!fg || idletime_boards_map(boards, IDLETIME_BOARD_FOREGROUND, true,
                                       NULL)) &&
           (!bg || idletime_boards_map(boards, IDLETIME_BOARD_BACKGROUND, true,
                                       NULL));
}

/* Boards that are whole, made anew if they are gone; NULL: not yet. */
static IdletimeBoards *find_boards(IdletimeResource *res)
{
    IdletimeBoards *boards = idletime_boards_renew(res->boards);

    if (boards && !are_whole(boards, res)) {
        idletime_boards_free(boards);
        return NULL;
    }
    return boards;
}

/*
 * A failure in the middle (a full board, say) leaves gates on older sets; they
 * are all blind, and the next look tries again with the rest.
 */
static bool move_rest(IdletimeResource *res, Error **errp)
{
    IdletimeGate *gate;

    QTAILQ_FOREACH(gate, &res->gates, next) {
        if (!move_gate(gate, res->boards, errp)) {
            return false;
        }
    }
    return true;
}

static void move_all(IdletimeResource *res, IdletimeBoards *boards)
{
    Error *err = NULL;

    res->old_boards = g_slist_prepend(res->old_boards, res->boards);
    res->boards = boards;
    if (!move_rest(res, &err)) {
        warn_report_err(err);
    }
}

static void look_for_arena(IdletimeResource *res, int64_t now_ns)
{
    IdletimeBoards *boards = find_boards(res);

    if (boards) {
        move_all(res, boards);
        res->found_ns = now_ns;
    }
}

/* ---- watching */

static void go_blind(IdletimeResource *res)
{
    qatomic_set(&res->blind, true);
    res->found_ns = 0;
    trace_idletime_resource_lost(idletime_resource_id(res), res->path);
    warn_report("idletime-resource '%s': the arena '%s' was removed or "
                "damaged; background requests are released after max-hold-ms "
                "only, until it is back (remove what is left of it)",
                idletime_resource_id(res), res->path);
}

static void see_again(IdletimeResource *res)
{
    qatomic_set(&res->blind, false);
    trace_idletime_resource_found(idletime_resource_id(res), res->path);
    info_report("idletime-resource '%s': the arena '%s' is back",
                idletime_resource_id(res), res->path);
    notifier_list_notify(&res->changed, NULL);
}

static bool is_used(const IdletimeBoards *boards, const IdletimeResource *res)
{
    const IdletimeGate *gate;

    QTAILQ_FOREACH(gate, &res->gates, next) {
        if (gate->slots.boards == boards) {
            return true;
        }
    }
    return false;
}

/* No gate is on its way: what none of them uses is not needed any more. */
static void drop_unused(IdletimeResource *res)
{
    GSList *used = NULL;

    for (GSList *each = res->old_boards; each; each = each->next) {
        if (is_used(each->data, res)) {
            used = g_slist_prepend(used, each->data);
        } else {
            idletime_boards_free(each->data);
        }
    }
    g_slist_free(res->old_boards);
    res->old_boards = used;
}

/* Have all gates moved? */
static bool settled(IdletimeResource *res)
{
    IdletimeGate *gate;
    bool rest = true, all = true;

    QTAILQ_FOREACH(gate, &res->gates, next) {
        bool moved = idletime_gate_moved(gate);

        rest &= moved;
        /* One that could not move still writes to older boards. */
        all &= moved && gate->slots.boards == res->boards;
    }
    if (rest) {
        drop_unused(res);
    }
    return all;
}

static void watch_blind(IdletimeResource *res, int64_t now_ns)
{
    bool all = settled(res);

    if (!res->found_ns || idletime_boards_lost(res->boards)) {
        look_for_arena(res, now_ns);
    } else if (!all) {
        /* Said once, by move_all(); not every second. */
        move_rest(res, NULL);
    } else if (now_ns - res->found_ns > WATCH_PERIOD_NS) {
        see_again(res);
    }
}

static void show_slots(IdletimeResource *res)
{
    IdletimeGate *gate;

    QTAILQ_FOREACH(gate, &res->gates, next) {
        const IdletimeGateSlots *slots = &gate->slots;

        if (slots->boards) {
            idletime_slot_show(&slots->boards->fg_write, &slots->fg);
            idletime_slot_show(&slots->boards->bg, &slots->bg);
        }
    }
}

static void watch(void *opaque)
{
    IdletimeResource *res = opaque;
    int64_t now_ns = idletime_now_ns();

    idletime_guard_thread();
    if (!res->blind && idletime_boards_lost(res->boards)) {
        go_blind(res);
    }
    if (res->blind) {
        watch_blind(res, now_ns);
    } else {
        show_slots(res);
    }
    idletime_gate_watch_observer(res);
    timer_mod_ns(res->watch, now_ns + WATCH_PERIOD_NS);
}

void idletime_gate_watch(IdletimeResource *res)
{
    GLOBAL_STATE_CODE();
    if (!res->watch) {
        res->watch = timer_new_ns(idletime_clock(), watch, res);
        timer_mod_ns(res->watch, idletime_now_ns() + WATCH_PERIOD_NS);
    }
}
