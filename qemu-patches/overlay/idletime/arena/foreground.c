/*
 * Idletime arena: a foreground participant comes to a slot, or moves to one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/foreground.h"

void idletime_fg_attach(IdletimeFgWriter *w, IdletimeBoard *board,
                        const IdletimeSlot *slot)
{
    IdletimeFgBoard *fg = idletime_fg_board(board);

    *w = (IdletimeFgWriter) {
        .line = &fg->line[slot->index],
        .page = &fg->page[slot->index],
    };
}

void idletime_fg_move(IdletimeFgWriter *w, IdletimeBoard *board,
                      const IdletimeSlot *slot, int64_t now_ns)
{
    IdletimeFgWriter old = *w;

    idletime_fg_attach(w, board, slot);
    w->started = old.started;
    w->bytes = old.bytes;
    w->request_ns = old.request_ns;
    w->last_ns = now_ns;
    if (old.in_service) {
        /* Begin and end keep the order of stores that readers rely on. */
        w->started = old.started - 1;
        w->in_service = 0;
        idletime_fg_begin(w, now_ns, 0);
        w->in_service = old.in_service;
    }
}
