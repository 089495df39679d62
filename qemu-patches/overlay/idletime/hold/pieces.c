/*
 * Idletime hold: large background requests, issued a piece at a time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A disk does not preempt, so a large request costs a foreground request that
 * arrives behind it all of its service time.  In pieces it costs one piece:
 * the gate is asked before each.
 */
#include "qemu/osdep.h"
#include "system/block-backend.h"
#include "hold-impl.h"

uint64_t idletime_hold_piece_limit(const IdletimeHolder *hold)
{
    uint64_t block = hold->block_bytes;
    uint64_t limit = idletime_resource_get(hold->dev.res,
                                           IDLETIME_MAX_REQUEST_BYTES);

    return MAX(QEMU_ALIGN_DOWN(limit, block), block);
}

/* With rerror or werror=ignore the next bytes are as good as any. */
static bool is_ignored(const IdletimeHolder *hold, const IdletimePieces *pieces,
                       int ret)
{
    return blk_get_error_action(hold->blk, !pieces->is_write, -ret) ==
           BLOCK_ERROR_ACTION_IGNORE;
}

bool idletime_hold_goes_on(const IdletimeHolder *hold, IdletimePieces *pieces,
                           int ret)
{
    if (ret < 0 && !pieces->ignored && is_ignored(hold, pieces, ret)) {
        pieces->ignored = ret;
    }
    return ret == 0 || pieces->ignored;
}

bool idletime_pieces_done(const IdletimeHolder *hold, IdletimePieces *pieces,
                          int *ret)
{
    bool goes_on = idletime_hold_goes_on(hold, pieces, *ret);

    pieces->done_bytes += pieces->piece_bytes;
    *ret = pieces->ignored ?: *ret;
    return !goes_on || !idletime_pieces_left(pieces);
}
