/*
 * A little world in virtual time, driven by the core: one device that serves
 * one request at a time in order of issue, foreground streams that are never
 * asked, background participants that hold requests until the core lets go.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_WORLD_H
#define IDLETIME_WORLD_H

#include "test.h"

#define WORLD_PARTICIPANTS  4
#define WORLD_OUTSTANDING   4
#define WORLD_STREAMS       3
#define WORLD_QUEUE         64
#define WORLD_SERVICE_NS    (5 * MS)        /* longest service time */

/* Ways to break the scheduler, to see that the axioms notice. */
typedef enum WorldMutation {
    WORLD_SOUND,
    WORLD_IGNORES_INTERVAL,
    WORLD_IGNORES_FOREGROUND,
    WORLD_IGNORES_CAP,
    WORLD_IGNORES_DEADLINE,
    WORLD_FORGETS_TIMER,
    WORLD_IGNORES_OVERDUE,
    WORLD_REORDERS,
} WorldMutation;

typedef struct WorldParams {
    uint64_t seed;
    int participants, outstanding, streams;
    IdletimeRule rule;
    int64_t horizon_ns;         /* then nothing new arrives */
    bool blind;
    bool deaf;                  /* participants fall silent now and then */
    WorldMutation mutation;
} WorldParams;

typedef struct WorldJob {
    int owner;                  /* participant, or -1 - stream */
    int stream;
    int64_t service_ns, issued_ns, expected_ns;
} WorldJob;

typedef struct WorldHeld {
    uint64_t sequence;
    int64_t since_ns;
    int stream;
} WorldHeld;

typedef struct WorldPart {
    IdletimeCore core;
    WorldHeld held[WORLD_OUTSTANDING];
    int held_count;
    int64_t arrival_ns[WORLD_OUTSTANDING];
    int64_t timer_ns, deaf_until_ns;
    uint64_t next_sequence, next_release;
    uint64_t vtime_ns, started, began_idle, promoted;
    uint64_t skipped[WORLD_PARTICIPANTS];   /* started + 1 when skipped */
    int turn_of;
    uint64_t turn_started;
    int64_t turn_since_ns;
} WorldPart;

typedef struct World {
    WorldParams p;
    uint64_t fg_random, bg_random;
    int64_t now_ns;
    WorldJob queue[WORLD_QUEUE];
    int head, length;
    int64_t done_ns;            /* of the job at the head */
    int64_t stream_ns[WORLD_STREAMS];
    uint64_t fg_started, fg_hash;
    uint32_t fg_in_service, bg_in_service;
    int64_t fg_last_ns;
    uint64_t clock_ns;
    WorldPart part[WORLD_PARTICIPANTS];
    const char *broken;         /* the first axiom that did not hold */
} World;

/* Runs to the end; returns the axiom that broke, or NULL. */
const char *world_run(World *world, const WorldParams *params);

/* world-check.c */
void world_check_release(World *w, const WorldPart *part,
                         const WorldHeld *held, IdletimeVerdictKind kind);
void world_check_foreground(World *w, const WorldJob *job);
void world_check_end(World *w);
int64_t world_end_bound_ns(const World *w);
IdletimeView world_view(const World *w, const WorldPart *self, int *next);
IdletimeVerdict world_mutate(const World *w, IdletimeVerdict verdict,
                             bool overdue);
void world_break(World *w, const char *axiom);

#endif
