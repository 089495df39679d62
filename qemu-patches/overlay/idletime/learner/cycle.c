/*
 * Idletime cycle: the second clock, time since the last burst began.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What comes at fixed times comes at fixed times after its last coming, but
 * not after its last going: a burst of six requests takes now 30 ms, now 34.
 *
 *   foreground  ######.............######...............######......
 *   cycle       |------------------|--------------------|
 *   gap               |------------|     |--------------|
 *
 * So expected delays and windows are computed over a second clock, too.  Which
 * one is right?  Both are asked, gap by gap, for what they would have done,
 * before they learn of it: as many starts as fit into the windows, and the
 * delay of the last one.  The second clock is believed if it gained more, by
 * more than chance: the sum over cycles against the root of their squares.
 *
 * A gap that is too short for one request belongs to its burst.
 */
#include "qemu/osdep.h"
#include "idletime/learner/cycle.h"

/* Memory in cycles: as long as that of gaps in bursts of four. */
static const IdletimeHalfLife cycle_life = { 256, 120e9 };
/* Means and gains are over so many cycles. */
#define MEMORY          64
/* Less is no distribution. */
#define READY_CYCLES    6
/* A gap with room for more says little about how it ends. */
#define REPLAY_MAX      256
/*
 * Between clocks that are equally good nothing is gained by a change; and by
 * chance one of them is always ahead: so many standard errors are more.
 */
#define BETTER          1.001
#define ERRORS          2

void idletime_cycle_init(IdletimeCycle *c)
{
    memset(c, 0, sizeof(*c));
    idletime_histogram_init(&c->length);
    c->onset_ns = INT64_MIN;
}

void idletime_cycle_lost(IdletimeCycle *c)
{
    c->onset_ns = INT64_MIN;
}

/* What starts within @w gain in a gap; its clock is ahead by @ahead_ns. */
static double replay(const IdletimeWindows *w, int64_t ahead_ns,
                     int64_t begin_ns, int64_t length_ns, double price)
{
    int64_t service_ns = w->service.mean_ns;
    int64_t age_ns = begin_ns;
    double paid_ns = 0;
    int starts = 0;

    for (; starts < REPLAY_MAX; starts++) {
        int64_t next_ns = idletime_windows_next(w, ahead_ns + age_ns,
                                                starts > 0);

        if (next_ns == INT64_MAX || next_ns - ahead_ns >= length_ns) {
            return (double)starts * service_ns - paid_ns;
        }
        paid_ns = price * w->seek_ns;
        age_ns = next_ns - ahead_ns + service_ns;
        if (age_ns > length_ns) {
            return (starts + 1.0) * service_ns - paid_ns -
                   price * (age_ns - length_ns);
        }
        age_ns += w->service.turnaround_ns;
    }
    return 0;
}

static void compare(IdletimeCycle *c, const IdletimeGap *gap,
                    const IdletimeWindows *by_age, double request_ns)
{
    /* A percent of slowdown is worth a percent of background, or more. */
    double price = MAX(by_age->price, by_age->starts *
                                      by_age->service.mean_ns / request_ns);
    int64_t length_ns = gap->end_ns - gap->begin_ns;
    double gain_ns = replay(&c->windows, gap->begin_ns - c->onset_ns,
                            c->windows.begin_ns, length_ns, price);
    double other_ns = replay(by_age, 0, 0, length_ns, price);

    c->gain_ns += gain_ns;
    c->other_ns += other_ns;
    c->ahead_ns += gain_ns - other_ns;
}

static double mean(double before, double value)
{
    return before > 0 ? before + (value - before) / MEMORY : value;
}

static void note_onset(IdletimeCycle *c, const IdletimeGap *gap)
{
    int64_t length_ns = gap->end_ns - c->onset_ns;

    c->lead_ns = mean(c->lead_ns, gap->begin_ns - c->onset_ns);
    c->gaps = mean(c->gaps, c->gap_count);
    c->square += c->ahead_ns * c->ahead_ns;
    c->ahead_ns = 0;
    c->gain_ns -= c->gain_ns / MEMORY;
    c->other_ns -= c->other_ns / MEMORY;
    c->square -= c->square / (MEMORY / 2.0);
    idletime_histogram_add(&c->length, cycle_life, length_ns, length_ns);
}

void idletime_cycle_note(IdletimeCycle *c, const IdletimeGap *gap,
                         const IdletimeWindows *by_age, double request_ns)
{
    c->gap_count++;
    if (c->built && c->onset_ns != INT64_MIN && request_ns > 0) {
        compare(c, gap, by_age, request_ns);
    }
    if (gap->end_ns - gap->begin_ns < by_age->service.mean_ns) {
        return;
    }
    if (c->onset_ns != INT64_MIN) {
        note_onset(c, gap);
    }
    c->onset_ns = gap->end_ns;
    c->gap_count = 0;
}

bool idletime_cycle_plan(const IdletimeCycle *c, IdletimePlan *plan,
                         const IdletimeWindows *by_age,
                         const IdletimeTerms *terms)
{
    IdletimeTerms cycle = *terms;
    IdletimeBurst burst = {
        .by_age = by_age,
        .end = idletime_bin_of(by_age->service.mean_ns),
        .gaps = c->gaps,
        .lead_ns = c->lead_ns,
    };

    if (idletime_histogram_count(&c->length) < READY_CYCLES) {
        return false;
    }
    cycle.budget_ns *= c->gaps;
    cycle.request_ns *= c->gaps;
    idletime_plan_begin(plan, &c->length, by_age->service, &burst, &cycle);
    return true;
}

void idletime_cycle_planned(IdletimeCycle *c, const IdletimeWindows *windows)
{
    c->windows = *windows;
    c->built = true;
}

bool idletime_cycle_better(const IdletimeCycle *c)
{
    double ahead_ns = c->gain_ns - c->other_ns;

    return c->built && c->onset_ns != INT64_MIN &&
           c->gain_ns > BETTER * MAX(c->other_ns, 0) &&
           ahead_ns * ahead_ns > ERRORS * ERRORS * c->square;
}
