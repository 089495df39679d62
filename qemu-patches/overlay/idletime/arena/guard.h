/*
 * Idletime arena: SIGBUS guard of mapped boards (used by board.c only).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_GUARD_H
#define IDLETIME_GUARD_H

#include "idletime/arena/arena.h"

/* Boards mapped by one process: three a resource, so 85 resources. */
#define IDLETIME_GUARDS 256

/** idletime_guard_add: returns a handle, or -1 when the table is full. */
int idletime_guard_add(void *start, size_t size);
void idletime_guard_remove(int guard);

#endif
