/*
 * Idletime seek: how long the foreground waits because background ran.
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
 * over: means of its requests and of the time for which some was in service,
 * and their (co)variances.
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
    double done, busy_ns, started, own;
    double delay_ns;            /* of own collision */

    double near_done, near_ns;          /* after foreground */
    IdletimeReturns pause, bg;
    double cost_ns;                     /* how much longer; 0: not proven */
    bool met;                           /* background in service */
    bool beside;                        /* own, that began beside it */
    bool busy;                          /* foreground, at the last look */
    bool drawn;                         /* for this gap */
} IdletimeSeek;

/* What else is known of a span. */
typedef struct IdletimeTurn {
    double started, own;        /* background requests, own ones of these */
    double delay_ns;            /* own collision: of the first request */
    bool met;                   /* foreground by background in service */
    bool settled;               /* one foreground request, at most, is left */
} IdletimeTurn;

/** idletime_seek_look: @service_ns of a background request, on average. */
void idletime_seek_look(IdletimeSeek *s, const IdletimeSpan *span,
                        const IdletimeTurn *turn, double service_ns);

/** idletime_seek_doubt: the workload changed; what was learned weighs less */
void idletime_seek_doubt(IdletimeSeek *s);

/**
 * idletime_seek_share: our part of the starts before the return that begins, 0
 * to 1; 0, too: it is not proven that it costs anything.
 * @own, @started: since the last look
 */
double idletime_seek_share(const IdletimeSeek *s, double own, double started);

/**
 * idletime_seek_price: by how much the first start in this gap delays the
 * return, in ns; 0 if background ran in it already.
 */
double idletime_seek_price(const IdletimeSeek *s);

/**
 * idletime_seek_away: a request may start; leave this gap alone instead, to
 * see what that changes?  The same answer until the foreground returns.
 * @gap: tells the gap from others, and is the same in all processes
 */
bool idletime_seek_away(IdletimeSeek *s, double service_ns, uint64_t gap);

#endif
