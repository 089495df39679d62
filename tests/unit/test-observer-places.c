/*
 * Arena: an observer that is declared, and is looked for by other users and
 * from other places.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "looker.h"
#include <sys/stat.h>

/* ---- declared */

static void undeclare(const Looker *l)
{
    g_autofree char *path = arena_file(&l->arena, IDLETIME_OBSERVED_DECLARED);

    g_assert_cmpint(unlink(path), ==, 0);
}

static void test_declared(void)
{
    g_autofree char *path = NULL;
    Looker l;

    look_from(&l, true);
    for (int i = 0; i < 2; i++) {
        assert_news(&l, NO_NEWS);
        assert_state(&l, ABSENT);
        declare(&l);
        assert_news(&l, NO_NEWS);
        assert_state(&l, LOST);
        undeclare(&l);
    }
    /* Any file of that name says it, one that leads nowhere too. */
    path = arena_file(&l.arena, IDLETIME_OBSERVED_DECLARED);
    g_assert_cmpint(symlink("nowhere", path), ==, 0);
    assert_news(&l, NO_NEWS);
    assert_state(&l, LOST);
    look_end(&l);
}

/* The arena's directory is gone, or something else: nothing is declared. */
static void test_declaration_lost(void)
{
    g_autofree char *elsewhere = NULL;
    Looker l;

    look_from(&l, true);
    elsewhere = g_build_filename(l.arena.root, "elsewhere", NULL);
    for (int taken = 0; taken < 2; taken++) {
        declare(&l);
        assert_news(&l, NO_NEWS);
        assert_state(&l, LOST);
        g_assert_cmpint(rename(l.arena.dir, elsewhere), ==, 0);
        if (taken) {
            g_assert_true(g_file_set_contents(l.arena.dir, "", 0, NULL));
        }
        assert_news(&l, NO_NEWS);
        assert_state(&l, ABSENT);
        g_assert_cmpuint(l.observer.refused, ==, 0);
        unlink(l.arena.dir);
        g_assert_cmpint(rename(elsewhere, l.arena.dir), ==, 0);
    }
    look_end(&l);
}

/* Where one may not ask any more, the answer stays; connecting is refused. */
static int may_not_ask(ChildEnd *end, void *opaque)
{
    Looker *l = opaque;

    (void)end;
    if (chmod(l->arena.root, 0700) != 0 || !become(NOBODY, NOBODY)) {
        return 1;
    }
    if (idletime_observer_watch(&l->observer) != IDLETIME_OBSERVER_REFUSED ||
        !strstr(l->observer.why.text, "cannot connect to '/") ||
        !strstr(l->observer.why.text, "/observer': Permission denied")) {
        return 2;
    }
    return idletime_observer_state(&l->observer) == IDLETIME_OBSERVER_LOST ?
           0 : 3;
}

static void test_may_not_ask(void)
{
    Child child;
    Looker l;

    if (!is_root()) {
        return;
    }
    look_from(&l, true);
    declare(&l);
    assert_news(&l, NO_NEWS);
    child = child_start(may_not_ask, &l);
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    look_end(&l);
}

/* ---- users and places */

/* One that is not root: for tests, and for its own user alone. */
static int own_user(ChildEnd *end, void *opaque)
{
    Looker *l = opaque;
    TestObserver o;

    (void)end;
    if (!become(NOBODY, NOBODY)) {
        return 1;
    }
    observer_start(&o, l->arena.dir);
    l->observer.any_file = false;
    if (idletime_observer_watch(&l->observer) != IDLETIME_OBSERVER_REFUSED ||
        strcmp(l->observer.why.text,
               "it runs as user 65534 and must be root") != 0) {
        return 2;
    }
    observer_accept(&o);
    l->observer.any_file = true;
    if (idletime_observer_watch(&l->observer) != IDLETIME_OBSERVER_NO_NEWS) {
        return 3;
    }
    observer_greet(&o);
    return idletime_observer_watch(&l->observer) == IDLETIME_OBSERVER_CAME ?
           0 : 4;
}

/* Without /proc the socket's path does, where it is short enough. */
static int no_proc(ChildEnd *end, void *opaque)
{
    Looker *l = opaque;

    if (!child_own_mount("/proc", NULL)) {
        return CHILD_MAY_NOT_MOUNT;
    }
    if (idletime_observer_watch(&l->observer) != IDLETIME_OBSERVER_NO_NEWS ||
        l->observer.greeting < 0) {
        return 1;
    }
    end_tell(end, 'c');
    end_hear(end);
    return idletime_observer_watch(&l->observer) == IDLETIME_OBSERVER_CAME ?
           0 : 2;
}

static void test_own_user(void)
{
    Child child;
    Looker l;

    if (!is_root()) {
        return;
    }
    look_from(&l, true);
    g_assert_cmpint(chmod(l.arena.dir, 0777), ==, 0);
    child = child_start(own_user, &l);
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    look_end(&l);
}

static void test_no_proc(void)
{
    TestObserver o;
    Child child;
    Looker l;

    look_from(&l, true);
    observer_start(&o, l.arena.dir);
    child = child_start(no_proc, &l);
    if (child_hear(&child) == 'c') {
        observer_greet(&o);
        child_tell(&child, 'g');
    }
    child_assert_mounted(&child);
    observer_end(&o);
    look_end(&l);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    guard_pages();
    g_test_add_func("/observer/declared", test_declared);
    g_test_add_func("/observer/declared/lost", test_declaration_lost);
    g_test_add_func("/observer/declared/may-not-ask", test_may_not_ask);
    g_test_add_func("/observer/own-user", test_own_user);
    g_test_add_func("/observer/no-proc", test_no_proc);
    return g_test_run();
}
