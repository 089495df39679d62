/*
 * Idletime: let a thread survive a truncated board.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/guard.h"
#include "idletime/gate/sigbus.h"
#include <sys/syscall.h>
#include <ucontext.h>

__thread bool idletime_thread_guarded;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    if (!idletime_sigbus(info, context, NULL) && context) {
        signal(SIGBUS, SIG_DFL);        /* touches it again */
    }
}

/* The emulator has a handler, which asks us first; the daemon has none. */
static void replace_default_handler(void)
{
    struct sigaction action;

    sigaction(SIGBUS, NULL, &action);
    if (action.sa_flags & SA_SIGINFO || action.sa_handler != SIG_DFL) {
        return;
    }
    action = (struct sigaction) {
        .sa_sigaction = on_sigbus,
        .sa_flags = SA_SIGINFO,
    };
    sigaction(SIGBUS, &action, NULL);
}

void idletime_guard_thread_slow(void)
{
    sigset_t set;

    replace_default_handler();
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    idletime_thread_guarded = true;
}

/*
 * A memory failure that nobody has touched yet.  The kernel reports it to the
 * main thread, where QEMU used to read it from its signalfd.  We unblocked
 * the signal, so give it back: block it and send it once more.  From then on
 * the main thread is as unguarded as it was without us.
 *
 * Only the main thread may do that: with a code that the kernel uses, a
 * signal can be sent by a thread to its own number alone, and to the process
 * as a whole only under the number of the main thread.
 */
static bool back_to_signalfd(const siginfo_t *info, ucontext_t *context)
{
    siginfo_t copy = *info;

    if (gettid() != getpid()) {
        return false;
    }
    sigaddset(&context->uc_sigmask, SIGBUS);
    return syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &copy) == 0;
}

/*
 * This thread has touched memory that has failed.  With the signal blocked, as
 * it was without us, the kernel ends the process with SIGBUS; QEMU's handler
 * would abort, as it does not expect to be called.
 */
static bool end_by_signal(void)
{
    signal(SIGBUS, SIG_DFL);
    return true;        /* touches it again */
}

bool idletime_sigbus(const siginfo_t *info, void *context, const void *cpu)
{
    bool unblocked = context && !cpu && idletime_thread_guarded;

    switch (info->si_code) {
    case BUS_ADRERR:
        return idletime_arena_sigbus(info->si_addr);
    case BUS_MCEERR_AO:
        return unblocked && back_to_signalfd(info, context);
    case BUS_MCEERR_AR:
        return unblocked && end_by_signal();
    default:
        return false;
    }
}
