/*
 * Arena: what an observer leaves behind, and what keeps one away.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "looker.h"
#include <sys/socket.h>
#include <sys/un.h>

/* What a TestObserver has open while somebody is connected. */
#define CONNECTED       3

static unsigned descriptors(void)
{
    GDir *dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned n = 0;

    while (g_dir_read_name(dir)) {
        n++;
    }
    g_dir_close(dir);
    return n;
}

/* Of an observer's page: the test's own is one. */
static unsigned mappings(void)
{
    g_autofree char *maps = NULL;
    unsigned n = 0;

    g_assert_true(g_file_get_contents("/proc/self/maps", &maps, NULL, NULL));
    for (const char *at = maps; (at = strstr(at, "memfd:observed")); at++) {
        n++;
    }
    return n;
}

static bool ends_with_exec(int fd)
{
    return fcntl(fd, F_GETFD) & FD_CLOEXEC;
}

/* ---- what is left behind */

/* One connection is kept, alive or dead; no page but the one in use. */
static void test_comes_and_goes(void)
{
    unsigned before;
    TestObserver o;
    Looker l;

    look_from(&l, true);
    before = descriptors();
    assert_news(&l, NO_NEWS);
    g_assert_cmpuint(descriptors(), ==, before);
    for (int i = 0; i < 3; i++) {
        observer_start(&o, l.arena.dir);
        meet(&l, &o);
        g_assert_cmpuint(descriptors(), ==, before + 1 + CONNECTED);
        g_assert_cmpuint(mappings(), ==, 2);
        g_assert_true(idletime_observer_alive(&l.observer));
        /* No program that this one starts has them. */
        g_assert_true(ends_with_exec(l.observer.link));
        g_assert_true(ends_with_exec(l.observer.root));
        observer_die(&o);
        assert_news(&l, DIED);
        g_assert_cmpuint(descriptors(), ==, before + 1);
        g_assert_cmpuint(mappings(), ==, 0);
        g_assert_false(idletime_observer_alive(&l.observer));
        /* Nobody listens at what it left: no news, and nothing kept. */
        assert_news(&l, NO_NEWS);
        g_assert_cmpuint(descriptors(), ==, before + 1);
    }
    g_assert_cmpuint(l.observer.refused, ==, 0);
    observer_start(&o, l.arena.dir);
    meet(&l, &o);
    idletime_observer_close(&l.observer);
    /* The connection and the root directory it was found by. */
    g_assert_cmpuint(descriptors(), ==, before - 1 + CONNECTED);
    g_assert_cmpuint(mappings(), ==, 1);
    observer_end(&o);
    look_end(&l);
}

/* Of a page that is none nothing stays, and its sender is told. */
static void test_refused(void)
{
    TestObserver o;
    unsigned before;
    char byte;
    Looker l;

    look_from(&l, true);
    before = descriptors();
    observer_start(&o, l.arena.dir);
    o.page->version++;
    for (int i = 0; i < 3; i++) {
        assert_news(&l, NO_NEWS);
        observer_greet(&o);
        assert_news(&l, REFUSED);
        g_assert_cmpuint(descriptors(), ==, before + 1 + CONNECTED);
        g_assert_cmpuint(mappings(), ==, 1);
        g_assert_cmpuint(l.observer.page->magic, ==, 0);
        g_assert_false(idletime_observer_alive(&l.observer));
        g_assert_cmpint(recv(o.client, &byte, 1, MSG_DONTWAIT), ==, 0);
    }
    observer_end(&o);
    look_end(&l);
}

/* It hangs up without a word, as with too many of us: no news, asked again. */
static void test_hangs_up(void)
{
    TestObserver o;
    unsigned before;
    Looker l;

    look_from(&l, true);
    before = descriptors();
    observer_start(&o, l.arena.dir);
    for (int i = 0; i < 3; i++) {
        assert_news(&l, NO_NEWS);
        observer_accept(&o);
        shutdown(o.client, SHUT_RDWR);
        assert_news(&l, NO_NEWS);
        g_assert_cmpuint(descriptors(), ==, before + CONNECTED);
    }
    g_assert_cmpuint(l.observer.refused, ==, 0);
    /* Silent, and given up: closed as well. */
    assert_news(&l, NO_NEWS);
    observer_accept(&o);
    assert_news(&l, NO_NEWS);
    g_assert_cmpuint(descriptors(), ==, before + 1 + CONNECTED);
    assert_news(&l, REFUSED);
    g_assert_cmpuint(descriptors(), ==, before + CONNECTED);
    g_assert_cmpstr(l.observer.why.text, ==, "it sends nothing");
    observer_end(&o);
    look_end(&l);
}

/* As many boards and pages as can be guarded, each given back. */
static void test_guards(void)
{
    Arena arena = arena_new();
    IdletimeArena files = must_enter(&arena);
    IdletimeBoard board[IDLETIME_GUARDS];
    IdletimeError err = { "" };
    unsigned before = descriptors();
    IdletimeObserver observer;

    for (int i = 0; i < IDLETIME_GUARDS + 1; i++) {
        g_assert_true(idletime_observer_open(&observer, &files, &err));
        idletime_observer_close(&observer);
    }
    g_assert_cmpuint(descriptors(), ==, before);
    for (int i = 0; i < IDLETIME_GUARDS; i++) {
        board[i] = must_open(&files, IDLETIME_BOARD_FOREGROUND, false);
    }
    g_assert_false(idletime_observer_open(&observer, &files, &err));
    g_assert_cmpstr(err.text, ==, "more than 256 arena boards and observers "
                    "in one process");
    g_assert_cmpuint(descriptors(), ==, before);
    idletime_board_close(&board[0]);
    g_assert_true(idletime_observer_open(&observer, &files, &err));
    idletime_observer_close(&observer);
    for (int i = 1; i < IDLETIME_GUARDS; i++) {
        idletime_board_close(&board[i]);
    }
    idletime_arena_close(&files);
    arena_remove(&arena);
}

/* One that was never opened has nothing to close: not what others have. */
static void test_never_opened(void)
{
    IdletimeObserver none = { 0 };
    unsigned before;
    Looker l;

    look_from(&l, true);
    before = descriptors();
    idletime_observer_close(&none);
    g_assert_cmpuint(descriptors(), ==, before);
    /* The first board is still guarded: it becomes zeros. */
    g_assert_true(idletime_arena_sigbus(l.peer.fg.map));
    g_assert_true(look(&l, SEC).blind);
    look_end(&l);
}

/* ---- dead, and nothing was in service */

/* Where the arena is to be observed, that is asked at each look. */
static void test_dies_idle(void)
{
    TestObserver o;
    Looker l;

    look_and_meet(&l, &o);
    declare(&l);
    assert_news(&l, NO_NEWS);
    observer_begin(&o, 100 * MS, 512);
    observer_finish(&o, 110 * MS);
    g_assert_false(look(&l, 200 * MS).unseen);
    observer_die(&o);
    g_assert_true(look(&l, 200 * MS).unseen);
    g_assert_cmpint(look(&l, 200 * MS).fg_last_ns, ==, INT64_MIN);
    assert_news(&l, DIED);
    g_assert_true(look(&l, 200 * MS).unseen);
    look_end(&l);
}

/* A last event in the future is of the living only; now is no future. */
static void test_dies_ahead(void)
{
    TestObserver o;
    Looker l;

    look_and_meet(&l, &o);
    observer_begin(&o, 100 * MS, 512);
    observer_finish(&o, 110 * MS);
    g_assert_cmpint(look(&l, 110 * MS - 1).fg_last_ns, ==, 110 * MS);
    observer_die(&o);
    g_assert_cmpint(look(&l, 110 * MS).fg_last_ns, ==, 110 * MS);
    g_assert_cmpint(look(&l, 110 * MS - 1).fg_last_ns, ==, INT64_MIN);
    g_assert_false(look(&l, 110 * MS - 1).unseen);
    look_end(&l);
}

/* ---- what is in the way */

static struct sockaddr_un address_of(const Looker *l)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    g_autofree char *path = arena_file(&l->arena, IDLETIME_OBSERVED_SOCKET);

    g_assert_cmpuint(strlen(path), <, sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    return address;
}

/* A socket that is no stream: said, with its name, at each look. */
static void test_wrong_socket(void)
{
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;
    g_autofree char *why = NULL;
    unsigned before;
    Looker l;

    look_from(&l, true);
    address = address_of(&l);
    g_assert_cmpint(bind(s, (struct sockaddr *)&address, sizeof(address)), ==,
                    0);
    why = g_strdup_printf("cannot connect to '%s': %s", address.sun_path,
                          strerror(EPROTOTYPE));
    before = descriptors();
    for (int i = 1; i <= 2; i++) {
        assert_news(&l, REFUSED);
        g_assert_cmpuint(l.observer.refused, ==, i);
        g_assert_cmpstr(l.observer.why.text, ==, why);
        g_assert_cmpuint(descriptors(), ==, before);
    }
    close(s);
    look_end(&l);
}

/* As many wait as it lets wait: we do not, and ask again. */
static void test_busy(void)
{
    struct sockaddr_un address;
    int waiting[64], n = 0, s;
    TestObserver o;
    Looker l;

    look_from(&l, true);
    observer_start(&o, l.arena.dir);
    address = address_of(&l);
    for (;;) {
        s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(s, (struct sockaddr *)&address, sizeof(address)) != 0) {
            break;
        }
        g_assert_cmpint(n, <, 64);
        waiting[n++] = s;
    }
    g_assert_cmpint(errno, ==, EAGAIN);
    close(s);
    assert_news(&l, NO_NEWS);
    g_assert_cmpint(l.observer.greeting, ==, -1);
    g_assert_cmpuint(l.observer.refused, ==, 0);
    for (int i = 0; i < n; i++) {
        observer_accept(&o);
        close(waiting[i]);
    }
    meet(&l, &o);
    observer_end(&o);
    look_end(&l);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    guard_pages();
    g_test_add_func("/observer/never-opened", test_never_opened);
    g_test_add_func("/observer/comes-and-goes", test_comes_and_goes);
    g_test_add_func("/observer/refused", test_refused);
    g_test_add_func("/observer/hangs-up", test_hangs_up);
    g_test_add_func("/observer/guards", test_guards);
    g_test_add_func("/observer/dies/idle", test_dies_idle);
    g_test_add_func("/observer/dies/ahead", test_dies_ahead);
    g_test_add_func("/observer/wrong/socket", test_wrong_socket);
    g_test_add_func("/observer/busy", test_busy);
    return g_test_run();
}
