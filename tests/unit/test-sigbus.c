/*
 * Gate: what becomes of a memory failure in a thread that we unblocked SIGBUS
 * in.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/arena/guard.h"
#include "idletime/gate/sigbus.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOT_OURS    70              /* exit status: left to QEMU's handler */

static const void *cpu;

static void *const failed_page = (void *)0x7000;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    if (!idletime_sigbus(info, context, cpu)) {
        _exit(NOT_OURS);
    }
}

/* As QEMU does it: blocked, and read from a descriptor.  Then our guard. */
static int like_qemu(void)
{
    struct sigaction action = {
        .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO,
    };
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    g_assert_cmpint(sigprocmask(SIG_BLOCK, &set, NULL), ==, 0);
    g_assert_cmpint(sigaction(SIGBUS, &action, NULL), ==, 0);
    idletime_guard_thread();
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* As the kernel does it to a thread. */
static void report(int code)
{
    siginfo_t info = { .si_signo = SIGBUS, .si_code = code };

    info.si_addr = failed_page;
    g_assert_cmpint(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS,
                            &info), ==, 0);
}

/* Runs @fn in a child; returns its wait status. */
static int status_of(void (*fn)(void))
{
    int status;
    pid_t pid = fork();

    if (!pid) {
        fn();
        _exit(0);
    }
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    return status;
}

/* ---- not touched yet: BUS_MCEERR_AO */

static void main_thread(void)
{
    int fd = like_qemu();
    struct signalfd_siginfo info;

    report(BUS_MCEERR_AO);
    if (read(fd, &info, sizeof(info)) != sizeof(info) ||
        info.ssi_code != BUS_MCEERR_AO ||
        info.ssi_addr != (uintptr_t)failed_page) {
        _exit(1);
    }
}

static void test_main_thread(void)
{
    g_assert_cmpint(status_of(main_thread), ==, 0);
}

static void *other_thread_run(void *opaque)
{
    siginfo_t info = { .si_signo = SIGBUS, .si_code = BUS_MCEERR_AO };

    (void)opaque;
    /* Why another thread cannot give it back. */
    if (syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &info) == 0 ||
        errno != EPERM) {
        _exit(1);
    }
    idletime_guard_thread();
    report(BUS_MCEERR_AO);
    return NULL;
}

static void other_thread(void)
{
    pthread_t thread;

    like_qemu();
    pthread_create(&thread, NULL, other_thread_run, NULL);
    pthread_join(thread, NULL);
}

/* The kernel does not report one there; QEMU's handler has the word. */
static void test_other_thread(void)
{
    int status = status_of(other_thread);

    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, NOT_OURS);
}

/* ---- touched: BUS_MCEERR_AR */

/* The access comes again; here it is one behind the end of a file. */
static void touched(void)
{
    int fd = memfd_create("empty", MFD_CLOEXEC);
    volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

    like_qemu();
    report(BUS_MCEERR_AR);
    (void)page[0];
}

static void test_touched(void)
{
    int status = status_of(touched);

    g_assert_true(WIFSIGNALED(status));
    g_assert_cmpint(WTERMSIG(status), ==, SIGBUS);
}

/* ---- processors: QEMU's own handling, which tells the guest */

static void processor_touched(void)
{
    cpu = &cpu;
    like_qemu();
    report(BUS_MCEERR_AR);
}

static void processor_told(void)
{
    cpu = &cpu;
    like_qemu();
    report(BUS_MCEERR_AO);
}

static void test_processor(void)
{
    g_assert_cmpint(WEXITSTATUS(status_of(processor_touched)), ==, NOT_OURS);
    g_assert_cmpint(WEXITSTATUS(status_of(processor_told)), ==, NOT_OURS);
}

/* ---- a program without a handler of its own */

static volatile char *behind_the_end(bool is_board)
{
    int fd = memfd_create("empty", MFD_CLOEXEC);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

    if (is_board) {
        idletime_guard_add(page, 4096);
    }
    signal(SIGBUS, SIG_DFL);            /* the address sanitizer has one */
    return page;
}

static void board_touched(void)
{
    volatile char *page = behind_the_end(true);

    idletime_guard_thread();
    _exit(page[0]);
}

static void other_touched(void)
{
    volatile char *page = behind_the_end(false);

    idletime_guard_thread();
    _exit(page[0]);
}

/* A truncated board is survived, and nothing else. */
static void test_default(void)
{
    int status = status_of(board_touched);

    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, 0);
    status = status_of(other_touched);
    g_assert_true(WIFSIGNALED(status));
    g_assert_cmpint(WTERMSIG(status), ==, SIGBUS);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sigbus/main-thread", test_main_thread);
    g_test_add_func("/sigbus/other-thread", test_other_thread);
    g_test_add_func("/sigbus/touched", test_touched);
    g_test_add_func("/sigbus/processor", test_processor);
    g_test_add_func("/sigbus/default", test_default);
    return g_test_run();
}
