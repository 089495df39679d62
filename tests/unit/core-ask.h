/*
 * What the tests of the core share: a rule, and a question asked once.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_CORE_ASK_H
#define IDLETIME_CORE_ASK_H

#include "test.h"

static const IdletimeView quiet = { .fg_last_ns = INT64_MIN };
static const IdletimeRule rule20 = {
    .interval_ns = 20 * MS, .max_hold_ns = 5 * SEC, .max_inflight = 1,
};

static inline IdletimeCore core_new(void)
{
    IdletimeCore core;

    idletime_core_init(&core, &quiet);
    return core;
}

static inline IdletimeVerdict ask(const IdletimeRule *rule,
                                  const IdletimeView *view, int64_t now_ns,
                                  int64_t held_ns)
{
    IdletimeCore core = core_new();

    return idletime_core_ask(&core, rule, view, now_ns, held_ns);
}

static inline void assert_wait(IdletimeVerdict verdict,
                               IdletimeVerdictKind kind, int64_t again_ns)
{
    g_assert_cmpint(verdict.kind, ==, kind);
    g_assert_cmpint(verdict.again_ns, ==, again_ns);
}

#endif
