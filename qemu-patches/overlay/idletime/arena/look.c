/*
 * Idletime arena: one look at both boards.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The background pays for everything: it reads all slots, and asks the kernel
 * who still lives.
 */
#include "qemu/osdep.h"
#include "idletime/arena/load.h"
#include "idletime/arena/look.h"
#include "idletime/arena/slot.h"
#include "idletime/arena/tokens.h"
#include "idletime/arena/turns.h"

static uint32_t high_water(const IdletimeBoard *board, uint32_t seen)
{
    const IdletimeBoardHeader *header = board->map;
    uint32_t high = __atomic_load_n(&header->slots_high, __ATOMIC_ACQUIRE);

    return MIN(MAX(high, seen), IDLETIME_SLOTS);
}

static void scan_foreground(IdletimeScan *scan, IdletimeView *view,
                            int64_t now_ns)
{
    const IdletimeFgLine *line = idletime_fg_board(scan->fg)->line;
    bool alive_seen = false;

    scan->fg_high = high_water(scan->fg, scan->fg_high);
    for (uint32_t i = 0; i < scan->fg_high; i++, line++) {
        uint32_t in_service = __atomic_load_n(&line->in_service,
                                              __ATOMIC_ACQUIRE);
        int64_t last_ns = load_relaxed(&line->last_ns);

        view->fg_started += load_relaxed(&line->started);
        view->fg_request_ns += load_relaxed(&line->request_ns);
        if (in_service || last_ns > now_ns) {
            /* One living owner is enough to make us wait. */
            if (!alive_seen && !idletime_slot_alive(scan->fg, i)) {
                continue;
            }
            alive_seen = true;
        }
        view->fg_in_service += in_service ? 1 : 0;
        view->fg_requests += in_service;
        view->fg_request_ns -= in_service * (uint64_t)last_ns;
        view->fg_last_ns = MAX(view->fg_last_ns, last_ns);
    }
}

/*
 * Its fields are of slightly different moments.  One that died is no
 * foreground, as a slot whose owner died.  Where the arena is to be observed,
 * foreground may then be there and not be seen: so this is asked each time.
 */
static void scan_observed(const IdletimeScan *scan, IdletimeView *view,
                          int64_t now_ns)
{
    const IdletimeObserver *observer = scan->observer;
    const IdletimeObserved *page = observer->page;
    uint32_t in_service = idletime_observed_in_service(page);
    int64_t last_ns = load_relaxed(&page->last_ns);

    bool declared = load_relaxed(&observer->declared);

    if (!idletime_observer_intact(observer) ||
        ((in_service || last_ns > now_ns || declared) &&
         !idletime_observer_alive(observer))) {
        view->unseen = declared;
        return;
    }
    view->observed.in_service = in_service;
    view->observed.started = idletime_observer_started(observer);
    view->observed.request_ns = (uint64_t)load_relaxed(&page->service_ns) +
                                in_service * (uint64_t)now_ns;
    view->fg_started += view->observed.started;
    view->fg_in_service += in_service ? 1 : 0;
    view->fg_requests += in_service;
    view->fg_last_ns = MAX(view->fg_last_ns, last_ns);
}

/*
 * A slot's sum is as of its own last event, and who waits for another slot's
 * request has none meanwhile: what is in service counts up to the last event
 * of any.  The observer's counts up to now.
 */
static void sum_up(IdletimeView *view)
{
    uint64_t slots = view->fg_requests - view->observed.in_service;

    view->fg_request_ns += slots * (uint64_t)view->fg_last_ns;
}

/* While foreground is in service nobody has a turn. */
static void look_at_turns(const IdletimeScan *scan, IdletimeView *view,
                          int64_t now_ns)
{
    int next = idletime_turn_overdue(scan, now_ns);

    view->overdue_first = next >= 0 && (uint32_t)next != scan->self;
    if (next < 0 && !view->fg_in_service) {
        next = idletime_turn_next(scan, view->fg_last_ns, now_ns);
    }
    view->others_first = next >= 0 && (uint32_t)next != scan->self;
}

IdletimeView idletime_scan(IdletimeScan *scan, const IdletimeRule *rule,
                           int64_t now_ns)
{
    IdletimeView view = { .fg_last_ns = INT64_MIN };

    if (!idletime_board_intact(scan->fg, false) ||
        !idletime_board_intact(scan->bg, false)) {
        view.blind = true;
        return view;
    }
    scan_foreground(scan, &view, now_ns);
    if (scan->observer) {
        scan_observed(scan, &view, now_ns);
    }
    sum_up(&view);
    scan->bg_high = high_water(scan->bg, scan->bg_high);
    view.bg_in_service = idletime_tokens_taken(scan, rule, now_ns);
    if (view.bg_in_service < rule->max_inflight) {
        look_at_turns(scan, &view, now_ns);
    }
    return view;
}

IdletimeBgTotals idletime_scan_background(IdletimeScan *scan)
{
    const IdletimeBgLine *line = idletime_bg_board(scan->bg)->line;
    IdletimeBgTotals totals = { 0 };

    scan->bg_high = high_water(scan->bg, scan->bg_high);
    for (uint32_t i = 0; i < scan->bg_high; i++) {
        totals.started += load_relaxed(&line[i].started);
        totals.cost_ns += load_relaxed(&line[i].cost_ns);
    }
    return totals;
}
