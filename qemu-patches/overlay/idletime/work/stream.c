/*
 * Idletime stream: the sockets of an outgoing migration.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A socket that may keep no byte that is not sent (TCP_NOTSENT_LOWAT) can be
 * written to when the last one has been: so poll() tells the end of a chunk.
 * What it has sent is in the queue below, of which TCP keeps a millisecond's
 * worth full and no more.
 */
#include "qemu/osdep.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include "idletime/work/mark.h"
#include "idletime/work/stream.h"
#include "migration/multifd.h"
#include "migration/qemu-file.h"
#include "qemu/sockets.h"
#include "qemu/timer.h"

/*
 * The kernel wakes who polls at an acknowledgement, not when it sends: look
 * again by oneself.
 */
#define LOOK_NS             (500 * 1000LL)

#define CHANNELS_MAX        257     /* 255 of multifd, the main one */

typedef struct Sockets {
    int fd[CHANNELS_MAX];
    unsigned number;
    bool others;                /* not all are sockets */
    bool busy;                  /* a thread has not written its part yet */
} Sockets;

static void add(QIOChannel *ioc, bool busy, void *opaque)
{
    Sockets *s = opaque;
    int fd = idletime_mark_channel(ioc);

    s->busy |= busy;
    if (fd < 0) {
        s->others = true;
    } else if (s->number < CHANNELS_MAX) {
        s->fd[s->number++] = fd;
    }
}

static void sockets_of(QEMUFile *f, Sockets *s)
{
    s->number = 0;
    s->others = s->busy = false;
    add(qemu_file_get_ioc(f), false, s);
    multifd_send_foreach(add, s);
}

/*
 * Where one of the options is unknown (a UNIX socket has none) the stream is
 * held all the same; its chunks end when they are written.
 */
static void set(int fd, bool background, int unsent)
{
    idletime_mark_socket(fd, background);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

bool idletime_stream_mark(QEMUFile *f)
{
    Sockets s;

    sockets_of(f, &s);
    if (s.others) {
        return false;
    }
    for (unsigned i = 0; i < s.number; i++) {
        set(s.fd[i], true, 1);
    }
    return true;
}

void idletime_stream_unmark(QEMUFile *f)
{
    Sockets s;

    sockets_of(f, &s);
    for (unsigned i = 0; i < s.number; i++) {
        set(s.fd[i], false, 0);     /* 0: the system's own */
    }
}

/* Broken ones count, too: what they had is not sent any more. */
static bool all_sent(const Sockets *s, int64_t wait_ns)
{
    struct pollfd fds[CHANNELS_MAX];
    struct timespec timeout = { .tv_nsec = wait_ns };
    unsigned waiting = 0, first = 0;

    for (unsigned i = 0; i < s->number; i++) {
        fds[i] = (struct pollfd) { .fd = s->fd[i], .events = POLLOUT };
    }
    poll(fds, s->number, 0);
    for (unsigned i = 0; i < s->number; i++) {
        if (!fds[i].revents) {
            first = waiting++ ? first : i;
        }
    }
    if (waiting && wait_ns) {
        ppoll(&fds[first], 1, &timeout, NULL);
    }
    return !waiting;
}

bool idletime_stream_drain(QEMUFile *f, int64_t until_ns)
{
    Sockets s;

    sockets_of(f, &s);
    for (;;) {
        int64_t now_ns = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
        int64_t wait_ns = MIN(LOOK_NS, MAX(until_ns - now_ns, 0));

        if (!s.busy && all_sent(&s, wait_ns)) {
            return true;
        }
        if (!wait_ns) {
            return false;
        }
        if (s.busy) {
            g_usleep(LOOK_NS / SCALE_US / 5);
            sockets_of(f, &s);
        }
    }
}
