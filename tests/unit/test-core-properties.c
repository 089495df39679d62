/*
 * Axioms of the scheduler over random worlds, and proof that each can fail.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "world.h"

#define WORLDS 3000
#define MUTANT_WORLDS 300

static WorldParams random_params(uint64_t *random)
{
    static const int64_t interval[] = { 0, MS / 10, MS, 5 * MS, 20 * MS };
    static const int64_t hold[] = { 0, 10 * MS, 50 * MS, 500 * MS };
    static const uint32_t cap[] = { 1, 1, 2, 4 };

    return (WorldParams) {
        .seed = test_random(random),
        .participants = test_range(random, 1, WORLD_PARTICIPANTS),
        .outstanding = test_range(random, 1, WORLD_OUTSTANDING),
        .streams = test_range(random, 0, WORLD_STREAMS),
        .rule = {
            .interval_ns = interval[test_random(random) % 5],
            .max_hold_ns = hold[test_random(random) % 4],
            .max_inflight = cap[test_random(random) % 4],
        },
        .horizon_ns = test_range(random, 100, 2000) * MS,
        .deaf = test_random(random) % 4 == 0,
    };
}

static void describe(const WorldParams *p, const char *broken)
{
    g_test_message("world %" PRIu64 ": participants %d x %d, streams %d, "
                   "interval %" PRId64 " ns, hold %" PRId64 " ns, cap %u%s: %s",
                   p->seed, p->participants, p->outstanding, p->streams,
                   p->rule.interval_ns, p->rule.max_hold_ns,
                   p->rule.max_inflight, p->deaf ? ", deaf" : "", broken);
}

static void test_axioms(void)
{
    uint64_t random = test_seed(), fg = 0, bg = 0, promoted = 0;
    World world;

    for (int i = 0; i < WORLDS; i++) {
        WorldParams params = random_params(&random);
        const char *broken = world_run(&world, &params);

        if (broken) {
            describe(&params, broken);
        }
        g_assert_cmpstr(broken, ==, NULL);
        fg += world.fg_started;
        for (int k = 0; k < params.participants; k++) {
            bg += world.part[k].started;
            promoted += world.part[k].promoted;
        }
    }
    g_test_message("%d worlds, %" PRIu64 " foreground, %" PRIu64
                   " background, %" PRIu64 " promoted",
                   WORLDS, fg, bg, promoted);
    /* The worlds are not empty, and promotions are the exception. */
    g_assert_cmpuint(fg, >, WORLDS);
    g_assert_cmpuint(bg, >, WORLDS);
    g_assert_cmpuint(promoted, >, 0);
}

/* Blind and without deadline, nothing of the background ever starts: the
 * foreground's times are those of a world without background. */
static void test_blind_is_alone(void)
{
    uint64_t random = test_seed();
    World world;

    for (int i = 0; i < WORLDS / 10; i++) {
        WorldParams params = random_params(&random);
        uint64_t alone;

        params.streams = test_range(&random, 1, WORLD_STREAMS);
        params.rule.max_hold_ns = 0;
        params.blind = true;
        g_assert_cmpstr(world_run(&world, &params), ==, NULL);
        g_assert_cmpuint(world.fg_started, >, 0);
        alone = world.fg_hash;
        params.participants = 0;
        g_assert_cmpstr(world_run(&world, &params), ==, NULL);
        g_assert_cmpuint(world.fg_hash, ==, alone);
    }
}

typedef struct Mutant {
    WorldMutation mutation;
    const char *axiom;
} Mutant;

static const Mutant mutants[] = {
    { WORLD_IGNORES_INTERVAL, "no background start within the interval" },
    { WORLD_IGNORES_FOREGROUND,
      "no background start while foreground is in service" },
    { WORLD_IGNORES_CAP, "the in-flight cap" },
    { WORLD_IGNORES_DEADLINE,
      "every held request is released by its deadline" },
    { WORLD_FORGETS_TIMER, "every held request is released in the end" },
    { WORLD_IGNORES_OVERDUE,
      "every held request is released by its deadline" },
    { WORLD_REORDERS, "order within a participant" },
};

/* A broken scheduler breaks just the axiom that it should. */
static void test_mutant(gconstpointer data)
{
    const Mutant *mutant = data;
    uint64_t random = test_seed();
    int caught = 0;
    World world;

    for (int i = 0; i < MUTANT_WORLDS; i++) {
        WorldParams params = random_params(&random);

        params.mutation = mutant->mutation;
        if (mutant->mutation == WORLD_IGNORES_DEADLINE) {
            /* 20 s of a foreground that hardly ever pauses for 100 ms. */
            params.rule = (IdletimeRule) { 100 * MS, 10 * MS, 1 };
            params.streams = WORLD_STREAMS;
            params.horizon_ns = 20 * SEC;
            params.outstanding = params.participants = 1;
            params.deaf = false;
        }
        if (mutant->mutation == WORLD_IGNORES_OVERDUE) {
            /* All of them overdue all the time. */
            params.rule = (IdletimeRule) { 100 * MS, 10 * MS, 1 };
            params.streams = 1;
            params.participants = WORLD_PARTICIPANTS;
            params.outstanding = WORLD_OUTSTANDING;
            params.deaf = false;
        }
        caught += g_strcmp0(world_run(&world, &params), mutant->axiom) == 0;
    }
    g_test_message("caught in %d of %d worlds", caught, MUTANT_WORLDS);
    g_assert_cmpint(caught, >, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/properties/axioms", test_axioms);
    g_test_add_func("/properties/blind-is-alone", test_blind_is_alone);
    for (unsigned i = 0; i < G_N_ELEMENTS(mutants); i++) {
        char *name = g_strdup_printf("/properties/mutant/%u", i);

        g_test_add_data_func(name, &mutants[i], test_mutant);
        g_free(name);
    }
    return g_test_run();
}
