/*
 * Arena: a filesystem that is full.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"

/* In a mount namespace of its own, on a tmpfs of 64 KiB. */
static int claim_until_full(ChildEnd *end, void *data)
{
    const Arena *arena = data;
    IdletimeError err = { "" };
    IdletimeArena open;
    IdletimeBoard fg;
    IdletimeSlot slot, last;
    int slots = 0;

    (void)end;
    if (!child_own_mount(arena->root, "size=64k,mode=755")) {
        return CHILD_MAY_NOT_MOUNT;
    }
    open = must_enter(arena);
    fg = must_open(&open, IDLETIME_BOARD_FOREGROUND, true);
    while (idletime_slot_claim(&fg, &slot, "x", &err)) {
        last = slot;
        slots++;
    }
    /* 16 pages; 2 of headers, 1 of tokens, 1 of lines: 12 slots at most. */
    if (slots < 4 || slots > 12 || slot.claimed ||
        !strstr(err.text, "no space") || !strstr(err.text, "No space left") ||
        idletime_slot_alive(&fg, slots)) {
        g_printerr("%d slots: %s\n", slots, err.text);
        return 1;
    }
    /* What did not fit holds nothing: one leaves, one fits. */
    idletime_slot_release(&fg, &last);
    return idletime_slot_claim(&fg, &slot, "x", &err) &&
           slot.index == last.index ? 0 : 2;
}

/* Whoever has a slot may write it: its memory is its own, no signal comes. */
static int fill_background(ChildEnd *end, void *data)
{
    const Arena *arena = data;
    IdletimeError err = { "" };
    IdletimeArena open;
    IdletimeBoard bg;
    IdletimeSlot slot;
    uint32_t slots = 0;

    (void)end;
    if (!child_own_mount(arena->root, "size=64k,mode=755")) {
        return CHILD_MAY_NOT_MOUNT;
    }
    open = must_enter(arena);
    bg = must_open(&open, IDLETIME_BOARD_BACKGROUND, true);
    while (idletime_slot_claim(&bg, &slot, "x", &err)) {
        slots++;
    }
    for (uint32_t i = 0; i < slots; i++) {
        memset(&idletime_bg_board(&bg)->line[i], 0x5a, sizeof(IdletimeBgLine));
    }
    return slots > 10 && slots < IDLETIME_SLOTS ? 0 : 1;
}

/* No room for a board: said, and no temporary file is left. */
static int create_when_full(ChildEnd *end, void *data)
{
    const Arena *arena = data;
    IdletimeError err = { "" };
    IdletimeArena open;
    GDir *dir;
    int files = 0;

    (void)end;
    if (!child_own_mount(arena->root, "size=4k,mode=755")) {
        return CHILD_MAY_NOT_MOUNT;
    }
    if (idletime_arena_open(&open, arena->dir, &err) ||
        !strstr(err.text, "No space left on device; is its filesystem "
                "full?")) {
        g_printerr("%s\n", err.text);
        return 1;
    }
    dir = g_dir_open(arena->dir, 0, NULL);
    for (const char *name; (name = g_dir_read_name(dir)); files++) {
        if (!strstr(name, "ground")) {
            return 2;
        }
    }
    g_dir_close(dir);
    /* The foreground's board and its locks fitted, the background's locks. */
    return files == 5 ? 0 : 3;
}

static void assert_on_tmpfs(ChildBody *body)
{
    Arena arena = arena_directory_only();
    Child child = child_start(body, &arena);

    child_assert_mounted(&child);
    arena_remove(&arena);
}

static void test_no_space_for_a_slot(void)
{
    assert_on_tmpfs(claim_until_full);
}

static void test_room_that_was_claimed(void)
{
    assert_on_tmpfs(fill_background);
}

static void test_no_space_for_a_board(void)
{
    assert_on_tmpfs(create_when_full);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/slots/no-space-for-a-slot", test_no_space_for_a_slot);
    g_test_add_func("/slots/no-space-for-a-board", test_no_space_for_a_board);
    g_test_add_func("/slots/room-that-was-claimed",
                    test_room_that_was_claimed);
    return g_test_run();
}
