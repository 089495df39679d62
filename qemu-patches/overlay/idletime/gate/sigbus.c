/*
 * Idletime: let a thread survive a truncated board.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/guard.h"
#include "idletime/gate/sigbus.h"
#include "hw/core/cpu.h"
#include <sys/syscall.h>
#include <ucontext.h>

__thread bool idletime_thread_guarded;

void idletime_guard_thread_slow(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    idletime_thread_guarded = true;
}

/*
 * A memory failure reported to a thread of the process at leisure used to be
 * read from the signalfd, in the main loop.  We unblocked the signal, so give
 * it back: block it in this thread and send it once more.  From then on this
 * thread is as unguarded as it was without us.
 */
static bool back_to_signalfd(const siginfo_t *info, ucontext_t *context)
{
    siginfo_t copy = *info;

    sigaddset(&context->uc_sigmask, SIGBUS);
    return syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &copy) == 0;
}

bool idletime_sigbus(const siginfo_t *info, void *context)
{
    switch (info->si_code) {
    case BUS_ADRERR:
        return idletime_arena_sigbus(info->si_addr);
    case BUS_MCEERR_AO:
        return context && !current_cpu && idletime_thread_guarded &&
               back_to_signalfd(info, context);
    default:
        return false;
    }
}
