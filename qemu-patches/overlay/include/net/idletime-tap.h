/*
 * Idletime tap: has what we wrote to a tap left the host's queues?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context of all: BQL.
 */
#ifndef NET_IDLETIME_TAP_H
#define NET_IDLETIME_TAP_H

#include "net/net.h"

/*
 * A tap.  The kernel has one send buffer for all of its queues that are
 * attached, so the bound in force is known here and nowhere else.
 */
typedef struct IdletimeTap {
    int fd;                     /* of its first queue; -1: no tap */
    int stock_sndbuf;           /* as the operator set it, in bytes */
    unsigned raised;            /* as often it was doubled; see _stalled */
    unsigned packets;           /* that it is bound to; 0: to none */
    int sndbuf;                 /* in force, in bytes; -1: not known */
} IdletimeTap;

/* One queue of it. */
typedef struct IdletimeTapQueue {
    IdletimeTap *tap;
    int fd;                     /* of our own on the queue; -1: no tap */
    bool watched;
    void (*drained)(void *opaque);
    void *opaque;
} IdletimeTapQueue;

/**
 * idletime_tap_open: before its queues.
 * @peer: of the NIC's first queue, or NULL
 * Where the peer is no tap, or its kernel knows no send buffer, all below
 * does nothing and what was written counts as gone.
 */
void idletime_tap_open(IdletimeTap *tap, NetClientState *peer);
/**
 * idletime_tap_close: after its queues; the send buffer is the operator's
 * again.  Idempotent.
 */
void idletime_tap_close(IdletimeTap *tap);

/**
 * idletime_tap_queue_open: @peer of the NIC's queue, or NULL.
 * @drained: called once after each idletime_tap_watch()
 */
void idletime_tap_queue_open(IdletimeTapQueue *queue, IdletimeTap *tap,
                             NetClientState *peer,
                             void (*drained)(void *opaque), void *opaque);
void idletime_tap_queue_close(IdletimeTapQueue *queue);

static inline bool idletime_tap_is_open(const IdletimeTapQueue *queue)
{
    return queue->fd >= 0;
}

/** idletime_tap_is_bound: or may be so. */
static inline bool idletime_tap_is_bound(const IdletimeTap *tap)
{
    return tap->sndbuf != tap->stock_sndbuf;
}

/**
 * idletime_tap_bind: let at most @packets full-sized packets wait in host
 * queues; idletime_tap_free() returns it to the operator's bound.
 * At most one system call each, none where nothing changes.
 */
void idletime_tap_bind(IdletimeTap *tap, unsigned packets);
void idletime_tap_free(IdletimeTap *tap);

/**
 * idletime_tap_forget: queues of the tap may be attached or detached.  Those
 * that were not attached have missed the last changes: the next one is made
 * in any case.
 */
void idletime_tap_forget(IdletimeTap *tap);

/**
 * idletime_tap_drained: is there room for one more packet of the bound?
 * For a bound of one packet: has all left?  One system call.
 */
bool idletime_tap_drained(IdletimeTapQueue *queue);

/** idletime_tap_watch: call drained() once when that is so. */
void idletime_tap_watch(IdletimeTapQueue *queue);
void idletime_tap_unwatch(IdletimeTapQueue *queue);

/**
 * idletime_tap_stalled: it has not drained for long.  Perhaps this kernel
 * needs a larger send buffer than we found: twice as much.  When it drains,
 * the bound is what it was, unless it does not drain with that.
 */
void idletime_tap_stalled(IdletimeTap *tap);

#endif
