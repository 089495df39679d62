/*
 * Arena: what is no observer, and a page that is a BPF map.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "looker.h"
#include <linux/bpf.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- it is none */

static void set_magic(TestObserver *o)
{
    o->page->magic++;
}

static void set_version(TestObserver *o)
{
    o->page->version++;
}

static void set_empty(TestObserver *o)
{
    g_assert_cmpint(ftruncate(o->file, 0), ==, 0);
}

typedef void Spoil(TestObserver *o);

/* Refused each time, and a good one is used after it. */
static void test_wrong_page(gconstpointer spoil)
{
    TestObserver bad, good;
    Looker l;

    look_from(&l, true);
    observer_start(&bad, l.arena.dir);
    ((Spoil *)spoil)(&bad);
    for (int i = 1; i <= 3; i++) {
        assert_news(&l, NO_NEWS);
        observer_greet(&bad);
        assert_news(&l, REFUSED);
        g_assert_cmpuint(l.observer.refused, ==, i);
        g_assert_false(look(&l, SEC).fg_in_service);
        assert_state(&l, ABSENT);
    }
    observer_start(&good, l.arena.dir);
    meet(&l, &good);
    observer_end(&good);
    observer_die(&bad);
    look_end(&l);
}

static void test_no_descriptor(void)
{
    TestObserver o;
    int pipes[2];
    Looker l;

    look_from(&l, true);
    observer_start(&o, l.arena.dir);
    assert_news(&l, NO_NEWS);
    observer_accept(&o);
    observer_send(&o, "hello", 5, -1);
    assert_news(&l, REFUSED);
    g_assert_cmpint(pipe2(pipes, O_CLOEXEC), ==, 0);
    assert_news(&l, NO_NEWS);
    observer_accept(&o);
    observer_send(&o, "", 1, pipes[0]);
    assert_news(&l, REFUSED);
    assert_state(&l, ABSENT);
    close(pipes[0]);
    close(pipes[1]);
    observer_end(&o);
    look_end(&l);
}

/* Connected and silent: given up, and asked again. */
static void test_silent(void)
{
    TestObserver o;
    Looker l;

    look_from(&l, true);
    observer_start(&o, l.arena.dir);
    for (int i = 0; i < 2; i++) {
        assert_news(&l, NO_NEWS);
        observer_accept(&o);
        assert_news(&l, NO_NEWS);
        assert_news(&l, REFUSED);
    }
    meet(&l, &o);
    observer_end(&o);
    look_end(&l);
}

/* A file, which somebody may truncate: only tests show such a page. */
static void test_file(void)
{
    TestObserver o;
    Looker l;

    look_from(&l, false);
    observer_start(&o, l.arena.dir);
    assert_news(&l, NO_NEWS);
    observer_greet(&o);
    assert_news(&l, REFUSED);
    g_assert_cmpstr(l.observer.why.text, ==,
                    "what it sent is a file and no BPF map");
    observer_end(&o);
    look_end(&l);
}

static void test_truncated(void)
{
    TestObserver o;
    Looker l;

    look_and_meet(&l, &o);
    observer_begin(&o, 100 * MS, 512);
    g_assert_cmpint(ftruncate(o.file, 0), ==, 0);
    g_assert_cmpuint(look(&l, 101 * MS).fg_in_service, ==, 0);
    assert_news(&l, DIED);
    assert_state(&l, ABSENT);
    /* The same again, from before. */
    assert_news(&l, NO_NEWS);
    observer_greet(&o);
    assert_news(&l, REFUSED);
    observer_end(&o);
    look_end(&l);
}

/* ---- other users */

static int other_user(ChildEnd *end, void *dir)
{
    TestObserver o;

    if (!become(NOBODY, NOBODY)) {
        return 1;
    }
    observer_start(&o, dir);
    end_tell(end, 'b');
    end_hear(end);
    return 0;
}

static void test_other_user(void)
{
    Child child;
    Looker l;

    if (!is_root()) {
        return;
    }
    look_from(&l, true);
    g_assert_cmpint(chmod(l.arena.dir, 0777), ==, 0);
    child = child_start(other_user, l.arena.dir);
    g_assert_cmpint(child_hear(&child), ==, 'b');
    assert_news(&l, REFUSED);
    g_assert_cmpstr(l.observer.why.text, ==,
                    "it runs as user 65534 and must be root");
    assert_state(&l, ABSENT);
    child_tell(&child, 'e');
    g_assert_cmpint(child_exit_status(&child), ==, 0);
    look_end(&l);
}

/* ---- a BPF map */

/* Mapable, one element of a page; -1 with errno where that is not allowed. */
static int make_map(const IdletimeObserved *page)
{
    union bpf_attr create = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4,
        .value_size = sizeof(*page), .max_entries = 1,
        .map_flags = BPF_F_MMAPABLE,
    };
    uint32_t key = 0;
    union bpf_attr update = {
        .key = (uintptr_t)&key, .value = (uintptr_t)page,
    };
    int fd = syscall(SYS_bpf, BPF_MAP_CREATE, &create, sizeof(create));

    update.map_fd = fd;
    return fd < 0 || syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &update,
                             sizeof(update)) == 0 ? fd : -1;
}

static void test_map(void)
{
    TestObserver o;
    Looker l;
    int map;

    look_from(&l, false);
    observer_start(&o, l.arena.dir);
    observer_begin(&o, 100 * MS, 512);
    map = make_map(o.page);
    if (map < 0) {
        g_test_skip("no right to make a BPF map");
    } else {
        assert_news(&l, NO_NEWS);
        observer_accept(&o);
        observer_send(&o, "", 1, map);
        assert_news(&l, CAME);
        g_assert_cmpuint(look(&l, 101 * MS).fg_in_service, ==, 1);
        close(map);
    }
    observer_end(&o);
    look_end(&l);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    guard_pages();
    g_test_add_data_func("/observer/wrong/magic", set_magic, test_wrong_page);
    g_test_add_data_func("/observer/wrong/version", set_version,
                         test_wrong_page);
    g_test_add_data_func("/observer/wrong/empty", set_empty, test_wrong_page);
    g_test_add_func("/observer/wrong/no-descriptor", test_no_descriptor);
    g_test_add_func("/observer/wrong/silent", test_silent);
    g_test_add_func("/observer/wrong/file", test_file);
    g_test_add_func("/observer/wrong/other-user", test_other_user);
    g_test_add_func("/observer/truncated", test_truncated);
    g_test_add_func("/observer/map", test_map);
    return g_test_run();
}
