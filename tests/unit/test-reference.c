/*
 * The core against an independent model, on arbitrary event strings.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "reference.h"

#define STRINGS 20000
#define LENGTH_MAX 200

static void run_string(uint64_t *random, unsigned length)
{
    IdletimeView none = { .fg_last_ns = INT64_MIN };
    IdletimeCore core;
    Reference reference;

    idletime_core_init(&core, &none);
    reference_init(&reference);
    for (unsigned i = 0; i < length; i++) {
        IdletimeEvent event = test_random(random) % IDLETIME_EVENT__MAX;

        idletime_core_event(&core, event);
        reference_event(&reference, REFERENCE_EVENTS[event]);
        g_assert_true(reference_same(&reference, &core));
    }
    g_assert_true(reference_degrees(&core, IDLETIME_STATE_IDLE));
}

static void test_random_strings(void)
{
    uint64_t random = test_seed();

    for (int i = 0; i < STRINGS; i++) {
        run_string(&random, test_range(&random, 0, LENGTH_MAX));
    }
}

/* All 4^7 strings of seven events: every path of the machine, several times. */
static void test_all_short_strings(void)
{
    for (unsigned code = 0; code < 1u << 14; code++) {
        IdletimeView none = { .fg_last_ns = INT64_MIN };
        IdletimeCore core;
        Reference reference;

        idletime_core_init(&core, &none);
        reference_init(&reference);
        for (unsigned i = 0; i < 14; i += 2) {
            idletime_core_event(&core, code >> i & 3);
            reference_event(&reference, REFERENCE_EVENTS[code >> i & 3]);
        }
        g_assert_true(reference_same(&reference, &core));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/reference/short-strings", test_all_short_strings);
    g_test_add_func("/reference/random-strings", test_random_strings);
    return g_test_run();
}
