/*
 * Idletime divergence: does the guest write more than the migration sends?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Judged at the end of a pass over the memory: has the guest written more of
 * it than left meanwhile?  Empty pages cost nothing; those of the first pass
 * would hide what will be.  Compressed ones count as they are in memory.
 */
#ifndef IDLETIME_DIVERGENCE_H
#define IDLETIME_DIVERGENCE_H

/**
 * idletime_divergence_note: has a pass ended?  Returns true if the judgement
 * is another one, for idletime_divergence_tell().  Once a second at most, as
 * QEMU tells how much the guest writes.  Context: the migration thread.
 */
bool idletime_divergence_note(void);

/** idletime_divergence_tell: send the event, once.  Context: BQL. */
void idletime_divergence_tell(void);

/** idletime_divergence_reset: no migration runs.  Context: BQL. */
void idletime_divergence_reset(void);

/**
 * idletime_divergence_now: in the last pass the guest wrote more than has
 * left, so at this pace it does not end.  Context: BQL.
 */
bool idletime_divergence_now(void);

#endif
