/*
 * Idletime queue: requests of an export that wait, the oldest first.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * One asks the gate at a time: the oldest.  Where it may start, the next one
 * asks; where it may not, all wait until the gate says that asking is worth it.
 *
 *            +---- no, or an older one waits ----+
 *            v                                   |
 *   ask --> held --woken: in flight again--> ask --yes--> start
 *            |
 *            +--nobody is there for its data: dropped
 *
 * A request is in the thread of the export, and the queue goes with it from
 * one to another; for a moment both may look at it, so it has a lock.
 */
#ifndef IDLETIME_QUEUE_H
#define IDLETIME_QUEUE_H

#include "idletime/work/client.h"
#include "qemu/coroutine.h"
#include "qemu/queue.h"

typedef struct IdletimeWork IdletimeWork;

/* On the stack of a request's coroutine. */
typedef struct IdletimeWaiter {
    IdletimeClient *client;
    int64_t since_ns;           /* when the request came */
    uint64_t number;            /* its place in the queue; 0: not known yet */
    bool awake;                 /* its turn to ask */
    bool dropped;
    Coroutine *co;
    QTAILQ_ENTRY(IdletimeWaiter) next;
} IdletimeWaiter;

typedef struct IdletimeQueue {
    QemuMutex lock;             /* taken before that of a client */
    QTAILQ_HEAD(, IdletimeWaiter) waiters;
    unsigned length;
    uint64_t last_number;
    bool awake;                 /* one has been woken, and has not asked yet */
    bool refused;               /* the gate will say when to ask again */
} IdletimeQueue;

void idletime_queue_init(IdletimeQueue *queue);
void idletime_queue_destroy(IdletimeQueue *queue);

/**
 * idletime_queue_turn: is it for @waiter to ask?  No, where an older one waits,
 * another is about to ask, or the export is drained.
 * Context: the coroutine of @waiter.
 */
bool idletime_queue_turn(IdletimeQueue *queue, IdletimeWaiter *waiter);
/** idletime_queue_refused: who asked has to wait.  Any thread. */
void idletime_queue_refused(IdletimeQueue *queue);
/**
 * idletime_queue_hold: @waiter waits; its coroutine has to yield.  Returns
 * false where it is to be dropped.  Context: its coroutine.
 */
bool idletime_queue_hold(IdletimeWork *work, IdletimeWaiter *waiter);
/**
 * idletime_queue_wake: who has nothing to wait for any more, and the oldest
 * unless it was refused.  Context: the thread of @work.
 */
void idletime_queue_wake(IdletimeWork *work);
/**
 * idletime_queue_ask_again: the same, refused or not.
 * Context: the thread of the gate of @work.
 */
void idletime_queue_ask_again(IdletimeWork *work);
/** idletime_queue_is_empty: nobody waits or is about to ask.  Any thread. */
bool idletime_queue_is_empty(const IdletimeWork *work);

#endif
