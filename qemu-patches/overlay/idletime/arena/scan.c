/*
 * Idletime arena: what background participants do with the boards.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The background pays for everything: it reads all slots, asks the kernel who
 * still lives, shares the cap through tokens and the turns by virtual time
 * (start-time fair queueing: P. Goyal, H. Vin, H. Cheng, SIGCOMM 1996), and
 * wakes the one whose turn is next.  Who is past its deadline comes before all
 * turns, the earliest deadline first: so what an overdue request waits for at
 * the cap is counted by what was held or in service when it came.
 */
#include "qemu/osdep.h"
#include "idletime/arena/arena.h"
#include <linux/futex.h>
#include <sys/syscall.h>

/* Service time a participant may save up over a pause: ten 5 ms requests. */
#define IDLETIME_CREDIT_NS      (50 * 1000 * 1000LL)
/* A token younger than this is not doubted: most requests are done by then. */
#define TOKEN_DOUBT_NS          IDLETIME_LOOK_INFLIGHT_NS
/* The lease at least: no disk that works takes longer for one request. */
#define TOKEN_LEASE_NS          (5 * 1000 * 1000 * 1000LL)
/*
 * Four graces: a stopped participant costs the others at most a fifth at
 * first, and with six doublings (1.3 s) less than a two-hundredth.
 */
#define SKIP_NS                 (20 * 1000 * 1000LL)
#define SKIP_DOUBLINGS          6
#define NS_PER_MS               (1000 * 1000LL)
#define WEIGHT_BASE             100

#define load_relaxed(p)         __atomic_load_n((p), __ATOMIC_RELAXED)
#define store_relaxed(p, v)     __atomic_store_n((p), (v), __ATOMIC_RELAXED)

static IdletimeBgLine *own_line(const IdletimeScan *scan)
{
    return &idletime_bg_board(scan->bg)->line[scan->self];
}

static uint32_t high_water(const IdletimeBoard *board, uint32_t seen)
{
    const IdletimeBoardHeader *header = board->map;
    uint32_t high = __atomic_load_n(&header->slots_high, __ATOMIC_ACQUIRE);

    return MIN(MAX(high, seen), IDLETIME_SLOTS);
}

/* ---- foreground */

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
        view->fg_last_ns = MAX(view->fg_last_ns, last_ns);
    }
}

/* ---- tokens */

int64_t idletime_lease_ns(const IdletimeRule *rule)
{
    return MAX(rule->max_hold_ns, TOKEN_LEASE_NS);
}

static IdletimeToken token_make(uint32_t slot, int64_t now_ns)
{
    uint64_t ms = (uint64_t)(now_ns / NS_PER_MS);

    return (uint64_t)(slot + 1) << IDLETIME_TOKEN_SHIFT |
           (ms & ((1ULL << IDLETIME_TOKEN_SHIFT) - 1));
}

static bool token_expired(const IdletimeScan *scan, IdletimeToken token,
                          const IdletimeRule *rule, int64_t now_ns)
{
    uint64_t age = ((uint64_t)(now_ns / NS_PER_MS) - token) <<
                   (64 - IDLETIME_TOKEN_SHIFT);
    /* Signed, modulo 2^48 ms. */
    int64_t age_ms = (int64_t)age >> (64 - IDLETIME_TOKEN_SHIFT);
    int64_t lease_ms = idletime_lease_ns(rule) / NS_PER_MS;
    int64_t doubt_ms = TOKEN_DOUBT_NS / NS_PER_MS;
    uint32_t owner = (token >> IDLETIME_TOKEN_SHIFT) - 1;

    /*
     * Taken after we read the clock: as good as now.  A scribbled time that
     * lies further ahead is no reason to wait for it.
     */
    if (age_ms < 0) {
        return age_ms < -MAX(lease_ms, doubt_ms);
    }
    return age_ms >= doubt_ms &&
           (age_ms > lease_ms || !idletime_slot_alive(scan->bg, owner));
}

static bool token_swap(IdletimeToken *token, IdletimeToken from,
                       IdletimeToken to)
{
    return __atomic_compare_exchange_n(token, &from, to, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static uint32_t token_count(const IdletimeRule *rule)
{
    return MIN(rule->max_inflight, IDLETIME_TOKENS);
}

static uint32_t tokens_taken(const IdletimeScan *scan,
                             const IdletimeRule *rule, int64_t now_ns)
{
    IdletimeToken *token = idletime_bg_board(scan->bg)->token;
    uint32_t taken = 0;

    for (uint32_t i = 0; i < token_count(rule); i++) {
        IdletimeToken value = __atomic_load_n(&token[i], __ATOMIC_ACQUIRE);

        if (value && !(token_expired(scan, value, rule, now_ns) &&
                       token_swap(&token[i], value, 0))) {
            taken++;
        }
    }
    return taken;
}

bool idletime_token_take(const IdletimeScan *scan, const IdletimeRule *rule,
                         int64_t now_ns, IdletimeGrant *grant)
{
    IdletimeToken *token = idletime_bg_board(scan->bg)->token;

    grant->value = token_make(scan->self, now_ns);
    for (grant->index = 0; grant->index < token_count(rule); grant->index++) {
        if (token_swap(&token[grant->index], 0, grant->value)) {
            return true;
        }
    }
    return false;
}

void idletime_token_give(const IdletimeScan *scan, IdletimeGrant grant)
{
    IdletimeToken *token = idletime_bg_board(scan->bg)->token;

    token_swap(&token[grant.index], grant.value, 0);
}

/* ---- turns */

/* a - b; saturates, so that no value on a board wraps. */
static int64_t time_sub(int64_t a, int64_t b)
{
    int64_t difference;

    if (__builtin_sub_overflow(a, b, &difference)) {
        return b < 0 ? INT64_MAX : INT64_MIN;
    }
    return difference;
}

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

/* The one that is past its deadline for longest; -1: nobody is. */
static int overdue_longest(const IdletimeScan *scan, int64_t now_ns)
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

/* Of those whose own interval is over, the least virtual time; -1: nobody. */
static int turn_next(const IdletimeScan *scan, int64_t fg_last_ns,
                     int64_t now_ns)
{
    const IdletimeBgLine *line = idletime_bg_board(scan->bg)->line;
    int64_t idle_ns = time_sub(now_ns, fg_last_ns);
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
    int overdue = overdue_longest(scan, now_ns);

    return overdue >= 0 ? overdue : turn_next(scan, fg_last_ns, now_ns);
}

static void skip_longer(IdletimeSkip *skip, uint64_t started, int64_t now_ns)
{
    skip->times = skip->started == started ? skip->times + 1 : 1;
    skip->started = started;
    if (__builtin_add_overflow(now_ns, SKIP_NS << MIN(skip->times - 1,
                                                      SKIP_DOUBLINGS),
                               &skip->until_ns)) {
        skip->until_ns = INT64_MAX;
    }
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

/* While foreground is in service nobody has a turn. */
static void look_at_turns(const IdletimeScan *scan, IdletimeView *view,
                          int64_t now_ns)
{
    int next = overdue_longest(scan, now_ns);

    view->overdue_first = next >= 0 && (uint32_t)next != scan->self;
    if (next < 0 && !view->fg_in_service) {
        next = turn_next(scan, view->fg_last_ns, now_ns);
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
    scan->bg_high = high_water(scan->bg, scan->bg_high);
    view.bg_in_service = tokens_taken(scan, rule, now_ns);
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

/* ---- our own slot */

void idletime_bg_enter(const IdletimeScan *scan, int64_t interval_ns,
                       int64_t due_ns, uint32_t weight)
{
    IdletimeBgLine *line = own_line(scan);
    uint64_t clock = load_relaxed(&idletime_bg_board(scan->bg)->header.clock);
    uint64_t oldest = clock > IDLETIME_CREDIT_NS ?
                      clock - IDLETIME_CREDIT_NS : 0;

    store_relaxed(&line->weight, weight);
    store_relaxed(&line->interval_ns, interval_ns);
    store_relaxed(&line->due_ns, due_ns);
    store_relaxed(&line->vtime_ns, MAX(line->vtime_ns, oldest));
    __atomic_store_n(&line->waiting, 1, __ATOMIC_RELEASE);
}

void idletime_bg_leave(const IdletimeScan *scan)
{
    __atomic_store_n(&own_line(scan)->waiting, 0, __ATOMIC_RELEASE);
}

void idletime_bg_started(const IdletimeScan *scan)
{
    IdletimeBgLine *line = own_line(scan);
    uint64_t *clock = &idletime_bg_board(scan->bg)->header.clock;

    store_relaxed(&line->started, line->started + 1);
    store_relaxed(&line->in_service, line->in_service + 1);
    if (line->vtime_ns > load_relaxed(clock)) {
        store_relaxed(clock, line->vtime_ns);
    }
}

void idletime_bg_done(const IdletimeScan *scan, int64_t service_ns)
{
    IdletimeBgLine *line = own_line(scan);
    uint32_t weight = MAX(load_relaxed(&line->weight), 1);
    uint64_t charge = (uint64_t)MAX(service_ns, 0) * WEIGHT_BASE / weight;

    store_relaxed(&line->vtime_ns, line->vtime_ns + charge);
    store_relaxed(&line->in_service, MAX(line->in_service, 1) - 1);
}

void idletime_bg_cost(const IdletimeScan *scan, uint64_t cost_ns)
{
    IdletimeBgLine *line = own_line(scan);

    store_relaxed(&line->cost_ns, line->cost_ns + cost_ns);
}

/* ---- waking */

static long futex(uint32_t *word, int op, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

void idletime_bg_wake(const IdletimeScan *scan, uint32_t index)
{
    IdletimeBgLine *line = idletime_bg_board(scan->bg)->line;

    if (index < IDLETIME_SLOTS) {
        __atomic_add_fetch(&line[index].wake, 1, __ATOMIC_RELEASE);
        futex(&line[index].wake, FUTEX_WAKE, 1, NULL);
    }
}

uint32_t idletime_bg_wait(const IdletimeScan *scan, uint32_t seen,
                          int timeout_ms)
{
    struct timespec timeout = {
        .tv_sec = timeout_ms / 1000,
        .tv_nsec = timeout_ms % 1000 * NS_PER_MS,
    };
    uint32_t *word = &own_line(scan)->wake;

    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == seen) {
        futex(word, FUTEX_WAIT, seen, &timeout);
    }
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
