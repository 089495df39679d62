/*
 * The temporary folder of a test program: all its files are below one folder,
 * which a process of its own removes when the program is gone, however it
 * ended.  The unit tests use this, too.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include <fcntl.h>
#include <sys/stat.h>

static char folder[PATH_MAX];
static pid_t owner;

/*
 * The program and its children have the write end of a pipe; it ends with the
 * last of them.  A QEMU that is just being killed may still make files.
 */
static const char cleaner[] =
    "trap '' HUP INT TERM; exec >/dev/null 2>&1; read end;"
    "for try in 1 2 3 4 5; do rm -rf -- \"$0\" && exit; sleep 0.2; done";

static bool start_cleaner(void)
{
    int end[2];
    pid_t pid;

    if (pipe2(end, O_CLOEXEC) != 0) {
        return false;
    }
    pid = fork();
    if (pid == 0) {
        /* Signals for the program's group are not for the cleaner. */
        setsid();
        dup2(end[0], STDIN_FILENO);
        execlp("sh", "sh", "-c", cleaner, folder, (char *)NULL);
        _exit(127);
    }
    close(end[0]);
    return pid > 0;
}

/* Before main(): GLib asks for the temporary folder once. */
static void __attribute__((constructor)) own_tmp(void)
{
    const char *tmp = getenv("TMPDIR");

    owner = getpid();
    snprintf(folder, sizeof(folder), "%s/idletime-XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    /* Others pass: some tests have children with other users. */
    if (!mkdtemp(folder) || chmod(folder, 0755) != 0 || !start_cleaner() ||
        setenv("TMPDIR", folder, 1) != 0) {
        perror(folder);
        _exit(1);
    }
}

/* At a normal end nothing is in it, and it is gone when the program is. */
static void __attribute__((destructor)) leave_tmp(void)
{
    if (getpid() == owner) {
        rmdir(folder);
    }
}
