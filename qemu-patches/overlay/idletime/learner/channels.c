/*
 * Idletime channels: how many requests the resource serves at a time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A disk with one head serves one request after the other: one that starts as
 * number 2 takes twice as long.  A solid state disk with 16 channels serves
 * 16 as fast as one, and number 17 waits:
 *
 *   time of a request     one head   /          16 channels           /
 *   that starts as                 /                                /
 *   number n                     /                  ______________/
 *                              1 2 3 4                1 . . . . 16
 *
 * So our own requests are the measure: the one that would start as number n+1
 * waits as the next foreground request would.  Background fills up to the last
 * n at which that wait is within the budget; the foreground finds a channel.
 *
 * The curve is flat or it is not: what counts is that a request at n takes as
 * long as one at 2/3 n or less.  A disk that is always busy shows no level 1,
 * and a time alone says nothing about how it comes about.
 *
 * What the foreground really gets has the last word: where its mean latency
 * exceeds what it is without us by more than the budget, the ceiling falls.
 * Without us: now and then we stay away for one measurement.  The lowest that
 * was ever seen would not do: that is luck, and of another day's workload.
 */
#include "qemu/osdep.h"
#include "idletime/learner/channels.h"
#include "idletime/core/recent.h"

/* Less is no mean. */
#define LEVEL_MIN           8
/* Memory, requests a level. */
#define LEVEL_MEMORY        512
#define MEAN_MEMORY         32
/* A level is flat if not slower than those below it by more than this. */
#define FLAT                1.005
/* Levels compared lie at least so far apart. */
#define APART               1.5
/*
 * A wall may be chance, or of an hour when the host was busy, and nothing that
 * starts there would show it: so it is forgotten, in so many of our requests.
 */
#define WALL_MEMORY         8192
/* So many probes of a level tell enough; then one costs as much as 16. */
#define PROBE_ENOUGH        16
#define PROBE_AGAIN         16
/* Part of what the budget earns that may be spent on probes, and its purse. */
#define PROBE_SHARE         0.1
#define PROBE_PURSE         20
/* Foreground requests a measurement. */
#define FG_DONE             4096
/* Away for one measurement in so many; more often where the ceiling binds. */
#define AWAY_EVERY          32
#define AWAY_EVERY_BOUND    8
/* Then background starts only where there is next to no foreground. */
#define AWAY_LIMIT          2
/* With more own requests in it, it measures no time without them. */
#define AWAY_OWN            256
/*
 * One server, a foreground that leaves no gap: what a start beside it costs is
 * reckoned, and what the foreground gets corrects that.  So much at a time.
 */
#define DEAR_MORE           4
#define DEAR_LESS           0.9
#define DEAR_MAX            64
/* Of the foreground without us, the weight of the last measurement. */
#define AWAY_PART           0.5

void idletime_channels_init(IdletimeChannels *c)
{
    memset(c, 0, sizeof(*c));
    c->limit = 1;
    c->ceiling = IDLETIME_LEVELS;
    c->dear = 1;
    c->away = true;
}

static const IdletimeLevel *known(const IdletimeChannels *c, uint32_t n)
{
    return c->level[n].count >= LEVEL_MIN ? &c->level[n] : NULL;
}

static uint32_t lowest_level(const IdletimeChannels *c)
{
    uint32_t n = 1;

    while (n <= IDLETIME_LEVELS && !known(c, n)) {
        n++;
    }
    return n;
}

/* Levels that are as fast as those below them: their pooled time. */
typedef struct Flat {
    uint32_t low, high;
    double count, sum, square;
} Flat;

/* By more than three standard errors, those of both: not by chance. */
static bool slower(const IdletimeLevel *level, const Flat *f)
{
    double over = level->mean_ns - FLAT * f->sum / f->count;

    return over > 0 && over * over > 9 * (level->square / level->count +
                                          f->square / f->count / f->count);
}

static void flat_add(Flat *f, const IdletimeLevel *level, uint32_t n)
{
    f->high = n;
    f->count += level->count;
    f->sum += level->count * level->mean_ns;
    f->square += level->count * level->square;
}

/* Up to the first level that is slower than those below it: the wall. */
static Flat flat_part(IdletimeChannels *c)
{
    Flat f = { .low = lowest_level(c) };

    c->wall = 0;
    for (uint32_t n = f.low; n <= IDLETIME_LEVELS && !c->wall; n++) {
        const IdletimeLevel *level = known(c, n);

        if (level && f.count > 0 && slower(level, &f)) {
            c->wall = n;
        } else if (level) {
            flat_add(&f, level, n);
        }
    }
    return f;
}

static void find_limit(IdletimeChannels *c)
{
    Flat flat = flat_part(c);

    c->limit = 1;
    if (flat.high >= 2 && flat.high >= APART * flat.low) {
        /* One channel stays free, for the next foreground request. */
        c->limit = flat.high - 1;
    }
}

static void start_measurement(IdletimeChannels *c, bool away)
{
    c->done = c->request_ns = 0;
    c->away = away;
    c->own = 0;
}

void idletime_channels_took(IdletimeChannels *c, double ns)
{
    c->mean_ns += (ns - c->mean_ns) / (c->mean_ns > 0 ? MEAN_MEMORY : 1);
}

void idletime_channels_note(IdletimeChannels *c, uint32_t n, double ns)
{
    IdletimeLevel *level;

    if (n < 1 || n > IDLETIME_LEVELS) {
        return;
    }
    if (c->away && c->own++ == AWAY_OWN) {
        start_measurement(c, false);
    }
    idletime_channels_took(c, ns);
    level = &c->level[n];
    level->count = MIN(level->count + 1, LEVEL_MEMORY);
    idletime_recent_note(&level->mean_ns, &level->square, ns,
                         1 / level->count);
    find_limit(c);
    if (c->limit > 1 && c->wall) {
        c->level[c->wall].count *= 1 - 1.0 / WALL_MEMORY;
    }
}

static void note_alone(IdletimeChannels *c, double mean_ns)
{
    c->alone_ns += (mean_ns - c->alone_ns) *
                   (c->alone_ns > 0 ? AWAY_PART : 1);
}

static void set_ceiling(IdletimeChannels *c, double mean_ns, double share)
{
    c->slowdown = c->alone_ns > 0 ? mean_ns / c->alone_ns - 1 : 0;
    c->dear = MAX(c->dear * DEAR_LESS, 1);
    if (c->slowdown > share) {
        c->ceiling = MAX(MIN(c->ceiling, c->limit) - 1, 1);
        c->dear = MIN(c->dear * MIN(c->slowdown / share, DEAR_MORE), DEAR_MAX);
    } else if (c->slowdown < share / 2) {
        c->ceiling = MIN(c->ceiling + 1, IDLETIME_LEVELS);
    }
}

void idletime_channels_fg(IdletimeChannels *c, double done, double request_ns,
                          double share)
{
    uint32_t every;

    c->done += done;
    c->request_ns += request_ns;
    if (c->done < FG_DONE) {
        return;
    }
    if (c->away) {
        note_alone(c, c->request_ns / c->done);
        c->since_away = 0;
    } else {
        set_ceiling(c, c->request_ns / c->done, share);
        c->since_away++;
    }
    every = c->ceiling < c->limit ? AWAY_EVERY_BOUND : AWAY_EVERY;
    start_measurement(c, c->since_away >= every || c->alone_ns == 0);
}

uint32_t idletime_channels_limit(const IdletimeChannels *c)
{
    uint32_t limit = MIN(c->limit, c->ceiling);

    return c->away ? MIN(limit, AWAY_LIMIT) : limit;
}

void idletime_channels_earn(IdletimeChannels *c, double ns)
{
    c->purse_ns = MIN(c->purse_ns + PROBE_SHARE * ns,
                      PROBE_PURSE * c->mean_ns);
}

static bool is_unknown(const IdletimeChannels *c, uint32_t n)
{
    return n <= IDLETIME_LEVELS && n != c->wall &&
           c->level[n].count < PROBE_ENOUGH;
}

bool idletime_channels_probe(const IdletimeChannels *c, uint32_t n,
                             double cost_ns, double *price_ns)
{
    bool unknown = is_unknown(c, n);
    double most_ns = PROBE_PURSE * c->mean_ns;
    /* The next one up is tried from here: enough has to be left for it. */
    double rest_ns = !unknown && n != c->wall && is_unknown(c, n + 1) ?
                     cost_ns : 0;

    *price_ns = MIN(cost_ns * (unknown ? 1 : PROBE_AGAIN), most_ns);
    /* A step up, or anywhere while nothing is known; never past the wall. */
    return c->purse_ns >= MIN(*price_ns + rest_ns, most_ns) &&
           !(c->wall && n > c->wall) &&
           !(c->limit > 1 && n > idletime_channels_limit(c) + 2);
}
