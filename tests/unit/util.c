/*
 * Fixtures of the unit tests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include <ftw.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* ---- arenas */

Arena arena_directory_only(void)
{
    Arena arena;

    arena.root = g_dir_make_tmp("idletime-XXXXXX", NULL);
    g_assert_nonnull(arena.root);
    /* Unprivileged children must be able to pass. */
    g_assert_cmpint(chmod(arena.root, 0755), ==, 0);
    arena.dir = g_build_filename(arena.root, "arena", NULL);
    return arena;
}

Arena arena_new(void)
{
    Arena arena = arena_directory_only();
    IdletimeArena open = must_enter(&arena);

    idletime_arena_close(&open);
    return arena;
}

static int remove_one(const char *path, const struct stat *st, int flag,
                      struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void arena_remove(Arena *arena)
{
    nftw(arena->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    g_free(arena->root);
    g_free(arena->dir);
}

char *arena_file(const Arena *arena, const char *name)
{
    return g_build_filename(arena->dir, name, NULL);
}

IdletimeArena must_enter(const Arena *arena)
{
    IdletimeError err = { "" };
    IdletimeArena open;
    bool ok = idletime_arena_open(&open, arena->dir, &err);

    g_assert_cmpstr(err.text, ==, "");
    g_assert_true(ok);
    return open;
}

IdletimeBoard must_open(IdletimeArena *open, IdletimeBoardKind kind,
                        bool writable)
{
    IdletimeError err = { "" };
    IdletimeBoard board;
    bool ok = idletime_board_open(&board, open, kind, writable, &err);

    g_assert_cmpstr(err.text, ==, "");
    g_assert_true(ok);
    return board;
}

/* ---- participants */

IdletimeSlot must_claim(IdletimeBoard *board, const char *label)
{
    IdletimeError err = { "" };
    IdletimeSlot slot;
    bool ok = idletime_slot_claim(board, &slot, label, &err);

    g_assert_cmpstr(err.text, ==, "");
    g_assert_true(ok);
    return slot;
}

void peer_join(Peer *peer, const Arena *arena, const char *label)
{
    peer->open = must_enter(arena);
    peer->fg = must_open(&peer->open, IDLETIME_BOARD_FOREGROUND, false);
    peer->bg = must_open(&peer->open, IDLETIME_BOARD_BACKGROUND, true);
    peer->slot = must_claim(&peer->bg, label);
    peer->scan = (IdletimeScan) {
        .fg = &peer->fg,
        .bg = &peer->bg,
        .self = peer->slot.index,
    };
}

void peer_leave(Peer *peer)
{
    idletime_slot_release(&peer->bg, &peer->slot);
    idletime_board_close(&peer->fg);
    idletime_board_close(&peer->bg);
    idletime_arena_close(&peer->open);
}

void tenant_join(Tenant *tenant, const Arena *arena, const char *label)
{
    tenant->open = must_enter(arena);
    tenant->fg = must_open(&tenant->open, IDLETIME_BOARD_FOREGROUND, true);
    tenant->slot = must_claim(&tenant->fg, label);
    idletime_fg_attach(&tenant->writer, &tenant->fg, &tenant->slot);
}

void tenant_leave(Tenant *tenant)
{
    idletime_slot_release(&tenant->fg, &tenant->slot);
    idletime_board_close(&tenant->fg);
    idletime_arena_close(&tenant->open);
}

/* ---- children */

static void say(int fd, char word)
{
    g_assert_cmpint(write(fd, &word, 1), ==, 1);
}

/* Returns 0 at end of file: the other side is gone. */
static char listen_for(int fd)
{
    char word = 0;
    ssize_t n;

    do {
        n = read(fd, &word, 1);
    } while (n < 0 && errno == EINTR);
    return n == 1 ? word : 0;
}

Child child_start(ChildBody *body, void *data)
{
    int down[2], up[2];
    Child child;

    g_assert_cmpint(pipe2(down, O_CLOEXEC), ==, 0);
    g_assert_cmpint(pipe2(up, O_CLOEXEC), ==, 0);
    child.pid = fork();
    g_assert_cmpint(child.pid, >=, 0);
    if (child.pid == 0) {
        ChildEnd end = { .to = up[1], .from = down[0] };

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(down[1]);
        close(up[0]);
        _exit(body(&end, data));
    }
    close(down[0]);
    close(up[1]);
    child.to = down[1];
    child.from = up[0];
    return child;
}

void child_tell(Child *child, char word)
{
    say(child->to, word);
}

char child_hear(Child *child)
{
    return listen_for(child->from);
}

void end_tell(ChildEnd *end, char word)
{
    say(end->to, word);
}

char end_hear(ChildEnd *end)
{
    return listen_for(end->from);
}

int child_exit_status(Child *child)
{
    int status;

    g_assert_cmpint(waitpid(child->pid, &status, 0), ==, child->pid);
    close(child->to);
    close(child->from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void child_kill(Child *child)
{
    g_assert_cmpint(kill(child->pid, SIGKILL), ==, 0);
    g_assert_cmpint(child_exit_status(child), ==, -SIGKILL);
}

bool child_own_mount(const char *place, const char *options)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", place, "tmpfs", 0, options) == 0;
}

void child_assert_mounted(Child *child)
{
    int status = child_exit_status(child);

    if (status == CHILD_MAY_NOT_MOUNT) {
        g_test_skip("mounting a tmpfs needs root and CAP_SYS_ADMIN");
    } else {
        g_assert_cmpint(status, ==, 0);
    }
}

/* ---- users */

bool become(uid_t user, gid_t group)
{
    return setgroups(0, NULL) == 0 && setresgid(group, group, group) == 0 &&
           setresuid(user, user, user) == 0;
}

bool is_root(void)
{
    if (geteuid() != 0) {
        g_test_skip("only root can become other users");
    }
    return geteuid() == 0;
}

/* ---- random numbers: splitmix64, public domain algorithm by S. Vigna */

uint64_t test_seed(void)
{
    const char *text = getenv("IDLETIME_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

    g_test_message("IDLETIME_SEED=%" PRIu64, seed);
    return seed;
}

uint64_t test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}
