/*
 * Idletime tap: has what we wrote to a tap left the host's queues?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef NET_IDLETIME_TAP_H
#define NET_IDLETIME_TAP_H

#include "net/net.h"

/* One queue of a tap.  Zero-initialise; then idletime_tap_open(). */
typedef struct IdletimeTap {
    int fd;                     /* of our own on the tap's file; -1: no tap */
    int stock_sndbuf;           /* as the operator set it, in bytes */
    int least_sndbuf;           /* the smallest that lets packets through */
    int sndbuf;                 /* in force */
    bool watched;
    void (*drained)(void *opaque);
    void *opaque;
} IdletimeTap;

/**
 * idletime_tap_open: @peer is the NIC's peer, or NULL.
 * @drained: called once after each idletime_tap_watch()
 * Where the peer is no tap, or its kernel knows no send buffer, all below
 * does nothing and what was written counts as gone.  Context: BQL.
 */
void idletime_tap_open(IdletimeTap *tap, NetClientState *peer,
                       void (*drained)(void *opaque), void *opaque);
/** idletime_tap_close: the send buffer is the operator's again. */
void idletime_tap_close(IdletimeTap *tap);

static inline bool idletime_tap_is_open(const IdletimeTap *tap)
{
    return tap->fd >= 0;
}

/**
 * idletime_tap_bind: let at most @packets full-sized packets wait in host
 * queues; idletime_tap_free() returns it to the operator's bound.
 * At most one system call each, none where nothing changes.
 */
void idletime_tap_bind(IdletimeTap *tap, unsigned packets);
void idletime_tap_free(IdletimeTap *tap);

/**
 * idletime_tap_drained: is there room for one more packet of the bound?
 * For a bound of one packet: has all left?  One system call.
 */
bool idletime_tap_drained(const IdletimeTap *tap);

/** idletime_tap_watch: call drained() once when that is so. */
void idletime_tap_watch(IdletimeTap *tap);
void idletime_tap_unwatch(IdletimeTap *tap);

/**
 * idletime_tap_stalled: it has not drained for long.  Perhaps this kernel
 * needs a larger send buffer than we found: take twice as much.
 */
void idletime_tap_stalled(IdletimeTap *tap);

#endif
