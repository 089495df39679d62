/*
 * Idletime scale: what collisions really cost, for each ns that was reckoned.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * WHY THAT IS LESS
 *
 *   in QEMU      background  |----------|
 *                foreground        |------------|
 *                reckoned          |----|
 *   at the disk  background    ######
 *                foreground          |..#######
 *                waits               |--|         less the way there and back
 *
 * A collision is reckoned (cost.c) from the foreground's arrival to the end of
 * the background's request, as QEMU sees both.  While the one is on its way to
 * the disk, and the end of the other on its way back, nobody waits.  On a disk
 * in this machine that is next to nothing, on one behind a network a part.
 *
 * HOW IT IS TOLD
 *
 * From busy periods of the foreground, each after a gap in which background
 * ran.  Those that met none of it say what a period takes:
 *
 *   busy = requests * a + pieces * b       (least squares)
 *
 * A piece is busy time without a pause; b is what its first request spends on
 * its way, on which those behind it spend nothing more, as they wait anyway.
 * Periods that met some took longer, and that is what the first request really
 * waited.  Busy time, not the sum of all requests' times: how long foreground
 * requests wait for each other, by chance, is not in it.
 *
 * LIMITS
 *
 * One server.  Two standard errors are taken for chance.  Periods in which
 * other processes delayed the foreground, or something was started beside it,
 * say nothing, and what a process has not learned it pays in full.
 */
#include "qemu/osdep.h"
#include "idletime/learner/scale.h"
#include "idletime/core/recent.h"

/* Memory: periods without a collision, and with one. */
#define CLEAR_MAX           1024
#define MET_MAX             512
/* Fewer are no mean.  After a change so much is left. */
#define PERIODS_MIN         16
#define MET_DOUBT           8
/* What may be chance: standard errors. */
#define ERRORS              2
/* If each request is a piece of its own, b cannot be told: it is 0. */
#define RIDGE               0.001
/* No way is so long that more than half of what is reckoned is not paid. */
#define LESS_MOST           0.5
/* A period lost ten times as much?  The host was elsewhere. */
#define NOISE               10

/* ---- what a period takes */

typedef struct Fit {
    double request_ns, piece_ns;
    double square;              /* of what a period is off by */
} Fit;

static Fit fit(const IdletimeScale *s)
{
    double pieces_pieces = s->pieces_pieces * (1 + RIDGE);
    double det = s->done_done * pieces_pieces - s->done_pieces * s->done_pieces;
    Fit f = { .request_ns = s->done_busy / s->done_done };

    if (det > 0) {
        f.request_ns = (s->done_busy * pieces_pieces -
                        s->pieces_busy * s->done_pieces) / det;
        f.piece_ns = (s->pieces_busy * s->done_done -
                      s->done_busy * s->done_pieces) / det;
    }
    f.square = MAX(s->busy_busy - f.request_ns * s->done_busy -
                   f.piece_ns * s->pieces_busy, 0) / s->clear;
    return f;
}

static void limit_clear(IdletimeScale *s, double most)
{
    double part = idletime_recent_part(s->clear, most);

    s->clear *= part;
    s->done_done *= part;
    s->done_pieces *= part;
    s->pieces_pieces *= part;
    s->done_busy *= part;
    s->pieces_busy *= part;
    s->busy_busy *= part;
}

static void note_clear(IdletimeScale *s)
{
    const IdletimePeriod *p = &s->now;

    s->clear++;
    s->done_done += p->done * p->done;
    s->done_pieces += p->done * p->pieces;
    s->pieces_pieces += p->pieces * p->pieces;
    s->done_busy += p->done * p->busy_ns;
    s->pieces_busy += p->pieces * p->busy_ns;
    s->busy_busy += p->busy_ns * p->busy_ns;
    limit_clear(s, CLEAR_MAX);
}

/* ---- what one with a collision lost */

static void limit_met(IdletimeScale *s, double most)
{
    double part = idletime_recent_part(s->met, most);

    s->met *= part;
    s->met_done *= part;
    s->met_delay_ns *= part;
    s->met_lost_ns *= part;
    s->met_square *= part;
}

/* What may be chance is taken off (James and Stein's estimator). */
static void judge(IdletimeScale *s, Fit f)
{
    double less_ns = s->met_delay_ns - s->met_lost_ns;
    double square = s->met_square +
                    f.square * s->met_done * s->met_done / s->done_done;
    double chance = ERRORS * ERRORS * square;

    s->less = s->met >= PERIODS_MIN && less_ns > 0 ?
              MIN(MAX(1 - chance / (less_ns * less_ns), 0) * less_ns /
                  s->met_delay_ns, LESS_MOST) : 0;
}

static void note_met(IdletimeScale *s, double service_ns)
{
    Fit f = fit(s);
    double most_ns = NOISE * MAX(service_ns, s->delay_ns);
    double lost_ns = s->now.busy_ns - f.request_ns * s->now.done -
                     f.piece_ns * s->now.pieces;
    double off_ns;

    lost_ns = MIN(MAX(lost_ns, -most_ns), most_ns);
    off_ns = lost_ns - s->delay_ns * idletime_scale(s);
    s->met++;
    s->met_done += s->now.done;
    s->met_delay_ns += s->delay_ns;
    s->met_lost_ns += lost_ns;
    s->met_square += off_ns * off_ns;
    limit_met(s, MET_MAX);
    judge(s, f);
}

/* ---- looks */

/* The foreground is back: what came before is a whole period. */
static void end(IdletimeScale *s, double service_ns)
{
    if (s->used && !s->unclear && s->now.done > 0) {
        if (s->delay_ns <= 0) {
            note_clear(s);
        } else if (s->clear >= PERIODS_MIN) {
            note_met(s, service_ns);
        }
    }
    s->now = (IdletimePeriod) { 0 };
    s->delay_ns = 0;
    s->used = s->next_used;
    s->over = s->next_used = s->unclear = false;
}

void idletime_scale_look(IdletimeScale *s, const IdletimeSpan *span,
                         const IdletimeReckoned *reckoned, double service_ns)
{
    bool unclear;

    /* What starts while the foreground is idle ends its period. */
    s->over |= s->now.done > 0 && s->idle && span->background;
    s->used |= span->background && !s->over;
    s->next_used |= span->background && s->over;
    s->beside |= reckoned->started > 0 && !s->idle;
    /* What others say now may be of this period, and of the one before. */
    unclear = reckoned->others_ns > 0 || s->beside;
    s->unclear |= unclear;
    if (s->over && span->came > 0) {
        end(s, service_ns);
        s->unclear = unclear;
    }
    s->now.done += span->done;
    s->now.pieces += reckoned->pieces;
    s->now.busy_ns += span->busy_ns;
    s->delay_ns += reckoned->delay_ns;
    s->idle = span->in_service == 0;
    s->over |= reckoned->away && s->now.done > 0;
    s->beside &= reckoned->in_service;
}

void idletime_scale_doubt(IdletimeScale *s)
{
    limit_clear(s, PERIODS_MIN);
    limit_met(s, MET_DOUBT);
}
