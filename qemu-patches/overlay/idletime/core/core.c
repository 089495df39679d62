/*
 * Idletime core: when may a background request start?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * THE PROBLEM
 *
 * A disk or a link does not preempt.  A background request that is in service
 * when a foreground request arrives delays it by up to a whole service time,
 * however strict the priorities of the queue are.  With a greedy background
 * load that happens to almost every foreground request that comes after a
 * short pause: the pause is all it takes for the background to start.
 *
 * THE IDEA
 *
 * L. Eggert and J. Touch, "Idletime Scheduling with Preemption Intervals"
 * (SOSP 2005); L. Eggert, "Background Use of Idle Resource Capacity" (USC
 * 2004), section 5.1, variant 1.  After a foreground request the resource is
 * left idle for a preemption interval before any background request starts:
 *
 *   foreground  ##  ##  ##  ##                    ##  ##  ##
 *   interval      ..  ..  ..  ......                ..  ..  ......
 *   background                      bb bb bb bb bb                bb bb
 *                                                ^ the collision we pay for
 *
 * A burst whose gaps are shorter than the interval pays at most one collision,
 * at its first request.  Between background requests there is no interval.
 *
 *   state        f           b               t       i
 *   idle         foreground  background      -       -
 *   foreground   -           preemption(*)   -       preemption
 *   preemption   foreground  -               idle    -
 *   background   foreground  -               -       idle
 *
 *   "-": stays.  (*) the b is not consumed; it waits in preemption.
 *
 * A WORKED NUMBER
 *
 * Disk of 5 ms a request, foreground of six requests back to back in every
 * 100 ms, each 0.3 ms of thinking apart: 30 % busy.  Interval 0: a background
 * request starts in each of the six thinking gaps and delays the next
 * foreground request by 4.7 ms: a burst takes 60 instead of 31.5 ms.  Interval
 * 5 ms: five of the six gaps are shorter than that; one collision is left, of
 * 2.5 ms on average: 34 ms.  The background has 100 - 34 - 5 = 61 ms of each
 * quantum, twelve requests: 120 a second.
 *
 * WHO IS DELAYED, AND WHO NEVER IS
 *
 * Foreground never waits for anything here: it is not asked about.  Background
 * waits for the interval, for the in-flight cap, for its turn among other
 * background participants; each held request has a deadline (max_hold_ns),
 * after which it is promoted: it then waits for the cap alone, together with
 * all that are overdue, and the one that is overdue the longest is first.
 * Whom the cap and those before it let not go for a lease longer, all the time,
 * has one go all the same, and another one each IDLETIME_KEPT_NS.
 *
 * LIMITS
 *
 * The foreground tells nobody anything (that would cost it), so its events
 * are seen when we look: before each start, at each completion, and once an
 * interval while we wait.  Each foreground request is counted, but several
 * bursts between two looks count as one (preemption[f] and foreground[i] are
 * then too small).  background[f], the collisions, is exact: we look at each
 * completion.  State "background" means that this process has background in
 * service; add up background[f] over the processes of a host.
 *
 * READING THE COUNTERS
 *
 *   background[f] / background[b]+idle[b]  collisions per background request:
 *                                          the price; above 0.2 the interval
 *                                          is likely too short
 *   preemption[f] / foreground[i]+[b]      share of pauses that the foreground
 *                                          ended within the interval: the
 *                                          collisions that the interval saved
 *   preemption[t]                          pauses that it outlasted
 */
#include "qemu/osdep.h"
#include "idletime/core/core.h"
#include "idletime/core/time.h"

#define I IDLETIME_STATE_IDLE
#define F IDLETIME_STATE_FOREGROUND
#define P IDLETIME_STATE_PREEMPTION
#define B IDLETIME_STATE_BACKGROUND

static const IdletimeState next_state[IDLETIME_STATE__MAX]
                                     [IDLETIME_EVENT__MAX] = {
    /*       f  b  t  i */
    [I] = {  F, B, I, I },
    [F] = {  F, P, F, P },
    [P] = {  F, P, I, P },
    [B] = {  F, B, B, I },
};

#undef I
#undef F
#undef P
#undef B

static const char *const state_name[IDLETIME_STATE__MAX] = {
    [IDLETIME_STATE_IDLE] = "idle",
    [IDLETIME_STATE_FOREGROUND] = "foreground",
    [IDLETIME_STATE_PREEMPTION] = "preemption",
    [IDLETIME_STATE_BACKGROUND] = "background",
};

static const char *const event_name[IDLETIME_EVENT__MAX] = {
    [IDLETIME_EVENT_FOREGROUND] = "foreground",
    [IDLETIME_EVENT_BACKGROUND] = "background",
    [IDLETIME_EVENT_TIMER] = "timer",
    [IDLETIME_EVENT_EMPTY] = "empty",
};

static int64_t time_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A time from a board that lies in the future is a lie: take it as now. */
static int64_t last_foreground(const IdletimeView *view, int64_t now_ns)
{
    return time_min(view->fg_last_ns, now_ns);
}

void idletime_core_init(IdletimeCore *core, const IdletimeView *view)
{
    *core = (IdletimeCore) {
        .state = IDLETIME_STATE_IDLE,
        .fg_started = view->fg_started,
        .fg_last_ns = INT64_MIN,
        .kept_ns = INT64_MIN,
    };
}

IdletimeState idletime_core_event(IdletimeCore *core, IdletimeEvent event)
{
    core->count[core->state][event]++;
    core->state = next_state[core->state][event];
    return core->state;
}

/* Foreground requests that started since the last view become events f. */
static void observe_arrivals(IdletimeCore *core, const IdletimeView *view)
{
    /* A participant that left takes its requests out of the sum. */
    bool grown = view->fg_started > core->fg_started;
    uint64_t arrived = grown ? view->fg_started - core->fg_started : 0;

    if (!arrived && view->fg_in_service &&
        core->state != IDLETIME_STATE_FOREGROUND) {
        arrived = 1;
    }
    if (arrived) {
        idletime_core_event(core, IDLETIME_EVENT_FOREGROUND);
        core->count[core->state][IDLETIME_EVENT_FOREGROUND] += arrived - 1;
    }
    core->fg_started = view->fg_started;
}

/* @waiting: a background request of ours is held (tells F[b] from F[i]) */
static void observe(IdletimeCore *core, const IdletimeRule *rule,
                    const IdletimeView *view, int64_t now_ns, bool waiting)
{
    if (view->blind || view->unseen) {
        core->blind = true;
        return;
    }
    if (core->blind) {
        /* Participants have come back with totals that we did not see grow. */
        core->blind = false;
        core->fg_started = view->fg_started;
    }
    observe_arrivals(core, view);
    core->fg_last_ns = last_foreground(view, now_ns);

    if (core->state == IDLETIME_STATE_FOREGROUND && !view->fg_in_service) {
        idletime_core_event(core, waiting ? IDLETIME_EVENT_BACKGROUND :
                                            IDLETIME_EVENT_EMPTY);
    }
    if (core->state == IDLETIME_STATE_PREEMPTION &&
        now_ns >= idletime_time_add(core->fg_last_ns, rule->interval_ns)) {
        idletime_core_event(core, IDLETIME_EVENT_TIMER);
    }
}

void idletime_core_observe(IdletimeCore *core, const IdletimeRule *rule,
                           const IdletimeView *view, int64_t now_ns)
{
    observe(core, rule, view, now_ns, false);
}

static IdletimeVerdict wait_until(IdletimeVerdictKind kind, int64_t again_ns)
{
    return (IdletimeVerdict) { .kind = kind, .again_ns = again_ns };
}

/* The rules, first match wins.  No deadline here. */
static IdletimeVerdict decide(const IdletimeRule *rule,
                              const IdletimeView *view, int64_t now_ns)
{
    int64_t allowed_ns = idletime_time_add(last_foreground(view, now_ns),
                                           rule->interval_ns);
    int64_t look_ns = rule->interval_ns > IDLETIME_LOOK_MIN_NS ?
                      rule->interval_ns : IDLETIME_LOOK_MIN_NS;

    if (view->blind || view->unseen) {
        return wait_until(IDLETIME_WAIT_ARENA,
                          idletime_time_add(now_ns, IDLETIME_LOOK_ARENA_NS));
    }
    if (view->fg_in_service && !view->beside) {
        return wait_until(IDLETIME_WAIT_FOREGROUND,
                          idletime_time_add(now_ns, look_ns));
    }
    if (now_ns < allowed_ns && !view->beside) {
        return wait_until(IDLETIME_WAIT_INTERVAL, allowed_ns);
    }
    if (view->closed_until_ns && now_ns < view->closed_until_ns) {
        return wait_until(IDLETIME_WAIT_BUDGET, view->closed_until_ns);
    }
    if (view->bg_in_service >= rule->max_inflight) {
        return wait_until(IDLETIME_WAIT_INFLIGHT,
                          idletime_time_add(now_ns, IDLETIME_LOOK_INFLIGHT_NS));
    }
    if (view->others_first) {
        return wait_until(IDLETIME_WAIT_TURN,
                          idletime_time_add(now_ns, IDLETIME_GRACE_NS));
    }
    return (IdletimeVerdict) { .kind = IDLETIME_START };
}

int64_t idletime_lease_ns(const IdletimeRule *rule)
{
    return rule->max_hold_ns > IDLETIME_LEASE_NS ? rule->max_hold_ns :
                                                   IDLETIME_LEASE_NS;
}

/*
 * Others keep what is overdue.  For longer than a lease, at each look?  Who has
 * stopped loses his token: so somebody writes what is not so, or many have been
 * overdue for longer.  Nobody can tell, so what goes then is little.  Looks
 * that lie a second apart are of another request, or the clock has jumped.
 */
static bool is_kept_too_long(IdletimeCore *core, const IdletimeRule *rule,
                             int64_t now_ns)
{
    int64_t gap_ns = 10 * IDLETIME_LOOK_ARENA_NS;

    if (core->kept_ns == INT64_MIN ||
        now_ns > idletime_time_add(core->kept_ns, gap_ns)) {
        core->kept_since_ns = now_ns;
    }
    core->kept_ns = now_ns;
    return now_ns >= idletime_time_add(core->kept_since_ns,
                                       idletime_lease_ns(rule));
}

/*
 * The deadline overrides the foreground and the turn, not the cap, and not
 * who is overdue for longer: else the cap's holder would take it for ever.
 * Blind, nobody else is seen.
 */
static IdletimeVerdict promote(IdletimeCore *core, const IdletimeRule *rule,
                               const IdletimeView *view, int64_t now_ns)
{
    bool full = view->bg_in_service >= rule->max_inflight;
    bool alone = view->blind || ((full || view->overdue_first) &&
                                 is_kept_too_long(core, rule, now_ns));

    /* Alone, all that we know to be in service is our own. */
    if (alone ? core->own_in_service >= rule->max_inflight : full) {
        return wait_until(IDLETIME_WAIT_INFLIGHT,
                          idletime_time_add(now_ns, IDLETIME_LOOK_INFLIGHT_NS));
    }
    if (view->overdue_first && !alone) {
        return wait_until(IDLETIME_WAIT_TURN,
                          idletime_time_add(now_ns, IDLETIME_GRACE_NS));
    }
    return (IdletimeVerdict) { .kind = IDLETIME_PROMOTE, .alone = alone };
}

/* A background request of ours is held, and it does not start now. */
static void note_waiting(IdletimeCore *core)
{
    if (core->state == IDLETIME_STATE_BACKGROUND && !core->own_in_service) {
        idletime_core_event(core, IDLETIME_EVENT_EMPTY);
    }
}

int64_t idletime_core_due_ns(const IdletimeRule *rule, int64_t held_since_ns)
{
    return rule->max_hold_ns ?
           idletime_time_add(held_since_ns, rule->max_hold_ns) : INT64_MAX;
}

IdletimeVerdict idletime_core_ask(IdletimeCore *core, const IdletimeRule *rule,
                                  const IdletimeView *view, int64_t now_ns,
                                  int64_t held_since_ns)
{
    int64_t due_ns = idletime_core_due_ns(rule, held_since_ns);
    IdletimeVerdict verdict;

    observe(core, rule, view, now_ns, true);
    verdict = decide(rule, view, now_ns);
    if (verdict.kind != IDLETIME_START && rule->max_hold_ns &&
        now_ns >= due_ns) {
        verdict = promote(core, rule, view, now_ns);
    } else {
        verdict.again_ns = time_min(verdict.again_ns, due_ns);
    }
    if (verdict.kind > IDLETIME_PROMOTE) {
        note_waiting(core);
    } else if (!verdict.alone) {
        core->kept_ns = INT64_MIN;
    } else {
        core->kept_since_ns =
            idletime_time_add(idletime_time_sub(now_ns,
                                                idletime_lease_ns(rule)),
                              IDLETIME_KEPT_NS);
    }
    return verdict;
}

void idletime_core_started(IdletimeCore *core)
{
    core->own_in_service++;
    /* A promoted request changes nothing about the foreground's state. */
    if (core->state == IDLETIME_STATE_IDLE ||
        core->state == IDLETIME_STATE_BACKGROUND) {
        idletime_core_event(core, IDLETIME_EVENT_BACKGROUND);
    }
}

void idletime_core_done(IdletimeCore *core, const IdletimeRule *rule,
                        const IdletimeView *view, int64_t now_ns, bool more)
{
    observe(core, rule, view, now_ns, more);
    if (core->own_in_service) {
        core->own_in_service--;
    }
    if (!more) {
        note_waiting(core);
    }
}

const char *idletime_state_name(IdletimeState state)
{
    return state < IDLETIME_STATE__MAX ? state_name[state] : "unknown";
}

const char *idletime_event_name(IdletimeEvent event)
{
    return event < IDLETIME_EVENT__MAX ? event_name[event] : "unknown";
}
