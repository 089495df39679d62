/*
 * Idletime arena: what board.c and slot.c share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_BOARD_IMPL_H
#define IDLETIME_BOARD_IMPL_H

#include "idletime/arena/arena.h"

/* Where things are in the file of one kind of board; bytes. */
typedef struct IdletimeKind {
    const char *name;
    size_t size;
    size_t line_offset;
    size_t line_size;
} IdletimeKind;

/* Indexed by IdletimeBoardKind. */
extern const IdletimeKind idletime_kinds[];

/* Fills @err; false, for the caller to return. */
static inline bool G_GNUC_PRINTF(2, 3) fail(IdletimeError *err,
                                            const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    return false;
}

#endif
