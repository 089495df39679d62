/*
 * Idletime arena: tokens, the in-flight cap of all processes together.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/slot.h"
#include "idletime/arena/tokens.h"
#include "idletime/core/time.h"

/* A token younger than this is not doubted: most requests are done by then. */
#define TOKEN_DOUBT_NS          IDLETIME_LOOK_INFLIGHT_NS

static IdletimeToken token_make(uint32_t slot, int64_t now_ns)
{
    uint64_t ms = (uint64_t)(now_ns / IDLETIME_NS_PER_MS);

    return (uint64_t)(slot + 1) << IDLETIME_TOKEN_SHIFT |
           (ms & ((1ULL << IDLETIME_TOKEN_SHIFT) - 1));
}

static bool token_expired(const IdletimeScan *scan, IdletimeToken token,
                          const IdletimeRule *rule, int64_t now_ns)
{
    uint64_t age = ((uint64_t)(now_ns / IDLETIME_NS_PER_MS) - token) <<
                   (64 - IDLETIME_TOKEN_SHIFT);
    /* Signed, modulo 2^48 ms. */
    int64_t age_ms = (int64_t)age >> (64 - IDLETIME_TOKEN_SHIFT);
    int64_t lease_ms = idletime_lease_ns(rule) / IDLETIME_NS_PER_MS;
    int64_t doubt_ms = TOKEN_DOUBT_NS / IDLETIME_NS_PER_MS;
    uint32_t owner = (token >> IDLETIME_TOKEN_SHIFT) - 1;

    /*
     * Taken after we read the clock: as good as now.  A scribbled time that
     * lies further ahead is no reason to wait for it.
     */
    if (age_ms < 0) {
        return age_ms < -MAX(lease_ms, doubt_ms);
    }
    return age_ms >= doubt_ms &&
           (age_ms > lease_ms || !idletime_slot_alive(scan->bg, owner));
}

static bool token_swap(IdletimeToken *token, IdletimeToken from,
                       IdletimeToken to)
{
    return __atomic_compare_exchange_n(token, &from, to, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static uint32_t token_count(const IdletimeRule *rule)
{
    return MIN(rule->max_inflight, IDLETIME_TOKENS);
}

uint32_t idletime_tokens_taken(const IdletimeScan *scan,
                               const IdletimeRule *rule, int64_t now_ns)
{
    IdletimeToken *token = idletime_bg_board(scan->bg)->token;
    uint32_t taken = 0;

    for (uint32_t i = 0; i < token_count(rule); i++) {
        IdletimeToken value = __atomic_load_n(&token[i], __ATOMIC_ACQUIRE);

        if (value && !(token_expired(scan, value, rule, now_ns) &&
                       token_swap(&token[i], value, 0))) {
            taken++;
        }
    }
    return taken;
}

bool idletime_token_take(const IdletimeScan *scan, const IdletimeRule *rule,
                         int64_t now_ns, IdletimeGrant *grant)
{
    IdletimeToken *token = idletime_bg_board(scan->bg)->token;

    grant->value = token_make(scan->self, now_ns);
    for (grant->index = 0; grant->index < token_count(rule); grant->index++) {
        if (token_swap(&token[grant->index], 0, grant->value)) {
            return true;
        }
    }
    return false;
}

void idletime_token_give(const IdletimeScan *scan, IdletimeGrant grant)
{
    IdletimeToken *token = idletime_bg_board(scan->bg)->token;

    token_swap(&token[grant.index], grant.value, 0);
}
