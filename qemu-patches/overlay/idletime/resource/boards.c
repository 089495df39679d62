/*
 * idletime-resource: the mapped boards of its arena.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "idletime/resource/boards.h"

static IdletimeBoards *boards_of(const char *owner)
{
    IdletimeBoards *boards = g_new0(IdletimeBoards, 1);

    boards->owner = g_strdup(owner);
    return boards;
}

IdletimeBoards *idletime_boards_new(const char *owner, const char *path,
                                    Error **errp)
{
    IdletimeBoards *boards = boards_of(owner);
    IdletimeError err;

    GLOBAL_STATE_CODE();
    if (!idletime_arena_open(&boards->arena, path, &err)) {
        error_setg(errp, "idletime-resource '%s': %s", owner, err.text);
        idletime_boards_free(boards);
        return NULL;
    }
    return boards;
}

IdletimeBoards *idletime_boards_renew(const IdletimeBoards *lost)
{
    IdletimeBoards *boards = boards_of(lost->owner);
    IdletimeError err;

    GLOBAL_STATE_CODE();
    if (!idletime_arena_reopen(&boards->arena, &lost->arena, &err)) {
        idletime_boards_free(boards);
        return NULL;
    }
    return boards;
}

void idletime_boards_free(IdletimeBoards *boards)
{
    GLOBAL_STATE_CODE();
    if (boards) {
        idletime_board_close(&boards->fg_write);
        idletime_board_close(&boards->fg_read);
        idletime_board_close(&boards->bg);
        idletime_arena_close(&boards->arena);
        g_free(boards->owner);
        g_free(boards);
    }
}

IdletimeBoard *idletime_boards_map(IdletimeBoards *boards,
                                   IdletimeBoardKind kind, bool writable,
                                   Error **errp)
{
    IdletimeBoard *board = kind == IDLETIME_BOARD_BACKGROUND ? &boards->bg :
                           writable ? &boards->fg_write : &boards->fg_read;
    IdletimeError err;

    GLOBAL_STATE_CODE();
    if (!board->map &&
        !idletime_board_open(board, &boards->arena, kind, writable, &err)) {
        error_setg(errp, "idletime-resource '%s': %s", boards->owner,
                   err.text);
        return NULL;
    }
    return board;
}

static bool is_lost(const IdletimeBoard *board)
{
    return board->map && !idletime_board_intact(board, true);
}

bool idletime_boards_lost(const IdletimeBoards *boards)
{
    return is_lost(&boards->fg_write) || is_lost(&boards->fg_read) ||
           is_lost(&boards->bg);
}

/*
 * Boards are told apart by their file, which has the same number for every
 * path that leads to it.
 */
bool idletime_boards_same(const IdletimeBoards *a, const IdletimeBoards *b)
{
    return a->fg_read.inode == b->fg_read.inode &&
           a->fg_read.device == b->fg_read.device;
}
