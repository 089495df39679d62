/*
 * Idletime channels: how many requests the resource serves at a time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pure.
 */
#ifndef IDLETIME_CHANNELS_H
#define IDLETIME_CHANNELS_H

/* Requests in service, foreground and background together. */
#define IDLETIME_LEVELS         96

typedef struct IdletimeLevel {
    double count;
    double mean_ns;             /* of requests that started as number so-many */
    double square;              /* mean square deviation */
} IdletimeLevel;

typedef struct IdletimeChannels {
    IdletimeLevel level[IDLETIME_LEVELS + 1];
    uint32_t limit;             /* background may start as number so-many; */
                                /* 1: only alone */
    uint32_t wall;              /* first level that waits; 0: not seen yet */
    double mean_ns;             /* at all levels */
    double purse_ns;            /* for probes: foreground time */

    /* Foreground latency: measured against that without us. */
    double done, request_ns;    /* of the present measurement */
    bool away;                  /* it is of the foreground without us */
    uint32_t own;               /* own requests in it */
    uint32_t since_away;        /* measurements */
    double alone_ns;
    uint32_t ceiling;           /* by foreground latency */
    double dear;                /* one server: what is beside it costs more */
    double slowdown;            /* of the last measurement */
} IdletimeChannels;

void idletime_channels_init(IdletimeChannels *c);

/** idletime_channels_took: an own one, beside who knows how many. */
void idletime_channels_took(IdletimeChannels *c, double ns);

/** idletime_channels_note: an own one, started as number @n, took @ns. */
void idletime_channels_note(IdletimeChannels *c, uint32_t n, double ns);

/** idletime_channels_fg: so many completed, so long in service together. */
void idletime_channels_fg(IdletimeChannels *c, double done, double request_ns,
                          double share);

/** idletime_channels_limit: now; more than 1: the resource is parallel. */
uint32_t idletime_channels_limit(const IdletimeChannels *c);

/**
 * idletime_channels_probe: may one be started as number @n to see how long
 * it takes?
 * @cost_ns: what the foreground loses if there is one server
 * @price_ns: if so, what it takes of the purse when it starts
 */
bool idletime_channels_probe(const IdletimeChannels *c, uint32_t n,
                             double cost_ns, double *price_ns);

/** idletime_channels_earn: the budget has earned @ns. */
void idletime_channels_earn(IdletimeChannels *c, double ns);

#endif
