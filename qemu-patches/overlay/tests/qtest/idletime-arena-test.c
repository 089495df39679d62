/*
 * Idletime machine tests: an arena that is lost, and comes back.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "idletime-observer.h"

#define HOLD_US     (5000 * MS)     /* max-hold-ms, the standard */

static char *below(TestMachine *m, const char *name)
{
    return g_build_filename(m->dir, RESOURCE, name, NULL);
}

/* Lost at the next look; not back at the one after it: others may be late. */
static void assert_noticed(TestMachine *m)
{
    g_assert_false(arena_is_lost(m));
    machine_step_us(m, ARENA_LOOK_US);
    g_assert_true(arena_is_lost(m));
    machine_step_us(m, ARENA_LOOK_US);
    g_assert_true(arena_is_lost(m));
}

/* Of a foreground request that is in service since before the loss. */
static void assert_waits_for(TestDisk *fg, TestRequest *f, TestDisk *bg)
{
    TestRequest *r = disk_read(bg);

    assert_held(bg, 1);
    machine_step_us(bg->m, 2 * INTERVAL_US);
    machine_step_to(fg->m, bg->m);
    assert_held(bg, 1);
    disk_resume(fg, "F");
    request_ok(f);
    machine_step_us(bg->m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(bg->m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 0);
}

/* Without a deadline: what is held leaves when the arena is back. */
static void test_deleted(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-hold-ms=0", &fg, &bg);
    TestRequest *f, *r;

    g_assert_cmpint(disk_number(bg, "waits.arena"), ==, 0);
    arena_delete(m);
    machine_step_us(m, ARENA_LOOK_US);
    g_assert_true(arena_is_lost(m));
    r = disk_read(bg);
    assert_held(bg, 1);
    g_assert_cmpint(disk_number(bg, "waits.arena"), >, 0);
    arena_await(m);
    request_ok(r);

    /* Once more, with a foreground request in service all the time. */
    disk_pause_read(fg, "F");
    f = disk_read(fg);
    arena_delete(m);
    assert_noticed(m);
    arena_await(m);
    assert_waits_for(fg, f, bg);
    machine_free(m);
}

/*
 * Who comes first makes it anew, and the other one follows.  @file: one board
 * alone; NULL: all.
 */
static void test_two(const void *file)
{
    TestDisk *fg, *bg;
    TestRequest *f;

    machine_two("", &fg, &bg);
    disk_pause_read(fg, "F");
    f = disk_read(fg);
    if (file) {
        arena_delete_file(fg->m, file);
    } else {
        arena_delete(fg->m);
    }
    assert_noticed(bg->m);
    arena_await(bg->m);
    machine_step_to(fg->m, bg->m);
    arena_await(fg->m);
    machine_step_to(bg->m, fg->m);
    assert_waits_for(fg, f, bg);
    machine_free(bg->m);
    machine_free(fg->m);
}

/* The observer's connection outlives the arena that it was found in. */
static void test_observer(void)
{
    TestDisk *bg = machine_background(NULL, "");
    TestMachine *m = bg->m;
    g_autofree char *dir = below(m, "");
    g_autofree char *seen = NULL;
    TestObserver o;
    TestRequest *r;

    observer_start(&o, dir);
    machine_step_us(m, ARENA_LOOK_US);
    observer_greet(&o);
    machine_step_us(m, ARENA_LOOK_US);
    arena_delete_file(m, "observer");
    arena_delete(m);
    assert_noticed(m);
    arena_await(m);
    seen = machine_string(m, RESOURCE, "observer.state");
    g_assert_cmpstr(seen, ==, "seen");
    g_assert_cmpint(machine_number(m, RESOURCE, "observer.came"), ==, 1);

    observer_begin(&o, m->now_us * 1000, BLOCK_BYTES);
    r = disk_read(bg);
    machine_step_us(m, 2 * INTERVAL_US);
    assert_held(bg, 1);
    observer_finish(&o, m->now_us * 1000);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    observer_die(&o);
    machine_free(m);
}

/* ---- damaged: it stays until somebody removes it */

typedef struct Damage {
    const char *file;
    bool removed;           /* else truncated */
} Damage;

static const Damage damage[] = {
    { "foreground" },
    { "background" },
    { "foreground.lock", true },
    { "background.lock", true },
};

static void do_damage(TestMachine *m, const Damage *d)
{
    g_autofree char *path = below(m, d->file);

    g_assert_cmpint(d->removed ? unlink(path) : truncate(path, 0), ==, 0);
}

/* Held requests leave by deadline, and nobody joins. */
static void assert_stays_lost(TestDisk *bg)
{
    g_autofree char *text =
        g_strdup_printf("idletime-resource '" RESOURCE "': its arena '%s/"
                        RESOURCE "' is lost, so no device can join; restore "
                        "the directory first", bg->m->dir);
    TestRequest *r = disk_read(bg);

    machine_step_us(bg->m, HOLD_US - 1);
    assert_held(bg, 1);
    machine_step_us(bg->m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 1);
    g_assert_true(arena_is_lost(bg->m));
    machine_refused(bg->m, text, "idletime-attach",
                    "{'device': 'late', 'resource': 'r0'}");
}

static void test_damaged(const void *opaque)
{
    TestMachine *m = machine_new();
    TestDisk *fg, *bg, *late;

    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    late = machine_disk(m, "late", "");
    machine_start(m);
    do_damage(m, opaque);
    machine_step_us(m, ARENA_LOOK_US);
    g_assert_true(arena_is_lost(m));
    assert_stays_lost(bg);
    arena_delete(m);
    arena_await(m);
    disk_attach(late, "foreground");
    foreground(late);
    g_assert_cmpint(disk_number(late, "foreground.requests"), ==, 1);
    foreground(fg);
    g_assert_cmpint(disk_number(fg, "foreground.requests"), ==, 1);
    machine_free(m);
}

/* All slots of a board, until the descriptor is closed. */
static int take_all(TestMachine *m, const char *class)
{
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    g_autofree char *lock = g_strconcat(class, ".lock", NULL);
    g_autofree char *path = below(m, lock);
    int fd = open(path, O_RDWR | O_CLOEXEC);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(fcntl(fd, F_OFD_SETLK, &all), ==, 0);
    return fd;
}

/* Lost a second time while one has not found a place on the new boards. */
static void test_again(const void *opaque)
{
    const char *class = opaque;
    TestMachine *stuck, *other;
    TestDisk *fg, *bg;
    TestRequest *f;
    int fd;

    machine_two("", &fg, &bg);
    disk_pause_read(fg, "F");
    f = disk_read(fg);
    stuck = g_str_equal(class, "background") ? bg->m : fg->m;
    other = stuck == bg->m ? fg->m : bg->m;
    arena_delete(other);
    machine_step_us(other, ARENA_LOOK_US);
    fd = take_all(other, class);
    machine_step_to(stuck, other);
    machine_step_us(stuck, 3 * ARENA_LOOK_US);
    /* Who has no background shows no state. */
    g_assert_true(stuck == fg->m || arena_is_lost(stuck));

    arena_delete(other);
    close(fd);
    machine_step_to(other, stuck);
    arena_await(other);
    machine_step_to(stuck, other);
    arena_await(stuck);
    machine_step_to(other, stuck);
    assert_waits_for(fg, f, bg);
    machine_free(bg->m);
    machine_free(fg->m);
}

/* Whoever has all slots keeps others out, who are told, and stay stock. */
static void test_full(const void *opaque)
{
    const char *class = opaque;
    g_autofree char *json = g_strdup_printf("{'device': 'd', 'resource': '"
                                            RESOURCE "', 'class': '%s'}",
                                            class);
    g_autofree char *board = NULL, *error = NULL;
    TestMachine *m = machine_new();
    int fd;

    machine_resource(m, RESOURCE, "");
    machine_disk(m, "d", "");
    machine_start(m);
    board = below(m, class);
    error = g_strdup_printf("idletime-resource '" RESOURCE "': arena board "
                            "'%s' is full: all 1024 slots are taken; move "
                            "some devices to another resource", board);
    fd = take_all(m, class);
    machine_refused(m, error, "idletime-attach", json);
    close(fd);
    machine_ok(m, "idletime-attach", json);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/arena/deleted", test_deleted);
    qtest_add_data_func("idletime/arena/two/all", NULL, test_two);
    qtest_add_data_func("idletime/arena/two/foreground", "foreground",
                        test_two);
    qtest_add_data_func("idletime/arena/two/background", "background",
                        test_two);
    qtest_add_data_func("idletime/arena/again/foreground", "foreground",
                        test_again);
    qtest_add_data_func("idletime/arena/again/background", "background",
                        test_again);
    qtest_add_func("idletime/arena/observer", test_observer);
    qtest_add_data_func("idletime/arena/full/foreground", "foreground",
                        test_full);
    qtest_add_data_func("idletime/arena/full/background", "background",
                        test_full);
    for (unsigned i = 0; i < G_N_ELEMENTS(damage); i++) {
        g_autofree char *path = g_strdup_printf("idletime/arena/damaged/%s",
                                                damage[i].file);

        qtest_add_data_func(path, &damage[i], test_damaged);
    }
    return g_test_run();
}
