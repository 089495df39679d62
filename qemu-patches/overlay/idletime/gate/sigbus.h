/*
 * Idletime: let a thread survive a truncated board.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_SIGBUS_H
#define IDLETIME_SIGBUS_H

extern __thread bool idletime_thread_guarded;

/** idletime_guard_thread_slow: use idletime_guard_thread(). */
void idletime_guard_thread_slow(void);

/**
 * idletime_guard_thread: before this thread touches a board.
 *
 * QEMU blocks SIGBUS in most threads and reads it from a signalfd; a fault
 * with the signal blocked kills the process.  A program that has no handler
 * gets one.  Costs one load after the first call.
 */
static inline void idletime_guard_thread(void)
{
    if (unlikely(!idletime_thread_guarded)) {
        idletime_guard_thread_slow();
    }
}

/**
 * idletime_sigbus: first look of QEMU's SIGBUS handler.
 * @context: ucontext_t of a real delivery; NULL when read from the signalfd
 * @cpu: the guest's processor whose thread this is, or NULL
 * Returns true if the signal is dealt with.  Async-signal-safe.
 */
bool idletime_sigbus(const siginfo_t *info, void *context, const void *cpu);

#endif
