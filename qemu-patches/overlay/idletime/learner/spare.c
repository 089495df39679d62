/*
 * Idletime spare: how much of the time the resource was free.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Sixty seconds and sixty minutes, each filled from the growth of the total
 * idle time when its period is over.  Looks come when the background is at
 * work; a longer pause between two of them spreads its mean over the periods.
 *
 * The forecast is that of the two simplest forecasters (as the last minute, as
 * the last hour) which was nearer to the truth in the recent past.
 */
#include "qemu/osdep.h"
#include "idletime/learner/spare.h"

#define SECOND_NS       (1000 * 1000 * 1000LL)
/* Errors are averaged over about so many minutes. */
#define MISS_MEMORY     8

void idletime_spare_init(IdletimeSpare *s)
{
    memset(s, 0, sizeof(*s));
    s->seconds.period_ns = SECOND_NS;
    s->minutes.period_ns = 60 * SECOND_NS;
    s->said[0] = s->said[1] = -1;
}

static double mean_of(const IdletimeSpareRing *r, uint32_t last)
{
    uint32_t n = MIN(MIN(r->count, last), IDLETIME_SPARE_SLOTS);
    double sum = 0;

    for (uint32_t i = 1; i <= n; i++) {
        sum += r->share[(r->count - i) % IDLETIME_SPARE_SLOTS];
    }
    return n ? sum / n : -1;
}

static uint32_t ring_look(IdletimeSpareRing *r, int64_t idle_ns, int64_t now_ns)
{
    int64_t elapsed_ns = now_ns - r->begin_ns;
    int64_t periods = elapsed_ns / r->period_ns;
    double share = (double)(idle_ns - r->idle_ns) / MAX(elapsed_ns, 1);

    if (!r->begin_ns || elapsed_ns < 0) {
        r->begin_ns = now_ns;
        r->idle_ns = idle_ns;
        return 0;
    }
    if (periods < 1) {
        return 0;
    }
    for (int64_t i = 0; i < MIN(periods, IDLETIME_SPARE_SLOTS); i++) {
        r->share[r->count++ % IDLETIME_SPARE_SLOTS] = MIN(MAX(share, 0), 1);
    }
    r->begin_ns = now_ns;
    r->idle_ns = idle_ns;
    return MIN(periods, IDLETIME_SPARE_SLOTS);
}

static void judge(IdletimeSpare *s)
{
    double truth = mean_of(&s->minutes, 1);

    for (int i = 0; i < IDLETIME_FORECAST__MAX; i++) {
        double miss = truth > s->said[i] ? truth - s->said[i] :
                                           s->said[i] - truth;

        if (s->said[i] >= 0) {
            s->miss[i] += (miss - s->miss[i]) / MISS_MEMORY;
        }
    }
    s->said[IDLETIME_FORECAST_MINUTE] = truth;
    s->said[IDLETIME_FORECAST_HOUR] = idletime_spare_hour(s);
}

void idletime_spare_look(IdletimeSpare *s, int64_t idle_ns, int64_t now_ns)
{
    ring_look(&s->seconds, idle_ns, now_ns);
    if (ring_look(&s->minutes, idle_ns, now_ns)) {
        judge(s);
    }
}

double idletime_spare_second(const IdletimeSpare *s)
{
    return mean_of(&s->seconds, 1);
}

double idletime_spare_minute(const IdletimeSpare *s)
{
    return mean_of(&s->seconds, IDLETIME_SPARE_SLOTS);
}

double idletime_spare_hour(const IdletimeSpare *s)
{
    return mean_of(&s->minutes, IDLETIME_SPARE_SLOTS);
}

double idletime_spare_forecast(const IdletimeSpare *s)
{
    if (s->said[IDLETIME_FORECAST_MINUTE] < 0) {
        return idletime_spare_minute(s);
    }
    return s->said[s->miss[IDLETIME_FORECAST_HOUR] <
                   s->miss[IDLETIME_FORECAST_MINUTE]];
}
