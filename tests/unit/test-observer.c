/*
 * Arena: an observer that comes, dies and comes back, and what it shows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "looker.h"

/* ---- there, and not */

static void test_absent(void)
{
    IdletimeView view;
    Looker l;

    look_from(&l, true);
    assert_news(&l, NO_NEWS);
    assert_state(&l, ABSENT);
    view = look(&l, SEC);
    g_assert_false(view.unseen || view.blind);
    g_assert_cmpuint(view.fg_started, ==, 0);
    g_assert_cmpint(view.fg_last_ns, ==, INT64_MIN);
    declare(&l);
    assert_news(&l, NO_NEWS);
    assert_state(&l, LOST);
    g_assert_true(look(&l, SEC).unseen);
    look_end(&l);
}

/* Two requests, from 100 and 104 ms on; the first ends at 110 ms. */
static void test_facts(void)
{
    IdletimeView view;
    TestObserver o;
    Looker l;

    look_and_meet(&l, &o);
    observer_begin(&o, 100 * MS, 512);
    observer_begin(&o, 104 * MS, 512);
    view = look(&l, 106 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 1);
    g_assert_cmpuint(view.fg_requests, ==, 2);
    g_assert_cmpuint(view.fg_started, ==, 2);
    g_assert_cmpint(view.fg_last_ns, ==, 104 * MS);
    /* 6 + 2 ms */
    g_assert_cmpuint(view.observed.request_ns, ==, 8 * MS);
    observer_finish(&o, 110 * MS);
    view = look(&l, 111 * MS);
    g_assert_cmpuint(view.fg_requests, ==, 1);
    g_assert_cmpint(view.fg_last_ns, ==, 110 * MS);
    /* 10 + 7 ms */
    g_assert_cmpuint(view.observed.request_ns, ==, 17 * MS);
    /* An end that is written before its begin. */
    o.page->in_service = -1;
    view = look(&l, 111 * MS);
    g_assert_cmpuint(view.fg_requests, ==, 0);
    g_assert_cmpuint(view.fg_in_service, ==, 0);
    observer_end(&o);
    look_end(&l);
}

/* Beside a slot: sums are of both, the last event is the later. */
static void test_beside_slot(void)
{
    IdletimeView view;
    TestObserver o;
    Tenant tenant;
    Looker l;

    look_and_meet(&l, &o);
    tenant_join(&tenant, &l.arena, "tenant");
    idletime_fg_begin(&tenant.writer, 103 * MS, 512);
    observer_begin(&o, 100 * MS, 512);
    view = look(&l, 106 * MS);
    g_assert_cmpuint(view.fg_in_service, ==, 2);
    g_assert_cmpuint(view.fg_requests, ==, 2);
    g_assert_cmpuint(view.fg_started, ==, 2);
    g_assert_cmpint(view.fg_last_ns, ==, 103 * MS);
    tenant_leave(&tenant);
    observer_end(&o);
    look_end(&l);
}

/* ---- it dies */

static void test_dies(gconstpointer declared)
{
    IdletimeView view;
    TestObserver o;
    Looker l;

    look_and_meet(&l, &o);
    if (declared) {
        declare(&l);
        assert_news(&l, NO_NEWS);
    }
    observer_begin(&o, 100 * MS, 512);
    g_assert_cmpuint(look(&l, 101 * MS).fg_in_service, ==, 1);
    observer_die(&o);
    /* At once: it is asked for as soon as it is in the way. */
    for (int i = 0; i < 2; i++) {
        view = look(&l, 102 * MS);
        g_assert_cmpuint(view.fg_in_service, ==, 0);
        g_assert_cmpuint(view.observed.started, ==, 0);
        g_assert_cmpint(view.unseen, ==, declared != NULL);
        g_assert_false(view.blind);
        if (i == 0) {
            assert_news(&l, DIED);
        }
    }
    assert_news(&l, NO_NEWS);
    g_assert_cmpint(idletime_observer_state(&l.observer), ==,
                    declared ? IDLETIME_OBSERVER_LOST :
                               IDLETIME_OBSERVER_ABSENT);
    look_end(&l);
}

/* Its successor has counted since long ago: that is no foreground of now. */
static void test_comes_back(void)
{
    TestObserver o;
    Looker l;

    look_and_meet(&l, &o);
    for (int i = 0; i < 3; i++) {
        observer_begin(&o, 100 * MS, 512);
        g_assert_cmpuint(look(&l, 101 * MS).fg_started, ==, 1);
        observer_die(&o);
        assert_news(&l, DIED);
        observer_start(&o, l.arena.dir);
        o.page->started = 1000;
        meet(&l, &o);
        g_assert_cmpuint(look(&l, 101 * MS).fg_started, ==, 0);
        g_assert_cmpuint(look(&l, 101 * MS).fg_in_service, ==, 0);
    }
    g_assert_cmpuint(l.observer.came, ==, 4);
    g_assert_cmpuint(l.observer.died, ==, 3);
    observer_end(&o);
    look_end(&l);
}

/* The arena is removed under both: who is connected stays. */
static void test_arena_removed(void)
{
    TestObserver o;
    Looker l;

    look_and_meet(&l, &o);
    unlink(o.path);
    assert_news(&l, NO_NEWS);
    observer_begin(&o, 100 * MS, 512);
    assert_state(&l, SEEN);
    observer_die(&o);
    assert_news(&l, DIED);
    assert_news(&l, NO_NEWS);
    look_end(&l);
}

/* What it sends after the descriptor is not read, and does not hide its end. */
static void test_flood(void)
{
    TestObserver o;
    Looker l;

    look_and_meet(&l, &o);
    g_assert_cmpuint(observer_flood(&o), >, 4096);
    assert_news(&l, NO_NEWS);
    assert_state(&l, SEEN);
    observer_begin(&o, 100 * MS, 512);
    g_assert_cmpuint(look(&l, 101 * MS).fg_in_service, ==, 1);
    observer_die(&o);
    g_assert_cmpuint(look(&l, 101 * MS).fg_in_service, ==, 0);
    assert_news(&l, DIED);
    look_end(&l);
}

/* ---- roots */

/*
 * In another root directory without /proc: what was connected before works,
 * and what comes later cannot be reached, which is no error of ours.
 */
static int in_chroot(ChildEnd *end, void *opaque)
{
    Looker *l = opaque;

    if (chroot(l->arena.root) != 0 || chdir("/") != 0) {
        return 1;
    }
    end_tell(end, 'c');
    end_hear(end);
    if (idletime_observer_watch(&l->observer) != IDLETIME_OBSERVER_CAME ||
        look(l, 101 * MS).fg_in_service != 1) {
        return 2;
    }
    end_tell(end, 's');
    end_hear(end);
    if (idletime_observer_watch(&l->observer) != IDLETIME_OBSERVER_DIED) {
        return 3;
    }
    for (int i = 0; i < 5; i++) {
        if (idletime_observer_watch(&l->observer) !=
            IDLETIME_OBSERVER_NO_NEWS) {
            return 4;
        }
    }
    return 0;
}

static void test_chroot(void)
{
    TestObserver o;
    Child child;
    Looker l;

    if (!is_root()) {
        return;
    }
    look_from(&l, true);
    observer_start(&o, l.arena.dir);
    assert_news(&l, NO_NEWS);
    child = child_start(in_chroot, &l);
    g_assert_cmpint(child_hear(&child), ==, 'c');
    observer_begin(&o, 100 * MS, 512);
    observer_greet(&o);
    child_tell(&child, 'g');
    g_assert_cmpint(child_hear(&child), ==, 's');
    observer_die(&o);
    observer_start(&o, l.arena.dir);
    child_tell(&child, 'd');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    observer_end(&o);
    look_end(&l);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    guard_pages();
    g_test_add_func("/observer/absent", test_absent);
    g_test_add_func("/observer/facts", test_facts);
    g_test_add_func("/observer/beside-slot", test_beside_slot);
    g_test_add_data_func("/observer/dies", NULL, test_dies);
    g_test_add_data_func("/observer/dies/declared", "", test_dies);
    g_test_add_func("/observer/comes-back", test_comes_back);
    g_test_add_func("/observer/arena-removed", test_arena_removed);
    g_test_add_func("/observer/flood", test_flood);
    g_test_add_func("/observer/chroot", test_chroot);
    return g_test_run();
}
