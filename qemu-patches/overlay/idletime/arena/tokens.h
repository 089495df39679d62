/*
 * Idletime arena: tokens, the in-flight cap of all processes together.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A token on the background board is the right to have one background request
 * in service.  Those of dead owners, and of owners that sit on one for longer
 * than the lease, become free when somebody counts: a stopped process must
 * not stop the others for ever.
 */
#ifndef IDLETIME_TOKENS_H
#define IDLETIME_TOKENS_H

#include "idletime/arena/scan.h"
#include "idletime/core/core.h"

/* A token in hand. */
typedef struct IdletimeGrant {
    IdletimeToken value;        /* as written into the board */
    uint32_t index;
} IdletimeGrant;

/**
 * idletime_tokens_taken: how many of the rule's tokens are in somebody's hand.
 * @now_ns: CLOCK_MONOTONIC; frees what is overdue or a dead owner's
 */
uint32_t idletime_tokens_taken(const IdletimeScan *scan,
                               const IdletimeRule *rule, int64_t now_ns);

/**
 * idletime_token_take: the right to one more background request in service.
 * Returns false if the cap is reached.
 */
bool idletime_token_take(const IdletimeScan *scan, const IdletimeRule *rule,
                         int64_t now_ns, IdletimeGrant *grant);

/** idletime_token_give: hand it back; one that was taken over stays taken. */
void idletime_token_give(const IdletimeScan *scan, IdletimeGrant grant);

#endif
