/*
 * Idletime machine tests: builds with different arenas share a path.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * IDLETIME_QEMU_OTHER_ABI names a QEMU of another IDLETIME_ARENA_ABI, which
 * tests/machine/other-abi builds; the tests that need it are skipped without.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "qobject/qnum.h"

#define OTHER_QEMU  "IDLETIME_QEMU_OTHER_ABI"

/* As idletime/arena/arena.h has it, in all versions. */
typedef struct Header {
    uint64_t magic;
    uint32_t abi;
} Header;

static char *below(TestMachine *m, const char *name)
{
    return g_build_filename(m->dir, RESOURCE, name, NULL);
}

/* The first of the others; 0: there are none. */
static int64_t other_generation(TestMachine *m)
{
    QDict *answer = qtest_qmp(m->qts, "{'execute': 'query-idletime'}");
    QListEntry *e = qlist_first(qdict_get_qlist(answer, "return"));
    QList *others = qdict_get_qlist(qobject_to(QDict, qlist_entry_obj(e)),
                                    "other-generations");
    int64_t abi = 0;

    if (!qlist_empty(others)) {
        abi = qnum_get_int(qobject_to(QNum,
                                      qlist_entry_obj(qlist_first(others))));
    }
    qobject_unref(answer);
    return abi;
}

/* Left by a build that is older, or newer: nobody is kept from starting. */
static void test_left_behind(void)
{
    const Header header = { .magic = 0x656d6974656c6469ULL, .abi = 7 };
    TestMachine *m = machine_new();
    g_autofree char *dir = below(m, "");
    g_autofree char *board = below(m, "foreground");
    g_autofree char *ours = below(m, "abi-3/foreground");
    TestDisk *fg, *bg;
    TestRequest *r;

    g_assert_cmpint(mkdir(dir, 0755), ==, 0);
    g_assert_true(g_file_set_contents(board, (const char *)&header,
                                      sizeof(header), NULL));
    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    machine_start(m);
    g_assert_cmpint(machine_number(m, RESOURCE, "generation"), ==, 3);
    g_assert_true(g_file_test(ours, G_FILE_TEST_EXISTS));
    g_assert_cmpint(other_generation(m), ==, 0);
    foreground(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_free(m);
}

static TestMachine *neighbour(const TestMachine *beside, const char *binary,
                              const char *id, const char *class, TestDisk **d)
{
    g_autofree char *options =
        g_strdup_printf("idletime=" RESOURCE ",idletime-class=%s", class);
    TestMachine *m = machine_new_beside(beside);

    m->binary = binary;
    machine_resource(m, RESOURCE, "");
    *d = machine_disk(m, id, options);
    machine_start(m);
    return m;
}

/* Two builds, each with two VMs: both work, within their own generation. */
static void test_two_builds(void)
{
    TestDisk *fg[2], *bg[2];
    TestMachine *m[2], *b[2];
    TestRequest *r;

    if (!g_getenv(OTHER_QEMU)) {
        g_test_skip(OTHER_QEMU " is not set");
        return;
    }
    m[0] = neighbour(NULL, NULL, "fg0", "foreground", &fg[0]);
    m[1] = neighbour(m[0], OTHER_QEMU, "fg1", "foreground", &fg[1]);
    for (int i = 0; i < 2; i++) {
        b[i] = neighbour(m[0], i ? OTHER_QEMU : NULL, i ? "bg1" : "bg0",
                         "background", &bg[i]);
        g_assert_cmpint(machine_number(b[i], RESOURCE, "generation"), ==,
                        3 + i);
    }
    for (int i = 0; i < 2; i++) {
        g_assert_cmpint(other_generation(b[i]), ==, 3 + !i);
        g_assert_cmpint(other_generation(m[i]), ==, 3 + !i);
        foreground(fg[i]);
        r = disk_read(bg[i]);
        assert_held(bg[i], 1);
        /* The other one's foreground is load from outside. */
        request_ok(disk_read(bg[!i]));
        machine_step_us(b[i], INTERVAL_US);
        request_ok(r);
    }
    machine_free(b[1]);
    machine_free(m[1]);
    g_assert_cmpint(other_generation(b[0]), ==, 0);
    machine_free(b[0]);
    machine_free(m[0]);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/generation/left-behind", test_left_behind);
    qtest_add_func("idletime/generation/two-builds", test_two_builds);
    return g_test_run();
}
