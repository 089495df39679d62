/*
 * Idletime arena: what an observer in the kernel shows of the foreground.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * One page, the only element of a BPF array.  The kernel's part of the
 * observer (observer/) writes it at each event of the foreground, and
 * background participants map it read-only.  How they get it: the observer
 * listens on the Unix stream socket IDLETIME_OBSERVED_SOCKET in the arena's
 * directory, and sends one byte with one descriptor to who connects.  The
 * observer lives as long as this connection does, whatever the page shows.
 *
 * Unlike a foreground slot (arena.h) it has many writers: all processors, in
 * interrupts too.  Fields are updated by atomic adds, each by itself, so that
 * a reader may see one event in some of them and not yet in others.
 *
 * Compiled into QEMU, the unit tests, the observer and its BPF program: the
 * includer brings uint64_t and its like; nothing else is needed.
 */
#ifndef IDLETIME_OBSERVED_H
#define IDLETIME_OBSERVED_H

#define IDLETIME_OBSERVED_MAGIC     0x6465767265736269ULL   /* "ibserved" */
#define IDLETIME_OBSERVED_VERSION   1
#define IDLETIME_OBSERVED_BYTES     4096
/* Transitions kept, as in a foreground slot. */
#define IDLETIME_OBSERVED_RING      256
#define IDLETIME_OBSERVED_LABEL     64

/* Names in the arena's directory. */
#define IDLETIME_OBSERVED_SOCKET    "observer"
/* A file of this name: the arena is to be observed, without it one is blind. */
#define IDLETIME_OBSERVED_DECLARED  "observed"

typedef enum IdletimeObservedKind {
    IDLETIME_OBSERVED_DISK = 1,
    IDLETIME_OBSERVED_UPLINK = 2,
} IdletimeObservedKind;

typedef struct IdletimeObserved {
    /* Written once, before the observer listens. */
    uint64_t magic;
    uint32_t version;
    uint32_t kind;              /* IdletimeObservedKind */
    char label[IDLETIME_OBSERVED_LABEL];    /* the device, for people */

    /*
     * What a look reads: one cache line.  All requests were in service for
     * service_ns + in_service * now, in sum, up to now.  On an uplink
     * packets are events: in_service and service_ns stay 0.
     */
    uint32_t in_service __attribute__((aligned(64)));
    uint32_t all_in_service;    /* background too; for the observer itself */
    int64_t last_ns;            /* CLOCK_MONOTONIC of the last event */
    uint64_t started;           /* requests issued, packets sent */
    uint64_t bytes;
    uint64_t ring_head;         /* transitions ever written */
    int64_t service_ns;         /* sum of ends - sum of begins */

    /* For people and tests; only grow. */
    uint64_t requeued __attribute__((aligned(64))); /* issued, taken back */
    uint64_t unpaired;          /* ends without a begin, not counted */
    uint64_t healed;            /* begins without an end, taken back */
    uint64_t missed;            /* events that the kernel did not tell */

    uint64_t ring[IDLETIME_OBSERVED_RING]   /* time_ns << 1 | busy */
        __attribute__((aligned(64)));
} __attribute__((aligned(IDLETIME_OBSERVED_BYTES))) IdletimeObserved;

_Static_assert(sizeof(IdletimeObserved) == IDLETIME_OBSERVED_BYTES,
               "one page, whatever else changes");

#endif
