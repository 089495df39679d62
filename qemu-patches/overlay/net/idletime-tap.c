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
 * never polls writable, 4 and 5 do but wake nobody; that others may need more
 * is found by trying.
 *
 * We poll a descriptor of our own, so that the tap's own handlers stay as
 * they are.
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

bool idletime_tap_drained(const IdletimeTap *tap)
{
    struct pollfd poll_fd = { .fd = tap->fd, .events = POLLOUT };

    return RETRY_ON_EINTR(poll(&poll_fd, 1, 0)) == 1 &&
           (poll_fd.revents & POLLOUT);
}

/* A tap that is down never polls writable: then the usual one is taken. */
static void find_least(IdletimeTap *tap)
{
    if (!idletime_tap_drained(tap)) {
        return;
    }
    for (int bytes = LEAST_SNDBUF; bytes <= LARGEST_TRY; bytes *= 2) {
        if (set_sndbuf(tap, bytes) && idletime_tap_drained(tap)) {
            tap->least_sndbuf = bytes;
            break;
        }
    }
    set_sndbuf(tap, tap->stock_sndbuf);
}

void idletime_tap_open(IdletimeTap *tap, NetClientState *peer,
                       void (*drained)(void *opaque), void *opaque)
{
    *tap = (IdletimeTap) {
        .fd = -1, .least_sndbuf = LEAST_SNDBUF,
        .drained = drained, .opaque = opaque,
    };
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
    find_least(tap);
}

void idletime_tap_close(IdletimeTap *tap)
{
    if (idletime_tap_is_open(tap)) {
        idletime_tap_unwatch(tap);
        idletime_tap_free(tap);
        close(tap->fd);
        tap->fd = -1;
    }
}

void idletime_tap_bind(IdletimeTap *tap, unsigned packets)
{
    /* Half of it is where the tap polls writable: all but one have left. */
    int64_t bytes = tap->least_sndbuf + 2LL * (packets - 1) * TRUE_SIZE;

    if (idletime_tap_is_open(tap)) {
        set_sndbuf(tap, MIN(bytes, INT_MAX));
    }
}

void idletime_tap_free(IdletimeTap *tap)
{
    if (idletime_tap_is_open(tap)) {
        set_sndbuf(tap, tap->stock_sndbuf);
    }
}

static void tap_writable(void *opaque)
{
    IdletimeTap *tap = opaque;

    idletime_tap_unwatch(tap);
    tap->drained(tap->opaque);
}

void idletime_tap_watch(IdletimeTap *tap)
{
    if (idletime_tap_is_open(tap) && !tap->watched) {
        qemu_set_fd_handler(tap->fd, NULL, tap_writable, tap);
        tap->watched = true;
    }
}

void idletime_tap_unwatch(IdletimeTap *tap)
{
    if (tap->watched) {
        qemu_set_fd_handler(tap->fd, NULL, NULL, NULL);
        tap->watched = false;
    }
}

void idletime_tap_stalled(IdletimeTap *tap)
{
    if (idletime_tap_is_open(tap) && tap->sndbuf < LARGEST_TRY &&
        set_sndbuf(tap, tap->sndbuf * 2)) {
        tap->least_sndbuf = MIN(tap->least_sndbuf * 2, LARGEST_TRY);
    }
}
