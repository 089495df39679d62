/*
 * idletime-resource: the mapped boards of its arena.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_BOARDS_H
#define IDLETIME_BOARDS_H

#include "idletime/arena/board.h"

/*
 * Each is mapped at its first use.  When the arena is lost and found again
 * (gate/recover.c), participants move from one set to the next, each in its
 * thread.
 */
typedef struct IdletimeBoards {
    char *owner;                /* id of the resource, for messages */
    IdletimeArena arena;
    IdletimeBoard fg_write;
    IdletimeBoard fg_read;
    IdletimeBoard bg;
} IdletimeBoards;

/**
 * idletime_boards_new: of the arena at @path, made where absent; all that
 * mapping and claiming needs is open now.  Returns NULL with @errp set.
 */
IdletimeBoards *idletime_boards_new(const char *owner, const char *path,
                                    Error **errp);
/** idletime_boards_renew: of the arena that is now where @lost was; or NULL. */
IdletimeBoards *idletime_boards_renew(const IdletimeBoards *lost);
/** idletime_boards_free: nobody may use them any more; NULL is fine. */
void idletime_boards_free(IdletimeBoards *boards);

/**
 * idletime_boards_map: map a board on its first use, else return it.
 * @writable: to claim slots
 * Returns NULL with @errp set.  Context: BQL.
 */
IdletimeBoard *idletime_boards_map(IdletimeBoards *boards,
                                   IdletimeBoardKind kind, bool writable,
                                   Error **errp);

/** idletime_boards_lost: is one of those mapped not what others see? */
bool idletime_boards_lost(const IdletimeBoards *boards);

/** idletime_boards_same: of one arena, whatever the paths?  Both are mapped. */
bool idletime_boards_same(const IdletimeBoards *a, const IdletimeBoards *b);

#endif
