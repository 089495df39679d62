/*
 * Foreground: begin and end of a request, alone and with a reader of the same
 * line in another process; and proof that no system call is on that path.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "micro.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A second a measurement: many looks of the reader every 20 ms. */
#define BATCHES 10000
#define BATCH 50000

static double pairs_ns(IdletimeFgWriter *w, int pairs)
{
    int64_t begin_ns = micro_clock_ns();

    for (int i = 0; i < pairs; i++) {
        idletime_fg_begin(w, begin_ns + i, 4096);
        idletime_fg_end(w, begin_ns + i);
        /* Nothing is carried over from one request to the next. */
        __asm__ volatile("" ::: "memory");
    }
    return (double)(micro_clock_ns() - begin_ns) / pairs;
}

static const IdletimeRule rule = { 20 * MS, 5 * SEC, 1 };

/* Looks at the line every @pause_ns until it is killed. */
static pid_t start_reader(Bench *bench, int64_t pause_ns)
{
    int ready[2];
    char byte = 0;
    pid_t pid;

    micro_must(pipe(ready) == 0, "pipe");
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            struct timespec pause = { 0, pause_ns };

            idletime_scan(&bench->scan, &rule, micro_clock_ns());
            if (!byte) {
                byte = 1;
                micro_must(write(ready[1], &byte, 1) == 1, "write");
            }
            if (pause_ns) {
                nanosleep(&pause, NULL);
            }
        }
    }
    micro_must(pid > 0 && read(ready[0], &byte, 1) == 1, "reader");
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void measure(Bench *bench, IdletimeFgWriter *w, const char *reader,
                    int64_t pause_ns)
{
    static double value[BATCHES];
    double sum = 0;
    pid_t pid = pause_ns < 0 ? 0 : start_reader(bench, pause_ns);

    pairs_ns(w, BATCH);
    for (int i = 0; i < BATCHES; i++) {
        value[i] = pairs_ns(w, BATCH);
    }
    if (pid) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    for (int i = 0; i < BATCHES; i++) {
        sum += value[i];
    }
    printf("{\"what\": \"foreground begin+end\", \"reader\": \"%s\", "
           "\"batches\": %d, \"pairs_a_batch\": %d, \"median_ns\": %.2f, ",
           reader, BATCHES, BATCH, micro_median(value, BATCHES));
    printf("\"mean_ns\": %.2f, \"p99_ns\": %.2f}\n", sum / BATCHES,
           value[BATCHES * 99 / 100]);
    fflush(stdout);
}

/* Anything but exit kills the process. */
static void forbid_syscalls(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

    micro_must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
               "seccomp");
}

/* @cheat: one system call on purpose, to see that it would be noticed */
static int under_seccomp(IdletimeFgWriter *w, bool cheat)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        forbid_syscalls();
        for (int i = 0; i < 1000000; i++) {
            idletime_fg_begin(w, i, 512);
            idletime_fg_end(w, i);
        }
        if (cheat) {
            syscall(SYS_getppid);
        }
        syscall(SYS_exit, 0);
    }
    micro_must(pid > 0 && waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}

static void prove_no_syscall(IdletimeFgWriter *w)
{
    int honest = under_seccomp(w, false), cheat = under_seccomp(w, true);
    bool proven = WIFEXITED(honest) && WEXITSTATUS(honest) == 0 &&
                  WIFSIGNALED(cheat) && WTERMSIG(cheat) == SIGSYS;

    printf("{\"what\": \"foreground system calls\", \"pairs\": 1000000, "
           "\"method\": \"seccomp\", \"none\": %s}\n",
           proven ? "true" : "false");
    fflush(stdout);
}

void micro_foreground(Bench *bench)
{
    IdletimeSlot slot = micro_claim(&bench->fg);
    IdletimeFgWriter writer;

    idletime_fg_attach(&writer, &bench->fg, &slot);
    prove_no_syscall(&writer);
    measure(bench, &writer, "none", -1);
    measure(bench, &writer, "every 20 ms", 20 * MS);
    measure(bench, &writer, "continuous", 0);
    idletime_slot_release(&bench->fg, &slot);
}
