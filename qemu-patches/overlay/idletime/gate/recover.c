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
 *                      |
 *                 one period after all of ours have moved: those of other
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
#include "idletime/device/device.h"
#include "trace.h"

/* Others have moved when we see again: all look with the same period. */
#define WATCH_PERIOD_NS (NANOSECONDS_PER_SECOND)

static bool board_lost(const IdletimeBoard *board)
{
    return board->map && !idletime_board_intact(board, true);
}

static bool boards_lost(const IdletimeBoards *boards)
{
    return board_lost(&boards->fg_write) || board_lost(&boards->fg_read) ||
           board_lost(&boards->bg);
}

static void each_gate(IdletimeResource *res,
                      bool (*fn)(IdletimeGate *gate, void *opaque),
                      void *opaque)
{
    IdletimeDevice *dev;

    QTAILQ_FOREACH(dev, &res->devices, next) {
        for (unsigned i = 0; i < dev->num_gates; i++) {
            if (!fn(dev->gate[i], opaque)) {
                return;
            }
        }
    }
}

/* ---- moving */

typedef struct Move {
    IdletimeBoards *boards;
    Error *err;
} Move;

static bool move_gate(IdletimeGate *gate, void *opaque)
{
    Move *move = opaque;

    /* Under way, or there already. */
    if (qatomic_load_acquire(&gate->move) ||
        gate->slots.boards == move->boards) {
        return true;
    }
    return idletime_gate_move(gate, move->boards, &move->err);
}

static bool gate_arrived(IdletimeGate *gate, void *opaque)
{
    bool *all = opaque;

    /* One that could not move still writes to the old boards. */
    *all = idletime_gate_moved(gate) &&
           gate->slots.boards == gate->res->boards && *all;
    return true;
}

/* Boards that are whole, made anew if they are gone; NULL: not yet. */
static IdletimeBoards *find_boards(IdletimeResource *res)
{
    IdletimeBoards *boards = idletime_boards_new();
    IdletimeError err;

    if (idletime_arena_reopen(&boards->arena, &res->boards->arena, &err) &&
        idletime_boards_map(res, boards, IDLETIME_BOARD_FOREGROUND, false,
                            NULL)) {
        return boards;
    }
    idletime_boards_free(boards);
    return NULL;
}

/*
 * A failure in the middle (a full board, say) leaves gates on both sets; they
 * are all blind, and the next look tries again with the rest.
 */
static Error *move_rest(IdletimeResource *res)
{
    Move move = { .boards = res->boards };

    each_gate(res, move_gate, &move);
    return move.err;
}

static void move_all(IdletimeResource *res, IdletimeBoards *boards)
{
    Error *err;

    res->old_boards = res->boards;
    res->boards = boards;
    err = move_rest(res);
    if (err) {
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
    IdletimeDevice *dev;

    qatomic_set(&res->blind, false);
    trace_idletime_resource_found(idletime_resource_id(res), res->path);
    info_report("idletime-resource '%s': the arena '%s' is back",
                idletime_resource_id(res), res->path);
    QTAILQ_FOREACH(dev, &res->devices, next) {
        idletime_device_kick(dev);
    }
}

/* Have all gates moved?  Then the old boards are no longer needed. */
static bool settled(IdletimeResource *res)
{
    bool all = true;

    each_gate(res, gate_arrived, &all);
    if (all) {
        idletime_boards_free(res->old_boards);
        res->old_boards = NULL;
    }
    return all;
}

static void watch_blind(IdletimeResource *res, int64_t now_ns)
{
    if (res->old_boards && !settled(res)) {
        /* Said once, by move_all(); not every second. */
        error_free(move_rest(res));
        return;
    }
    if (!res->found_ns || boards_lost(res->boards)) {
        look_for_arena(res, now_ns);
    } else if (now_ns - res->found_ns > WATCH_PERIOD_NS) {
        see_again(res);
    }
}

static void watch(void *opaque)
{
    IdletimeResource *res = opaque;
    int64_t now_ns = idletime_now_ns();

    idletime_guard_thread();
    if (!res->blind && boards_lost(res->boards)) {
        go_blind(res);
    }
    if (res->blind) {
        watch_blind(res, now_ns);
    }
    timer_mod_ns(res->watch, now_ns + WATCH_PERIOD_NS);
}

void idletime_resource_watch(IdletimeResource *res)
{
    if (res->watch) {
        return;
    }
    res->watch = timer_new_ns(idletime_clock(), watch, res);
    timer_mod_ns(res->watch, idletime_now_ns() + WATCH_PERIOD_NS);
}

void idletime_resource_unwatch(IdletimeResource *res)
{
    timer_free(res->watch);
}
