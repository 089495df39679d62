/*
 * What the unit tests of Idletime share: an arena in a temporary directory,
 * and child processes that are told what to do through pipes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_TEST_H
#define IDLETIME_TEST_H

#include "qemu/osdep.h"
#include "idletime/arena/foreground.h"
#include "idletime/arena/guard.h"
#include "idletime/arena/look.h"
#include "idletime/arena/tokens.h"
#include "idletime/arena/turns.h"
#include "idletime/arena/wake.h"
#include <sys/types.h>

/* The shim's; GLib has the same. */
#undef G_GNUC_PRINTF
#undef MIN
#undef MAX
#include <glib.h>

#define MS  (1000 * 1000LL)
#define SEC (1000 * MS)

/* A temporary arena with both boards created. */
typedef struct Arena {
    char *root;                 /* removed by arena_remove() */
    char *dir;
} Arena;

Arena arena_new(void);
Arena arena_directory_only(void);
void arena_remove(Arena *arena);
char *arena_file(const Arena *arena, const char *name);

/* The files of an arena, as one process opens them, and a board of it. */
IdletimeArena must_enter(const Arena *arena);
IdletimeBoard must_open(IdletimeArena *open, IdletimeBoardKind kind,
                        bool writable);
IdletimeSlot must_claim(IdletimeBoard *board, const char *label);

/* One background participant that sees both boards. */
typedef struct Peer {
    IdletimeArena open;
    IdletimeBoard fg, bg;
    IdletimeSlot slot;
    IdletimeScan scan;
} Peer;

void peer_join(Peer *peer, const Arena *arena, const char *label);
void peer_leave(Peer *peer);

/* One foreground participant. */
typedef struct Tenant {
    IdletimeArena open;
    IdletimeBoard fg;
    IdletimeSlot slot;
    IdletimeFgWriter writer;
} Tenant;

void tenant_join(Tenant *tenant, const Arena *arena, const char *label);
void tenant_leave(Tenant *tenant);

/* A child that runs @body and talks to us in single bytes. */
typedef struct Child {
    pid_t pid;
    int to, from;
} Child;

typedef struct ChildEnd {
    int to, from;
} ChildEnd;

typedef int ChildBody(ChildEnd *end, void *data);   /* exit status */

Child child_start(ChildBody *body, void *data);
void child_tell(Child *child, char word);
char child_hear(Child *child);
void end_tell(ChildEnd *end, char word);
char end_hear(ChildEnd *end);
int child_exit_status(Child *child);        /* waits; -signal if killed */
void child_kill(Child *child);              /* SIGKILL, and waits */
/*
 * In a child: mount a tmpfs with these options, for itself alone.  False where
 * that is not allowed; it exits with CHILD_MAY_NOT_MOUNT then, and
 * child_assert_mounted() skips the test instead of asserting status 0.
 */
#define CHILD_MAY_NOT_MOUNT 77
bool child_own_mount(const char *place, const char *options);
void child_assert_mounted(Child *child);

/* Nobody in particular: in no group, may open what others may. */
#define NOBODY 65534
/* Leave root for good; false if that is not possible. */
bool become(uid_t user, gid_t group);
/* Several tests need it, to be other users; they are skipped without. */
bool is_root(void);

/* Random numbers: printed seed, IDLETIME_SEED overrides. */
uint64_t test_seed(void);
uint64_t test_random(uint64_t *state);
static inline uint64_t test_range(uint64_t *state, uint64_t low, uint64_t high)
{
    return low + test_random(state) % (high - low + 1);
}
/* 0 to below 1 */
static inline double test_uniform(uint64_t *state)
{
    return (test_random(state) >> 11) / 9007199254740992.0;
}

#endif
