/*
 * Idletime seek: how long the foreground waits because background ran.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * THE WAY BACK
 *
 *   foreground  ######.....................#####    the arm stays where it is
 *   foreground  ######..               ....######--   the arm was elsewhere
 *   background          ################
 *
 * Nobody waits behind background, and still the first one after it takes
 * longer.  That is paid once for each gap in which background ran, however
 * often it did; so the budget has to buy a gap, before it buys starts in it.
 *
 * HOW IT IS TOLD
 *
 * Foreground requests come after other foreground, after a pause in which
 * nothing ran, or after background; in each case
 *
 *   excess = busy time - requests * busy time of one after foreground
 *
 * summed until at most one is in service, less the delay by an own collision.
 * Busy time is that for which any of them was in service.  How long they wait
 * for each other, by chance, is not in it, and that is several times as much
 * as a seek where they come as they like.  What those behind the first one lose
 * by it is told as that of any delay (cost.c).
 *
 * How long one takes after foreground is learned meanwhile: so returns are kept
 * as requests and time, with their variances and covariance, and the excess of
 * all is by what is known now.  As soon as that is known well, they are kept by
 * their excess, for it changes: requests of another size begin, and what came
 * before them still tells what the arm costs.
 *
 * More after background than after foreground is a suspicion: what begins a
 * burst may always take longer.  So now and then, by lot, a gap is left alone
 * that would have been used.  The cost is the difference between both, as soon
 * as it is more than chance and more than an eighth of a service time: less is
 * a host that wakes up.
 *
 * Where the foreground changes, the arm is still the disk's: what it costs
 * stays in force, and weighs no more than a few returns of what comes now.
 *
 * LIMITS
 *
 * Several processes learn the same from the same sums, and draw the same lot,
 * by the time at which the gap began.  Each pays for its share of a gap's
 * starts.  By how much another's request delayed the foreground is not known:
 * returns that met one say nothing.  A collision between two looks is not seen,
 * and counts as a part of the way back.
 */
#include "qemu/osdep.h"
#include "idletime/learner/seek.h"
#include "idletime/core/recent.h"

/* Memory: returns, and requests after foreground. */
#define RETURNS_MAX         256
#define NEAR_MAX            256
/* Less is no mean. */
#define PAUSES_MIN          8
#define PAUSES_ENOUGH       32
#define RETURNS_MIN         8
#define NEAR_MIN            16
/* So many are a good one: 1/11 of the deviation of a request's time. */
#define NEAR_ENOUGH         128
/* After a change so much is left: it is still a mean. */
#define DOUBT               8
/* More than chance: in standard errors; and in service times. */
#define ERRORS              2
#define WORTH               0.125
/* A request took ten services more?  The host was elsewhere. */
#define NOISE               10
/*
 * One gap in so many is left alone: at first, until that is enough to tell, if
 * it costs, if it does not.
 */
#define AWAY_FIRST          2
#define AWAY_TELLING        4
#define AWAY_COSTS          16
#define AWAY_FREE           64

/* ---- sums */

static void note(IdletimeReturns *r, double done, double ns)
{
    double done_off = done - r->done, part;

    r->count = MIN(r->count + 1, RETURNS_MAX);
    part = 1 / r->count;
    idletime_recent_note(&r->done, &r->done_done, done, part);
    idletime_recent_note(&r->ns, &r->ns_ns, ns, part);
    r->done_ns += part * (done_off * (ns - r->ns) - r->done_ns);
}

static double excess(const IdletimeReturns *r, double each_ns)
{
    return r->ns - each_ns * r->done;
}

/* The variance of that. */
static double square(const IdletimeReturns *r, double each_ns)
{
    return MAX(r->ns_ns - 2 * each_ns * r->done_ns +
               each_ns * each_ns * r->done_done, 0);
}

static double error2(const IdletimeReturns *r, double each_ns)
{
    return square(r, each_ns) / MAX(r->count - 1, 1);
}

/* From now on they are their excess, whatever a request takes later. */
static void keep_excess(IdletimeReturns *r, double each_ns)
{
    *r = (IdletimeReturns) {
        .count = r->count, .ns = excess(r, each_ns),
        .ns_ns = square(r, each_ns),
    };
}

/* By more than chance, and worth it. */
static bool more(double excess_ns, double square, double service_ns)
{
    return excess_ns > WORTH * service_ns &&
           excess_ns * excess_ns > ERRORS * ERRORS * square;
}

/* A request after foreground; by ours where none is known. */
static double each_ns(const IdletimeSeek *s, double service_ns)
{
    return s->near_done >= NEAR_MIN ? s->near_ns / s->near_done : service_ns;
}

/* After background a return takes so much longer than after a pause. */
static double longer(const IdletimeSeek *s, double each_ns)
{
    return excess(&s->bg, each_ns) - excess(&s->pause, each_ns);
}

static double longer_error2(const IdletimeSeek *s, double each_ns)
{
    return error2(&s->bg, each_ns) + error2(&s->pause, each_ns);
}

/* Not worth it, by more than chance. */
static bool told_free(const IdletimeSeek *s, double service_ns)
{
    double each = each_ns(s, service_ns);
    double spare_ns = WORTH * service_ns - longer(s, each);

    return spare_ns > 0 && spare_ns * spare_ns >
           ERRORS * ERRORS * longer_error2(s, each);
}

static void note_near(IdletimeSeek *s)
{
    s->near_done += s->done;
    s->near_ns += s->busy_ns;
    idletime_recent_limit(&s->near_ns, &s->near_done, NEAR_MAX);
}

static void keep_returns(IdletimeSeek *s, double service_ns)
{
    double each = each_ns(s, service_ns);

    if (s->near_done >= NEAR_ENOUGH) {
        keep_excess(&s->pause, each);
        keep_excess(&s->bg, each);
    }
}

/* Without what is known to be of something else, and stalls of the host. */
static double believed_ns(const IdletimeSeek *s, double service_ns)
{
    double usual_ns = s->done * each_ns(s, service_ns);
    double most_ns = NOISE * service_ns * s->done;

    return MIN(MAX(s->busy_ns - s->delay_ns, usual_ns - most_ns),
               usual_ns + most_ns);
}

static bool suspicious(const IdletimeSeek *s, double service_ns)
{
    double each = each_ns(s, service_ns);

    return s->bg.count >= RETURNS_MIN &&
           (s->near_done < NEAR_MIN ||
            more(excess(&s->bg, each), error2(&s->bg, each), service_ns));
}

static void judge(IdletimeSeek *s, double service_ns)
{
    double each = each_ns(s, service_ns);
    double cost_ns = longer(s, each);

    /* While nothing is suspected, no gap is left alone: pauses are of then. */
    s->cost_ns = suspicious(s, service_ns) && s->pause.count >= PAUSES_MIN &&
                 more(cost_ns, longer_error2(s, each), service_ns) ?
                 cost_ns : 0;
}

/* ---- gaps left alone */

static uint32_t away_every(const IdletimeSeek *s, double service_ns)
{
    /* With nothing to compare it is no suspicion, and no hurry. */
    return s->near_done < NEAR_MIN ? AWAY_COSTS :
           s->pause.count < PAUSES_MIN ? AWAY_FIRST :
           s->cost_ns > 0 ? AWAY_COSTS :
           s->pause.count >= PAUSES_ENOUGH || told_free(s, service_ns) ?
           AWAY_FREE : AWAY_TELLING;
}

/* By lot, that it may not beat with the foreground (Knuth's hash). */
static bool one_in(uint64_t gap, uint32_t n)
{
    return (gap * 0x9e3779b97f4a7c15ULL >> 32) % n == 0;
}

static void begin(IdletimeSeek *s, IdletimeBefore before)
{
    s->before = before;
    s->done = s->busy_ns = s->delay_ns = s->started = s->own = 0;
    s->met = s->beside = s->drawn = false;
}

bool idletime_seek_away(IdletimeSeek *s, double service_ns, uint64_t gap)
{
    if (s->before == IDLETIME_BEFORE_FG && !s->drawn &&
        suspicious(s, service_ns)) {
        s->drawn = true;
        if (one_in(gap, away_every(s, service_ns))) {
            begin(s, IDLETIME_BEFORE_PAUSE);
        }
    }
    return s->before == IDLETIME_BEFORE_PAUSE;
}

/* ---- looks */

/* It was not delayed by anything else, or it is known by how much. */
static bool clear(const IdletimeSeek *s)
{
    return !s->met ||
           (s->delay_ns > 0 && !s->beside && s->own >= s->started);
}

/* The foreground is back, and its first requests are served. */
static void end(IdletimeSeek *s, double service_ns)
{
    if (service_ns <= 0) {
        return;     /* nothing would be believed */
    }
    keep_returns(s, service_ns);
    if (s->before == IDLETIME_BEFORE_PAUSE) {
        note(&s->pause, s->done, believed_ns(s, service_ns));
    } else if (clear(s)) {
        note(&s->bg, s->done, believed_ns(s, service_ns));
    }
    judge(s, service_ns);
}

void idletime_seek_look(IdletimeSeek *s, const IdletimeSpan *span,
                        const IdletimeTurn *turn, double service_ns)
{
    if (span->background && s->before != IDLETIME_BEFORE_BG) {
        begin(s, IDLETIME_BEFORE_BG);
    }
    s->started += turn->started;
    s->own += turn->own;
    s->delay_ns = MAX(s->delay_ns, turn->delay_ns);
    s->met |= turn->met;
    s->beside |= turn->own > 0 && s->busy;
    s->busy = span->in_service > 0;
    s->done += span->done;
    s->busy_ns += span->worked_ns;
    if (s->before == IDLETIME_BEFORE_FG && s->done > 0) {
        note_near(s);
        begin(s, IDLETIME_BEFORE_FG);
    } else if (turn->settled && s->done > 0) {
        end(s, service_ns);
        begin(s, IDLETIME_BEFORE_FG);
    }
}

void idletime_seek_doubt(IdletimeSeek *s)
{
    s->pause.count = MIN(s->pause.count, DOUBT);
    s->bg.count = MIN(s->bg.count, DOUBT);
}

double idletime_seek_share(const IdletimeSeek *s, double own, double started)
{
    if (s->before == IDLETIME_BEFORE_BG) {
        own += s->own;
        started += s->started;
    }
    return s->cost_ns > 0 && started > 0 ? MIN(own / started, 1) : 0;
}

double idletime_seek_price(const IdletimeSeek *s)
{
    return s->before == IDLETIME_BEFORE_BG ? 0 : s->cost_ns;
}
