/*
 * Idletime seek: what it costs the foreground that background ran.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A seek back, on a disk with an arm.  Measured from sums.  Pure.
 */
#ifndef IDLETIME_SEEK_H
#define IDLETIME_SEEK_H

#include "idletime/learner/cost.h"

/*
 * Returns of the foreground after something, by what each took until it was
 * over: means of its requests and of their time, and their (co)variances.
 */
typedef struct IdletimeReturns {
    double count, done, ns;
    double done_done, done_ns, ns_ns;
} IdletimeReturns;

typedef enum IdletimeBefore {
    IDLETIME_BEFORE_FG,         /* foreground, a moment ago */
    IDLETIME_BEFORE_PAUSE,      /* a gap that was left alone, by lot */
    IDLETIME_BEFORE_BG,         /* background */
} IdletimeBefore;

typedef struct IdletimeSeek {
    /* What the present foreground requests come after, and their sums. */
    IdletimeBefore before;
    double done, request_ns, started, own;
    double said_ns, charged_ns; /* what all said; of that, for returns */

    double near_done, near_ns;          /* after foreground */
    IdletimeReturns pause, bg;
    double cost_ns;                     /* of a return; 0: not proven */
    bool met;                           /* background in service */
    bool drawn;                         /* for this gap */
} IdletimeSeek;

/* What else is known of a span. */
typedef struct IdletimeTurn {
    double started, own;        /* background requests, own ones of these */
    double cost_ns;             /* that all background said it cost */
    bool met;                   /* foreground by background in service */
    bool settled;               /* one foreground request, at most, is left */
} IdletimeTurn;

/**
 * idletime_seek_look: @service_ns of a background request, on average.
 * Returns what a return of the foreground has cost it because of us, in ns.
 */
double idletime_seek_look(IdletimeSeek *s, const IdletimeSpan *span,
                            const IdletimeTurn *turn, double service_ns);

/** idletime_seek_doubt: the workload changed; what was learned weighs less */
void idletime_seek_doubt(IdletimeSeek *s);

/**
 * idletime_seek_price: what the first start in this gap costs, in ns of
 * foreground time, collisions apart; 0 if background ran in it already.
 */
double idletime_seek_price(const IdletimeSeek *s);

/**
 * idletime_seek_away: a request may start; leave this gap alone instead, to
 * see what that changes?  The same answer until the foreground returns.
 * @gap: tells the gap from others, and is the same in all processes
 */
bool idletime_seek_away(IdletimeSeek *s, double service_ns, uint64_t gap);

#endif
