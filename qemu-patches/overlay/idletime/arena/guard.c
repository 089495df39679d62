/*
 * Idletime arena: survive a board that is truncated under us.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * An access behind the end of a mapped file raises SIGBUS.  Boards are files
 * that other processes can truncate, and the foreground must not pay for a
 * check before each store, so the signal handler puts zeroed private memory
 * where the board was.
 */
#include "qemu/osdep.h"
#include "idletime/arena/guard.h"
#include <sys/mman.h>

typedef struct Guarded {
    uintptr_t start;            /* 0: free; written last */
    size_t size;
} Guarded;

static Guarded guarded[IDLETIME_GUARDS];

int idletime_guard_add(void *start, size_t size)
{
    for (int i = 0; i < IDLETIME_GUARDS; i++) {
        uintptr_t free_entry = 0;

        /* 1 is no page: it reserves the entry until its size is written. */
        if (__atomic_compare_exchange_n(&guarded[i].start, &free_entry, 1,
                                        false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            guarded[i].size = size;
            __atomic_store_n(&guarded[i].start, (uintptr_t)start,
                             __ATOMIC_RELEASE);
            return i;
        }
    }
    return -1;
}

void idletime_guard_remove(int guard)
{
    if (guard >= 0) {
        __atomic_store_n(&guarded[guard].start, 0, __ATOMIC_RELEASE);
    }
}

bool idletime_arena_sigbus(void *addr)
{
    for (int i = 0; i < IDLETIME_GUARDS; i++) {
        uintptr_t start = __atomic_load_n(&guarded[i].start, __ATOMIC_ACQUIRE);

        if (start > 1 && (uintptr_t)addr - start < guarded[i].size) {
            return mmap((void *)start, guarded[i].size,
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                        -1, 0) != MAP_FAILED;
        }
    }
    return false;
}
