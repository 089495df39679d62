/*
 * Fuzz target: the core against the reference model on arbitrary event
 * strings, and its decisions on arbitrary views.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Input: one byte n; n event bytes; then records of a view and times.
 */
#include "qemu/osdep.h"
#include "idletime/core/core.h"
#include "reference.h"

#define CHECK(condition) do { if (!(condition)) { \
    fprintf(stderr, "broken: %s\n", #condition); abort(); } } while (0)

typedef struct __attribute__((packed)) Record {
    uint8_t flags;
    uint64_t fg_started;
    uint8_t fg_in_service, bg_in_service, max_inflight;
    int64_t fg_last_ns, now_ns, held_ns, interval_ns, max_hold_ns;
} Record;

enum { BLIND = 1, OTHERS = 2, SHORT = 4, DONE = 8, MORE = 16, START = 32,
       OVERDUE = 64 };

static size_t events(const uint8_t *data, size_t size)
{
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };
    size_t n = MIN(size - 1, data[0]);
    IdletimeCore core;
    Reference reference;

    idletime_core_init(&core, &nothing);
    reference_init(&reference);
    for (size_t i = 1; i <= n; i++) {
        idletime_core_event(&core, data[i] & 3);
        reference_event(&reference, REFERENCE_EVENTS[data[i] & 3]);
        CHECK(core.state == strchr(REFERENCE_STATES, reference.state) -
                            REFERENCE_STATES);
    }
    CHECK(reference_same(&reference, &core));
    CHECK(reference_degrees(&core, IDLETIME_STATE_IDLE));
    return n + 1;
}

/* A start is allowed by every fact; 128 bits do not saturate. */
static void check_start(const IdletimeView *view, const IdletimeRule *rule,
                        int64_t now_ns)
{
    __int128 last_ns = MIN(view->fg_last_ns, now_ns);
    __int128 allowed_ns = last_ns + rule->interval_ns;

    CHECK(!view->blind && !view->fg_in_service && !view->others_first);
    CHECK(view->bg_in_service < rule->max_inflight);
    CHECK(now_ns >= allowed_ns || now_ns == INT64_MAX);
}

/* @before: the core when it was asked */
static void check_promotion(bool alone, const IdletimeCore *before,
                            const IdletimeView *view, const IdletimeRule *rule,
                            int64_t now_ns)
{
    __int128 lease_ns = MAX(rule->max_hold_ns, IDLETIME_LEASE_NS);

    if (!alone) {
        CHECK(view->bg_in_service < rule->max_inflight && !view->overdue_first);
        return;
    }
    CHECK(before->own_in_service < rule->max_inflight);
    CHECK(view->blind || (before->kept_ns != INT64_MIN &&
                          now_ns >= before->kept_since_ns + lease_ns) ||
          now_ns == INT64_MAX);
}

static void check_verdict(IdletimeVerdict verdict, const IdletimeCore *before,
                          const IdletimeView *view, const IdletimeRule *rule,
                          int64_t now_ns, int64_t held_ns)
{
    __int128 deadline_ns = (__int128)held_ns + rule->max_hold_ns;

    CHECK(verdict.kind < IDLETIME_VERDICT__MAX);
    if (verdict.kind == IDLETIME_START) {
        check_start(view, rule, now_ns);
    } else if (verdict.kind == IDLETIME_PROMOTE) {
        CHECK(rule->max_hold_ns);
        CHECK(now_ns >= deadline_ns || now_ns == INT64_MAX);
        check_promotion(verdict.alone, before, view, rule, now_ns);
    } else {
        CHECK(verdict.again_ns > now_ns || now_ns == INT64_MAX);
        CHECK(!rule->max_hold_ns || verdict.kind == IDLETIME_WAIT_INFLIGHT ||
              (verdict.kind == IDLETIME_WAIT_TURN && view->overdue_first) ||
              verdict.again_ns <= deadline_ns);
    }
}

static void one_record(IdletimeCore *core, const Record *r)
{
    int64_t mask = r->flags & SHORT ? 0xfffffff : INT64_MAX;
    IdletimeRule rule = { r->interval_ns & mask, r->max_hold_ns & mask,
                          MAX(r->max_inflight, 1) };
    IdletimeView view = {
        .fg_started = r->fg_started, .fg_in_service = r->fg_in_service & 3,
        .fg_last_ns = r->fg_last_ns, .bg_in_service = r->bg_in_service,
        .others_first = r->flags & OTHERS, .blind = r->flags & BLIND,
        .overdue_first = r->flags & OVERDUE,
    };
    IdletimeCore before = *core;
    IdletimeVerdict verdict;

    if (r->flags & SHORT) {
        view.fg_last_ns &= mask;
    }
    if (r->flags & DONE) {
        idletime_core_done(core, &rule, &view, r->now_ns, r->flags & MORE);
        return;
    }
    verdict = idletime_core_ask(core, &rule, &view, r->now_ns, r->held_ns);
    check_verdict(verdict, &before, &view, &rule, r->now_ns, r->held_ns);
    if (r->flags & START && verdict.kind <= IDLETIME_PROMOTE) {
        idletime_core_started(core);
    }
}

static void views(const uint8_t *data, size_t size)
{
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };
    IdletimeCore core;
    Record record;

    idletime_core_init(&core, &nothing);
    for (; size >= sizeof(record); size -= sizeof(record)) {
        memcpy(&record, data, sizeof(record));
        data += sizeof(record);
        one_record(&core, &record);
        CHECK(core.state < IDLETIME_STATE__MAX);
        CHECK(reference_degrees(&core, IDLETIME_STATE_IDLE));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size) {
        size_t used = events(data, size);

        views(data + used, size - used);
    }
    return 0;
}
