/*
 * Idletime arena: who owns which slot, and who lives.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A slot is owned by an exclusive lock on its byte of the board's .lock file,
 * and its owner says that it lives by a shared lock on the same byte of the
 * .alive file.  The kernel drops both when the process dies, however it dies,
 * so that nobody has to clean up and nobody has to guess.
 *
 * All locks of a process belong to one open file description, in which locks
 * do not conflict with each other; so a process knows its own slots by a
 * bitmap, and a claim opens no file.
 */
#ifndef IDLETIME_SLOT_H
#define IDLETIME_SLOT_H

#include "idletime/arena/board.h"

/* A slot of a board; zero-initialised: not claimed. */
typedef struct IdletimeSlot {
    bool claimed;
    uint32_t index;
} IdletimeSlot;

/**
 * idletime_slot_claim: take a free slot; it is zeroed.
 * @board: must be writable
 * @label: for people, e.g. the VM's name and device; cut to fit
 * The kernel gives the slot back when the process dies.  Opens no path.
 * Returns false with @err set when all slots are taken.  Any thread.
 */
bool idletime_slot_claim(IdletimeBoard *board, IdletimeSlot *slot,
                         const char *label, IdletimeError *err);
/** idletime_slot_release: it is zeroed.  Idempotent. */
void idletime_slot_release(IdletimeBoard *board, IdletimeSlot *slot);

/**
 * idletime_slot_show: have later scans look at a claimed slot, whatever was
 * scribbled over the board's count of them.  Reads only, where it is right.
 * Context: any thread that may touch the board.
 */
void idletime_slot_show(const IdletimeBoard *board, const IdletimeSlot *slot);

/**
 * idletime_slot_alive: does a living process own slot @index?
 * One system call.  When in doubt it lives: the careful answer for the
 * background.  Context: any thread; no claim of our own is needed.
 */
bool idletime_slot_alive(const IdletimeBoard *board, uint32_t index);

#endif
