/*
 * Idletime learner: the interval that sets itself.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * THE PROBLEM
 *
 * A preemption interval saves all collisions of a burst but the first.  How
 * long should it be?  A longer one wastes idle time, and the first request
 * after each long gap meets the background whatever the interval is.  What
 * counts is something else: given that the foreground has been idle for t,
 * what will a background request that starts now cost?
 *
 *   foreground  ## ## ##                      ## ## ##
 *   interval            bb bb bb bb bb bb bb b#b ## ##     one collision
 *   learned          bb bb bb bb bb bb bb bb  ## ## ##     starts sooner, and
 *                                                          stops in time
 *
 * WHAT THE OPERATOR SAYS
 *
 * A budget: the mean of the foreground's request times may grow by so much.
 *
 * THE STEPS, a file each, all of them pure
 *
 *   gaps.c       rings of all foreground slots -> idle gaps of their union
 *   histogram.c  gaps -> distribution, forgetting
 *   delay.c      distribution -> c(t), the expected delay of a start at age t
 *   plan.c       c(t), budget -> ages at which background may start
 *   window.c     those ages, and how they are asked for
 *   cycle.c      the same on a second clock: time since the last burst began
 *   collision.c  the foreground comes: what does the first one wait for?
 *   cost.c       that -> what it costs all foreground requests
 *   seek.c       gaps used and left alone -> how long a seek back takes
 *   scale.c      busy periods -> how much of that is really paid
 *   budget.c     measured cost -> credit
 *   channels.c   own service times -> is it one server or many?
 *   service.c    own service times, by size
 *   spare.c      idle time -> last second, minute, hour, forecast
 *   learner.c    joins them; notices when the workload changes
 *   admission.c  may a request start now?
 *
 * PREDICTED AND MEASURED
 *
 * The windows say which starts are cheap.  They may be wrong.  So they never
 * say how much is spent: each collision's cost is measured, the credit pays
 * it, and without credit only what is expected to cost next to nothing may
 * start.  A wrong prediction costs the background throughput, not the
 * foreground its budget.
 *
 * A WORKED NUMBER
 *
 * Disk of 5 ms, bursts of six requests every 100 ms, pauses of 49 to 91 ms
 * with equal probability, budget 3 %.  A burst has 30 ms of requests, so a gap
 * may cost 0.9 ms.  Up to age 44 a start costs nothing.  Later it costs
 * d^2 / 2(91 - t): 0.3 ms at 49, 0.6 ms at 70.  The foreground that returns
 * while we go on finds us in service, halfway on average: 2.5 ms.  So we may
 * go on until 36 % of the gaps are over, that is to age 64: on average 61 ms
 * of the 70, twelve requests of the thirteen that a clairvoyant would start.
 *
 * WHO IS DELAYED, AND WHO NEVER IS
 *
 * As in core.c: the foreground is asked nothing.  Background waits for its
 * window, and its deadline (max_hold_ns) holds as ever; a promotion takes no
 * credit and is in the promotions.
 *
 * LIMITS
 *
 * Gaps are taken as independent of each other, but for the burst structure
 * that shows in their lengths.  For memoryless arrivals no age is better than
 * another: there the credit decides, and every scheduler has the same price.
 * A rare foreground makes a small budget: 3 % of one request a minute is
 * nothing, so after a second of idleness credit grows by itself, a collision
 * in 15 s.  The cost of other processes is what they say it is.
 *
 * READING query-idletime
 *
 *   cyclic            the clock of cycle.c is in force, else that of a gap
 *   windows           begin to end by that clock.  Begin is the interval in
 *                     force; an end is where the foreground is expected back
 *   slowdown-percent  what the foreground has really paid; below the budget
 *   credit-us         at 0 the budget is used up: background is held by it
 *                     (waits.budget grows); near credit-max-us the workload
 *                     leaves nothing more to be had for the budget
 *   delay-factor      1: one request at a time waits; more: those behind it
 *                     in the queue wait as well; less: the way to the disk and
 *                     back takes a part of what a collision is reckoned to cost
 */
#include "qemu/osdep.h"
#include "idletime/learner/learner-impl.h"
#include "idletime/core/recent.h"

/*
 * Long memory for precision, short memory to notice a change: with bursts of
 * six requests these are 170 and 8 bursts.
 */
static const IdletimeHalfLife slow_life = { 1024, 120e9 };
static const IdletimeHalfLife fast_life = { 48, 2e9 };
/*
 * The short memory explains what comes better than the long one by a factor
 * of e^8 = 3,000 in total: the workload has changed.
 */
#define DOUBT_MAX           8
/* Foreground time per gap is averaged over so many gaps. */
#define REQUEST_MEMORY      256
/* Windows are planned anew after 1/16 more gaps, or this time. */
#define PLAN_PART           16
#define PLAN_MIN_NS         (50 * 1000 * 1000LL)
#define PLAN_MAX_NS         (1000 * 1000 * 1000LL)

void idletime_learner_init(IdletimeLearner *l, int64_t since_ns)
{
    memset(l, 0, sizeof(*l));
    idletime_gaps_init(&l->gaps, since_ns);
    idletime_histogram_init(&l->slow);
    idletime_histogram_init(&l->fast);
    idletime_cycle_init(&l->cycle);
    idletime_budget_init(&l->budget);
    idletime_channels_init(&l->channels);
    idletime_spare_init(&l->spare);
    l->gap_ns = MAX(since_ns, 0);
    l->start_ns = INT64_MIN;
    l->done_ns = INT64_MIN;
    l->arrival_ns = INT64_MAX;
}

/* ---- gaps */

static double logarithm(double x)
{
    union { double d; uint64_t u; } v = { x };
    int exponent = (int)(v.u >> 52) - 1023;
    double m, y;

    v.u = (v.u & 0xfffffffffffffULL) | 0x3ff0000000000000ULL;
    m = v.d;
    y = (m - 1) / (m + 1);
    /* ln m = 2 artanh y, y at most 1/3: 1e-4. */
    return exponent * 0.69314718 + 2 * y * (1 + y * y * (1 / 3.0 +
                                                        y * y / 5.0));
}

/*
 * Page's cumulative sum test (E. Page, Biometrika 1954) of the short against
 * the long memory, each judged by what it said before it saw the gap.
 */
static void doubt(IdletimeLearner *l, int64_t gap_ns)
{
    double evidence = logarithm(idletime_histogram_near(&l->fast, gap_ns) /
                                idletime_histogram_near(&l->slow, gap_ns));

    l->doubt = MAX(l->doubt + evidence, 0);
    if (l->doubt > DOUBT_MAX) {
        l->slow = l->fast;
        l->doubt = 0;
        l->changes++;
        l->built_gaps = 0;
        l->planning = IDLETIME_PLANNING_NOTHING;
        idletime_cycle_init(&l->cycle);
        idletime_cost_doubt(&l->cost);
        idletime_seek_doubt(&l->seek);
        idletime_scale_doubt(&l->scale);
    }
}

static void note_gap(IdletimeLearner *l, const IdletimeGap *gap)
{
    int64_t length_ns = gap->end_ns - gap->begin_ns;
    int64_t since_ns = gap->end_ns - l->gap_ns;

    if (l->built_gaps) {
        idletime_cycle_note(&l->cycle, gap, &l->windows,
                            l->request_ns / MAX(l->request_gaps, 1));
    }
    doubt(l, length_ns);
    idletime_histogram_add(&l->slow, slow_life, length_ns, since_ns);
    idletime_histogram_add(&l->fast, fast_life, length_ns, since_ns);
    l->gap_ns = gap->end_ns;
    l->gap_count++;
}

static void note_requests(IdletimeLearner *l, double request_ns, double gaps)
{
    l->request_ns += request_ns;
    l->request_gaps += gaps;
    idletime_recent_limit(&l->request_ns, &l->request_gaps, REQUEST_MEMORY);
}

/* ---- windows */

bool idletime_learner_ready(const IdletimeLearner *l)
{
    return l->gap_count >= IDLETIME_READY_GAPS &&
           idletime_service_known(&l->services);
}

static bool plan_is_due(const IdletimeLearner *l, int64_t now_ns)
{
    if (!idletime_learner_ready(l)) {
        return false;
    }
    if (!l->built_gaps) {
        return true;
    }
    return now_ns - l->built_ns >= PLAN_MAX_NS ||
           (now_ns - l->built_ns >= PLAN_MIN_NS &&
            l->gap_count - l->built_gaps >=
            idletime_histogram_count(&l->slow) / PLAN_PART);
}

/* In units of the first request's delay, as the windows count. */
static IdletimeTerms terms_of(const IdletimeLearner *l,
                              const IdletimeGoal *goal)
{
    double request_ns = l->request_ns / MAX(l->request_gaps, 1) /
                        idletime_learner_factor(l);

    return (IdletimeTerms) {
        .budget_ns = goal->share * request_ns,
        .request_ns = request_ns,
        .seek_ns = l->seek.cost_ns / idletime_scale(&l->scale),
    };
}

static void plan_windows(IdletimeLearner *l, const IdletimeGoal *goal,
                         int64_t now_ns)
{
    IdletimeTerms terms = terms_of(l, goal);

    idletime_plan_begin(&l->plan, &l->slow, idletime_service_any(&l->services),
                        NULL, &terms);
    l->planning = IDLETIME_PLANNING_WINDOWS;
    l->planned_gaps = l->gap_count;
    l->planned_ns = now_ns;
}

/* In force from now on; then those of the other clock. */
static void planned_windows(IdletimeLearner *l, const IdletimeGoal *goal)
{
    IdletimeTerms terms = terms_of(l, goal);

    l->windows = l->plan.windows;
    l->built_gaps = l->planned_gaps;
    l->built_ns = l->planned_ns;
    l->planning = idletime_cycle_plan(&l->cycle, &l->plan, &l->windows,
                                      &terms) ?
                  IDLETIME_PLANNING_CYCLE : IDLETIME_PLANNING_NOTHING;
}

/* A bounded part of it: nobody waits longer for a look in which it is due. */
static void plan_step(IdletimeLearner *l, const IdletimeGoal *goal,
                      int64_t now_ns)
{
    if (l->planning == IDLETIME_PLANNING_NOTHING && plan_is_due(l, now_ns)) {
        plan_windows(l, goal, now_ns);
    }
    if (l->planning == IDLETIME_PLANNING_NOTHING ||
        l->gaps.count > IDLETIME_LOOK_FEW ||
        idletime_plan_step(&l->plan, IDLETIME_LOOK_WORK) <= 0) {
        return;
    }
    if (l->planning == IDLETIME_PLANNING_WINDOWS) {
        planned_windows(l, goal);
    } else {
        idletime_cycle_planned(&l->cycle, &l->plan.windows);
        l->planning = IDLETIME_PLANNING_NOTHING;
    }
}

/* ---- looks */

static void read_rings(IdletimeLearner *l, const IdletimeFgBoard *fg,
                       uint32_t slots, int64_t now_ns)
{
    uint64_t overruns = l->gaps.overruns;

    idletime_gaps_look(&l->gaps, fg, slots, now_ns);
    if (l->gaps.overruns != overruns) {
        idletime_cycle_lost(&l->cycle);
    }
    for (uint32_t i = 0; i < l->gaps.count; i++) {
        if (i < IDLETIME_LOOK_GAPS) {
            note_gap(l, &l->gaps.gap[i]);
        }
        if (l->gaps.gap[i].end_ns > l->start_ns) {
            l->arrival_ns = MIN(l->arrival_ns, l->gaps.gap[i].end_ns);
        }
    }
    if (l->gaps.count > IDLETIME_LOOK_GAPS) {
        idletime_cycle_lost(&l->cycle);
    }
}

/* What came before them costs the foreground something, too. */
static void note_turn(IdletimeLearner *l, const IdletimeTotals *totals,
                      const IdletimeSpan *span)
{
    IdletimeTurn turn = {
        .started = idletime_grown(totals->bg_started, l->bg_started),
        .own = l->own_started,
        .delay_ns = l->collided_ns,
        .met = (totals->fg_in_service && totals->bg_in_service) ||
               l->collided_ns > 0,
        .settled = totals->fg_in_service <= 1 && !totals->bg_in_service,
    };

    idletime_seek_look(&l->seek, span, &turn, l->services.any.mean_ns);
}

static void note_scale(IdletimeLearner *l, const IdletimeTotals *totals,
                       const IdletimeSpan *span, double cost_ns,
                       int64_t idle_ns)
{
    double service_ns = l->services.any.mean_ns;
    IdletimeReckoned reckoned = {
        .delay_ns = span->settled ? l->collision.delay_ns : 0,
        .others_ns = cost_ns - l->said_ns,
        .pieces = l->gaps.count,
        .started = idletime_grown(totals->bg_started, l->bg_started),
        .in_service = totals->bg_in_service,
        .away = idle_ns > 0 && idle_ns >= service_ns,
    };

    idletime_scale_look(&l->scale, span, &reckoned, service_ns);
}

/* What it has cost by now: collisions that are over, and what is owed. */
static uint64_t note_cost(IdletimeLearner *l, const IdletimeSpan *span)
{
    double lost_ns = idletime_cost_look(&l->cost, span,
                                        l->services.any.mean_ns);
    uint64_t cost_ns = l->owed_ns + idletime_scale(&l->scale) *
                                    l->collision.part * lost_ns;

    l->collision.open &= !span->settled;
    l->owed_ns = 0;
    l->said_ns = cost_ns;
    return cost_ns;
}

/*
 * The first look finds gaps that are over, and no sum from before them: the
 * foreground's requests took as long as it was busy, at least.
 */
static void note_span(IdletimeLearner *l, const IdletimeGoal *goal,
                      const IdletimeSpan *span, const IdletimeTotals *totals,
                      double cost_ns, int64_t idle_ns, bool first)
{
    double request_ns = !first ? span->request_ns - cost_ns :
                        l->gaps.count ? span->busy_ns : 0;

    if (idletime_channels_limit(&l->channels) == 1) {
        note_turn(l, totals, span);
        note_scale(l, totals, span, cost_ns, idle_ns);
    }
    note_requests(l, request_ns, l->gaps.count);
    idletime_channels_fg(&l->channels, span->done, span->request_ns,
                         goal->share);
    idletime_channels_earn(&l->channels, goal->share * span->request_ns);
    l->busy_ns = l->gaps.busy_ns;
    l->worked_ns += span->worked_ns;
    l->look_ns = l->gaps.now_ns;
    l->bg_started = totals->bg_started;
    l->own_started = 0;
    l->collided_ns = 0;
}

uint64_t idletime_learner_look(IdletimeLearner *l, const IdletimeGoal *goal,
                               const IdletimeFgBoard *fg, uint32_t slots,
                               const IdletimeTotals *totals, int64_t now_ns)
{
    IdletimeTotals with_cost = *totals;
    double paid_ns = l->budget.cost_ns;
    bool first = !l->budget.started;
    IdletimeSpan span;
    uint64_t cost_ns;
    int64_t idle_ns;

    read_rings(l, fg, slots, now_ns);
    idle_ns = l->gaps.busy ? 0 : now_ns - l->gaps.idle_since_ns;
    if (first) {
        l->worked_ns = idletime_learner_worked(l, totals, now_ns);
    }
    idletime_learner_returned(l, totals);
    span = idletime_learner_span(l, totals, now_ns);
    cost_ns = note_cost(l, &span);
    with_cost.bg_cost_ns += cost_ns;
    idletime_budget_look(&l->budget, goal->share,
                         idletime_learner_collision(l), &with_cost, idle_ns,
                         now_ns);
    note_span(l, goal, &span, totals, l->budget.cost_ns - paid_ns, idle_ns,
              first);
    idletime_spare_look(&l->spare, idletime_gaps_idle(&l->gaps, now_ns),
                        now_ns);
    plan_step(l, goal, now_ns);
    return cost_ns;
}

double idletime_learner_factor(const IdletimeLearner *l)
{
    return idletime_cost_factor(&l->cost) * idletime_scale(&l->scale);
}

double idletime_learner_collision(const IdletimeLearner *l)
{
    return idletime_service_known(&l->services) ?
           l->services.any.mean_ns * idletime_cost_factor(&l->cost) :
           l->channels.mean_ns;
}

/* ---- own requests */

void idletime_learner_started(IdletimeLearner *l, IdletimeFee fee,
                              int64_t now_ns)
{
    l->probed |= fee.probe;
    l->owed_ns += fee.owed_ns;
    l->channels.purse_ns -= fee.purse_ns;
    l->start_ns = now_ns;
    l->arrival_ns = INT64_MAX;
    l->own_started++;
}

/*
 * Until when did background keep it busy?  A host that is stalled sees it
 * complete later; that is not our fault, all of its requests would wait.
 */
static int64_t believed_end(const IdletimeLearner *l,
                            const IdletimeServed *served, int64_t now_ns)
{
    return served->since_ns +
           (int64_t)idletime_service_believed(&l->services, served->bytes,
                                            now_ns - served->since_ns);
}

/*
 * The time of a mixed one is others', too: it teaches no channels, and what a
 * request takes only until something better is known.
 */
void idletime_learner_done(IdletimeLearner *l, const IdletimeServed *served,
                           int64_t now_ns)
{
    double took_ns = now_ns - served->since_ns;
    int64_t end_ns = believed_end(l, served, now_ns);
    bool parallel;

    l->done_ns = now_ns;
    if (served->mixed) {
        idletime_channels_took(&l->channels, took_ns);
    } else {
        idletime_channels_note(&l->channels, served->beside + 1, took_ns);
    }
    parallel = idletime_channels_limit(&l->channels) > 1;
    if (!served->fg_idle && !parallel) {
        return;
    }
    if (!served->mixed || !l->served_alone) {
        idletime_service_note(&l->services, served->bytes, took_ns);
        l->served_alone |= !served->mixed;
    }
    if (!parallel && idletime_service_known(&l->services) &&
        l->arrival_ns < end_ns && l->arrival_ns > served->since_ns) {
        idletime_learner_collided(l, end_ns);
    }
}
