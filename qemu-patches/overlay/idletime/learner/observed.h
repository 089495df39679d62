/*
 * Idletime learner: the time in service of what an observer saw.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The kernel keeps this sum as "ends less begins" of the clock, in fields that
 * several processors write one by one.  Read between two of these writes it
 * is off by the time since the machine started; after an observer that was
 * replaced, by any value.  What cannot have passed since the last look is
 * replaced by an estimate, so the sum that comes out only grows.  Pure.
 */
#ifndef IDLETIME_LEARNER_OBSERVED_H
#define IDLETIME_LEARNER_OBSERVED_H

#include "idletime/core/core.h"

typedef struct IdletimeObservedTime {
    IdletimeObservedFacts last;
    int64_t now_ns;             /* of these */
    uint64_t total_ns;          /* believed */
} IdletimeObservedTime;

/**
 * idletime_observed_time: the total by now.
 * @now_ns: of the look that saw @facts
 */
uint64_t idletime_observed_time(IdletimeObservedTime *t,
                                const IdletimeObservedFacts *facts,
                                int64_t now_ns);

#endif
