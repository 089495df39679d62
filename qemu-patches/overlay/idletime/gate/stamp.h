/*
 * Idletime stamp: a time that costs less than reading the clock.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Reading the clock costs more than all the rest of a foreground packet's
 * way through here.  So one reading is good for IDLETIME_STAMP_NS, by the
 * processor's ticks; that is far below any interval that makes sense.
 */
#ifndef IDLETIME_STAMP_H
#define IDLETIME_STAMP_H

#define IDLETIME_STAMP_NS   (50 * 1000LL)

typedef struct IdletimeStamp {
    int64_t ns;                 /* the clock, as read last */
    int64_t ticks;              /* when that was */
    int64_t limit;              /* ticks for which it is good; 0: none */
} IdletimeStamp;

/**
 * idletime_stamp: the time now, IDLETIME_STAMP_NS too early at most.
 * @ticks: of the processor, now
 * @clock_ns: reads the clock
 */
static inline int64_t idletime_stamp(IdletimeStamp *stamp, int64_t ticks,
                                     int64_t (*clock_ns)(void))
{
    /* Unsigned: ticks that went back are far ahead, so the clock is read. */
    uint64_t passed = (uint64_t)ticks - (uint64_t)stamp->ticks;

    if (__builtin_expect(passed >= (uint64_t)stamp->limit, 0)) {
        stamp->ticks = ticks;
        stamp->ns = clock_ns();
    }
    return stamp->ns;
}

#endif
