/*
 * Idletime gaps: the idle gaps of all foreground participants together.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each foreground slot has a ring of its last changes between busy and idle.
 * Merged in order of time they give the union: the resource is idle for the
 * foreground while no slot is busy.  Pure: reads the memory it is given, has
 * no clock, lock, timer, allocation or I/O.
 */
#ifndef IDLETIME_GAPS_H
#define IDLETIME_GAPS_H

#include "idletime/arena/arena.h"
#include "idletime/arena/observed.h"

/*
 * Transitions handled in one look at most: one for each slot that there may
 * be; 15 us.
 */
#define IDLETIME_GAPS_BATCH     IDLETIME_SLOTS

/*
 * A look reads the clock, then the rings, and writers go on meanwhile: what
 * they write is left for the next look.  A thread may lose its processor
 * between the two, for longer than a scheduler's time slice.
 */
#define IDLETIME_GAPS_AHEAD_NS  (100 * 1000 * 1000)

/* The observer's ring is read beside those of the slots. */
#define IDLETIME_GAPS_OBSERVER  IDLETIME_SLOTS

/* How far we have read one slot's ring. */
typedef struct IdletimeTrack {
    uint64_t read;              /* transitions taken */
    int64_t last_ns;            /* time of the last one */
    bool busy;                  /* after it */
} IdletimeTrack;

/* An idle gap that has ended. */
typedef struct IdletimeGap {
    int64_t begin_ns;
    int64_t end_ns;
} IdletimeGap;

typedef struct IdletimeGaps {
    const IdletimeObserved *observed;   /* of the next look; NULL: none */
    IdletimeTrack track[IDLETIME_SLOTS + 1];    /* the last: the observer's */
    int32_t busy;               /* slots that are busy at now_ns */
    int64_t now_ns;             /* merged up to here */
    int64_t idle_since_ns;      /* if !busy */
    int64_t busy_since_ns;      /* if busy */
    int64_t whole_from_ns;      /* a gap that begins earlier is not known */
    int64_t idle_ns;            /* idle time in gaps that have ended, total */
    int64_t busy_ns;            /* of busy periods that have ended, total */
    uint64_t overruns;          /* slots that wrote faster than we read */
    uint64_t refused;           /* transitions that cannot be true */

    /* Of the last look: */
    uint32_t count;
    IdletimeGap gap[IDLETIME_GAPS_BATCH];
    uint64_t batch[IDLETIME_GAPS_BATCH];    /* work space */
    uint32_t length;
} IdletimeGaps;

/** idletime_gaps_init: gaps that began before @since_ns do not count. */
void idletime_gaps_init(IdletimeGaps *gaps, int64_t since_ns);

/**
 * idletime_gaps_look: take what the slots have written since the last look.
 * @fg: lines and rings of @slots slots; may be hostile
 * Fills gap[0..count-1], in order of time.
 */
void idletime_gaps_look(IdletimeGaps *gaps, const IdletimeFgBoard *fg,
                        uint32_t slots, int64_t now_ns);

/** idletime_gaps_idle: idle time so far, the gap under way included. */
int64_t idletime_gaps_idle(const IdletimeGaps *gaps, int64_t now_ns);

/** idletime_gaps_busy: busy time, of the period under way until @until_ns. */
int64_t idletime_gaps_busy(const IdletimeGaps *gaps, int64_t until_ns);

/**
 * idletime_gaps_dead: slot @index (or the observer, IDLETIME_GAPS_OBSERVER)
 * will not end what it began.
 */
void idletime_gaps_dead(IdletimeGaps *gaps, uint32_t index);

#endif
