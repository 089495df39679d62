/*
 * Idletime arena: survive a board that is truncated while it is mapped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_GUARD_H
#define IDLETIME_GUARD_H

/* Three boards and an observer a resource, so 64 resources in a process. */
#define IDLETIME_GUARDS 256

/** idletime_guard_add: returns a handle, or -1 when the table is full. */
int idletime_guard_add(void *start, size_t size);
void idletime_guard_remove(int guard);

/**
 * idletime_arena_sigbus: for the process's SIGBUS handler.
 * Returns true if @addr lies in a board (whose file was truncated under us);
 * the board is then private zeroed memory: writers write into the void,
 * readers find no magic.  Async-signal-safe.
 */
bool idletime_arena_sigbus(void *addr);

#endif
