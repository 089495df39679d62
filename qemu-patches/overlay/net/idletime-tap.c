/*
 * Idletime tap: has what we wrote to a tap left the host's queues?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A packet written to a tap is charged to the tap's socket until its last
 * queue lets go of it: bridge, qdisc, driver.  The charge is the packet's
 * true size, that is with the kernel's overhead.  The tap takes a packet
 * while the charge is below the send buffer, whatever the packet's size, and
 * polls writable while the charge plus one is below half the send buffer; who
 * sleeps on that is woken while the last packet still has a charge of one
 * (Linux: sock_alloc_send_pskb(), sock_writeable(), sock_wfree()).  So with
 * the smallest send buffer that works, 6 bytes, one packet of any size is
 * taken at a time, and "writable" means that it has left.  One of 1 to 3
 * never polls writable, 4 and 5 do but wake nobody.  A kernel that needs more
 * would be found when it stalls, not before: trying it on a tap whose packets
 * are on their way would take their charge for the kernel's need.
 *
 * We poll descriptors of our own, so that the tap's own handlers stay as they
 * are.
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "net/tap.h"
#include "net/idletime-tap.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <linux/if_tun.h>

#define LEAST_SNDBUF        6
#define LARGEST_TRY         (1 << 20)
/*
 * True size of a packet of 1,514 bytes: its buffer is one of 2,048 bytes,
 * the kernel's descriptor takes 256.
 */
#define TRUE_SIZE           2304

/* ---- the tap */

static bool set_sndbuf(IdletimeTap *tap, int bytes)
{
    if (tap->sndbuf != bytes) {
        if (ioctl(tap->fd, TUNSETSNDBUF, &bytes) != 0) {
            return false;
        }
        tap->sndbuf = bytes;
    }
    return true;
}

static bool is_writable(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLOUT };

    return RETRY_ON_EINTR(poll(&poll_fd, 1, 0)) == 1 &&
           (poll_fd.revents & POLLOUT);
}

void idletime_tap_open(IdletimeTap *tap, NetClientState *peer)
{
    assert(bql_locked());
    *tap = (IdletimeTap) { .fd = -1 };
    if (!peer || peer->info->type != NET_CLIENT_DRIVER_TAP) {
        return;
    }
    tap->fd = fcntl(tap_get_fd(peer), F_DUPFD_CLOEXEC, 0);
    if (tap->fd < 0) {
        return;
    }
    if (ioctl(tap->fd, TUNGETSNDBUF, &tap->stock_sndbuf) != 0) {
        close(tap->fd);
        tap->fd = -1;
        return;
    }
    tap->sndbuf = tap->stock_sndbuf;
}

void idletime_tap_close(IdletimeTap *tap)
{
    assert(bql_locked());
    if (tap->fd >= 0) {
        idletime_tap_forget(tap);
        idletime_tap_free(tap);
        close(tap->fd);
        tap->fd = -1;
        tap->sndbuf = tap->stock_sndbuf;
    }
}

/* ---- the bound */

/* Half of it is where the tap polls writable: all but one have left. */
static int bytes_of(const IdletimeTap *tap)
{
    int64_t least = MIN((int64_t)LEAST_SNDBUF << tap->raised, LARGEST_TRY);

    return MIN(least + 2LL * (tap->packets - 1) * TRUE_SIZE, INT_MAX);
}

void idletime_tap_bind(IdletimeTap *tap, unsigned packets)
{
    assert(bql_locked());
    if (tap->fd >= 0) {
        tap->packets = packets;
        set_sndbuf(tap, bytes_of(tap));
    }
}

void idletime_tap_free(IdletimeTap *tap)
{
    assert(bql_locked());
    if (tap->fd >= 0) {
        tap->packets = 0;
        set_sndbuf(tap, tap->stock_sndbuf);
    }
}

void idletime_tap_forget(IdletimeTap *tap)
{
    assert(bql_locked());
    if (tap->fd >= 0) {
        tap->sndbuf = -1;
    }
}

void idletime_tap_stalled(IdletimeTap *tap)
{
    assert(bql_locked());
    if (tap->packets && bytes_of(tap) < LARGEST_TRY) {
        tap->raised++;
        set_sndbuf(tap, bytes_of(tap));
    }
}

/* It drains with the raised bound.  Does it with a smaller one? */
static void lower(IdletimeTapQueue *queue)
{
    IdletimeTap *tap = queue->tap;

    while (tap->raised) {
        tap->raised--;
        set_sndbuf(tap, bytes_of(tap));
        if (!is_writable(queue->fd)) {
            tap->raised++;
            set_sndbuf(tap, bytes_of(tap));
            return;
        }
    }
}

/* ---- its queues */

void idletime_tap_queue_open(IdletimeTapQueue *queue, IdletimeTap *tap,
                             NetClientState *peer,
                             void (*drained)(void *opaque), void *opaque)
{
    *queue = (IdletimeTapQueue) {
        .tap = tap, .fd = -1, .drained = drained, .opaque = opaque,
    };
    if (tap->fd >= 0 && peer && peer->info->type == NET_CLIENT_DRIVER_TAP) {
        queue->fd = fcntl(tap_get_fd(peer), F_DUPFD_CLOEXEC, 0);
    }
}

void idletime_tap_queue_close(IdletimeTapQueue *queue)
{
    if (idletime_tap_is_open(queue)) {
        idletime_tap_unwatch(queue);
        close(queue->fd);
        queue->fd = -1;
    }
}

bool idletime_tap_drained(IdletimeTapQueue *queue)
{
    bool drained = is_writable(queue->fd);

    if (drained && unlikely(queue->tap->raised) && queue->tap->packets) {
        lower(queue);
    }
    return drained;
}

static void tap_writable(void *opaque)
{
    IdletimeTapQueue *queue = opaque;

    assert(bql_locked());
    idletime_tap_unwatch(queue);
    queue->drained(queue->opaque);
}

void idletime_tap_watch(IdletimeTapQueue *queue)
{
    if (idletime_tap_is_open(queue) && !queue->watched) {
        qemu_set_fd_handler(queue->fd, NULL, tap_writable, queue);
        queue->watched = true;
    }
}

void idletime_tap_unwatch(IdletimeTapQueue *queue)
{
    if (queue->watched) {
        qemu_set_fd_handler(queue->fd, NULL, NULL, NULL);
        queue->watched = false;
    }
}
