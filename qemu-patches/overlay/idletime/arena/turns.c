/*
 * Idletime arena: turns among the background participants that wait.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/load.h"
#include "idletime/arena/slot.h"
#include "idletime/arena/turns.h"
#include "idletime/core/time.h"

/* Service time a participant may save up over a pause: ten 5 ms requests. */
#define CREDIT_NS               (50 * 1000 * 1000LL)
/*
 * Four graces: a stopped participant costs the others at most a fifth at
 * first, and with six doublings (1.3 s) less than a two-hundredth.
 */
#define SKIP_NS                 (20 * 1000 * 1000LL)
#define SKIP_DOUBLINGS          6
#define WEIGHT_BASE             100

#define store_relaxed(p, v)     __atomic_store_n((p), (v), __ATOMIC_RELAXED)

/* ---- who is first */

static bool is_skipped(const IdletimeSkip *skip, const IdletimeBgLine *line,
                       int64_t now_ns)
{
    return skip->times && now_ns < skip->until_ns &&
           skip->started == load_relaxed(&line->started);
}

static bool is_waiting(const IdletimeScan *scan, const IdletimeBgLine *line,
                       uint32_t index, int64_t now_ns)
{
    return __atomic_load_n(&line->waiting, __ATOMIC_ACQUIRE) &&
           !is_skipped(&scan->skip[index], line, now_ns);
}

int idletime_turn_overdue(const IdletimeScan *scan, int64_t now_ns)
{
    const IdletimeBgLine *line = idletime_bg_board(scan->bg)->line;
    int64_t best_ns = now_ns;
    int best = -1;

    for (uint32_t i = 0; i < scan->bg_high; i++) {
        int64_t due_ns = load_relaxed(&line[i].due_ns);

        if ((best < 0 ? due_ns <= best_ns : due_ns < best_ns) &&
            is_waiting(scan, &line[i], i, now_ns)) {
            best = i;
            best_ns = due_ns;
        }
    }
    return best;
}

int idletime_turn_next(const IdletimeScan *scan, int64_t fg_last_ns,
                       int64_t now_ns)
{
    const IdletimeBgLine *line = idletime_bg_board(scan->bg)->line;
    int64_t idle_ns = idletime_time_sub(now_ns, fg_last_ns);
    uint64_t best_vtime = UINT64_MAX;
    int best = -1;

    for (uint32_t i = 0; i < scan->bg_high; i++) {
        uint64_t vtime = load_relaxed(&line[i].vtime_ns);

        if (vtime < best_vtime &&
            idle_ns >= load_relaxed(&line[i].interval_ns) &&
            is_waiting(scan, &line[i], i, now_ns)) {
            best = i;
            best_vtime = vtime;
        }
    }
    return best;
}

int idletime_scan_next(const IdletimeScan *scan, int64_t fg_last_ns,
                       int64_t now_ns)
{
    int overdue = idletime_turn_overdue(scan, now_ns);

    return overdue >= 0 ? overdue :
                          idletime_turn_next(scan, fg_last_ns, now_ns);
}

static void skip_longer(IdletimeSkip *skip, uint64_t started, int64_t now_ns)
{
    skip->times = skip->started == started ? skip->times + 1 : 1;
    skip->started = started;
    skip->until_ns = idletime_time_add(now_ns, SKIP_NS <<
                                       MIN(skip->times - 1, SKIP_DOUBLINGS));
}

void idletime_scan_skip(IdletimeScan *scan, uint32_t index, int64_t now_ns)
{
    IdletimeBgLine *line;

    if (index >= IDLETIME_SLOTS) {
        return;
    }
    line = &idletime_bg_board(scan->bg)->line[index];
    if (!idletime_slot_alive(scan->bg, index)) {
        store_relaxed(&line->waiting, 0);
        return;
    }
    skip_longer(&scan->skip[index], load_relaxed(&line->started), now_ns);
}

/* ---- our own slot */

void idletime_bg_enter(const IdletimeScan *scan, int64_t interval_ns,
                       int64_t due_ns, uint32_t weight)
{
    IdletimeBgLine *line = idletime_scan_own(scan);
    uint64_t clock = load_relaxed(&idletime_bg_board(scan->bg)->header.clock);
    uint64_t oldest = clock > CREDIT_NS ? clock - CREDIT_NS : 0;

    store_relaxed(&line->weight, weight);
    store_relaxed(&line->interval_ns, interval_ns);
    store_relaxed(&line->due_ns, due_ns);
    store_relaxed(&line->vtime_ns, MAX(line->vtime_ns, oldest));
    __atomic_store_n(&line->waiting, 1, __ATOMIC_RELEASE);
}

void idletime_bg_leave(const IdletimeScan *scan)
{
    __atomic_store_n(&idletime_scan_own(scan)->waiting, 0, __ATOMIC_RELEASE);
}

void idletime_bg_started(const IdletimeScan *scan)
{
    IdletimeBgLine *line = idletime_scan_own(scan);
    uint64_t *clock = &idletime_bg_board(scan->bg)->header.clock;

    store_relaxed(&line->started, line->started + 1);
    if (line->vtime_ns > load_relaxed(clock)) {
        store_relaxed(clock, line->vtime_ns);
    }
}

void idletime_bg_done(const IdletimeScan *scan, int64_t service_ns)
{
    IdletimeBgLine *line = idletime_scan_own(scan);
    uint32_t weight = MAX(load_relaxed(&line->weight), 1);
    uint64_t charge = (uint64_t)MAX(service_ns, 0) * WEIGHT_BASE / weight;

    store_relaxed(&line->vtime_ns, line->vtime_ns + charge);
}

void idletime_bg_cost(const IdletimeScan *scan, uint64_t cost_ns)
{
    IdletimeBgLine *line = idletime_scan_own(scan);

    store_relaxed(&line->cost_ns, line->cost_ns + cost_ns);
}
