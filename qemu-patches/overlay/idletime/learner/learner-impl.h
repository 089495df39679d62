/*
 * Idletime learner: what its files share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_LEARNER_IMPL_H
#define IDLETIME_LEARNER_IMPL_H

#include "idletime/learner/learner.h"

/**
 * idletime_learner_span: what happened since the last look, by rings that were
 * read and @totals; nothing, if this is the first.
 */
IdletimeSpan idletime_learner_span(const IdletimeLearner *l,
                                   const IdletimeTotals *totals,
                                   int64_t now_ns);

/**
 * idletime_learner_worked: busy time of the foreground until its last event, in
 * ns, in total; the sums of @totals are of that moment, too.
 */
int64_t idletime_learner_worked(const IdletimeLearner *l,
                                const IdletimeTotals *totals, int64_t now_ns);

/**
 * idletime_learner_returned: the foreground, perhaps, and met no background.
 * Rings were read, and nothing else of this look was noted.
 */
void idletime_learner_returned(IdletimeLearner *l,
                               const IdletimeTotals *totals);

/** idletime_learner_collided: with an own request, served until @end_ns. */
void idletime_learner_collided(IdletimeLearner *l, int64_t end_ns);

#endif
