/*
 * Idletime spare: how much of the time the resource was free.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Shares of time, 0 to 1; below 0: not known.  Pure.
 */
#ifndef IDLETIME_SPARE_H
#define IDLETIME_SPARE_H

#define IDLETIME_SPARE_SLOTS    60

typedef enum IdletimeForecaster {
    IDLETIME_FORECAST_MINUTE,   /* as the last minute was */
    IDLETIME_FORECAST_HOUR,     /* as the last hour was */
    IDLETIME_FORECAST__MAX,
} IdletimeForecaster;

/* Shares of the last 60 periods, newest last written. */
typedef struct IdletimeSpareRing {
    float share[IDLETIME_SPARE_SLOTS];
    uint32_t count;             /* ever written */
    int64_t period_ns;
    int64_t begin_ns;           /* of the period under way; 0: none yet */
    int64_t idle_ns;            /* total then */
} IdletimeSpareRing;

typedef struct IdletimeSpare {
    IdletimeSpareRing seconds, minutes;
    double miss[IDLETIME_FORECAST__MAX];        /* mean absolute error */
    double said[IDLETIME_FORECAST__MAX];        /* for this minute */
} IdletimeSpare;

void idletime_spare_init(IdletimeSpare *s);

/** idletime_spare_look: the foreground has been idle for @idle_ns so far. */
void idletime_spare_look(IdletimeSpare *s, int64_t idle_ns, int64_t now_ns);

double idletime_spare_second(const IdletimeSpare *s);
double idletime_spare_minute(const IdletimeSpare *s);
double idletime_spare_hour(const IdletimeSpare *s);
/** idletime_spare_forecast: for the next minute. */
double idletime_spare_forecast(const IdletimeSpare *s);

#endif
