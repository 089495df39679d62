/*
 * Idletime queue: requests of an export that wait, the oldest first.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "block/aio-wait.h"
#include "idletime/work/work.h"
#include "qemu/lockable.h"

void idletime_queue_init(IdletimeQueue *queue)
{
    qemu_mutex_init(&queue->lock);
    QTAILQ_INIT(&queue->waiters);
}

void idletime_queue_destroy(IdletimeQueue *queue)
{
    assert(QTAILQ_EMPTY(&queue->waiters));
    qemu_mutex_destroy(&queue->lock);
}

/* ---- in flight, or not */

static bool is_drained(const IdletimeClient *client)
{
    QEMU_LOCK_GUARD(client->lock);
    return *client->quiescing;
}

/* False: the client is gone. */
static bool client_hold(IdletimeWaiter *waiter)
{
    IdletimeClient *client = waiter->client;

    QEMU_LOCK_GUARD(client->lock);
    if (*client->closing) {
        return false;
    }
    client->held++;
    if (*client->quiescing) {
        /* A drain that waits for what is in flight looks again. */
        aio_wait_kick();
    }
    return true;
}

/* False: not now.  @turn: and if the client is gone, in any case */
static bool client_let_go(IdletimeWaiter *waiter, bool turn)
{
    IdletimeClient *client = waiter->client;

    QEMU_LOCK_GUARD(client->lock);
    waiter->dropped = *client->closing;
    if (*client->quiescing || !(turn || waiter->dropped)) {
        return false;
    }
    client->held--;
    return true;
}

/* ---- waiting */

/* Pieces of a request that has begun are before those that came later. */
static void insert(IdletimeQueue *queue, IdletimeWaiter *waiter)
{
    IdletimeWaiter *other;

    queue->length++;
    QTAILQ_FOREACH(other, &queue->waiters, next) {
        if (other->number > waiter->number) {
            QTAILQ_INSERT_BEFORE(other, waiter, next);
            return;
        }
    }
    QTAILQ_INSERT_TAIL(&queue->waiters, waiter, next);
}

bool idletime_queue_hold(IdletimeWork *work, IdletimeWaiter *waiter)
{
    IdletimeQueue *queue = &work->queue;

    IO_CODE();
    QEMU_LOCK_GUARD(&queue->lock);
    if (!client_hold(waiter)) {
        waiter->dropped = true;
        return false;
    }
    waiter->co = qemu_coroutine_self();
    insert(queue, waiter);
    idletime_work_held(work, queue->length);
    return true;
}

bool idletime_queue_turn(IdletimeQueue *queue, IdletimeWaiter *waiter)
{
    const IdletimeWaiter *first;

    IO_CODE();
    QEMU_LOCK_GUARD(&queue->lock);
    first = QTAILQ_FIRST(&queue->waiters);
    if (!waiter->number) {
        waiter->number = ++queue->last_number;
    }
    if (waiter->awake) {
        waiter->awake = queue->awake = false;
    }
    return !queue->awake && !is_drained(waiter->client) &&
           (!first || first->number > waiter->number);
}

void idletime_queue_refused(IdletimeQueue *queue)
{
    IO_CODE();
    QEMU_LOCK_GUARD(&queue->lock);
    queue->refused = true;
}

/* ---- going on */

/*
 * The next one to wake, off the list and in flight; or NULL.  Not the caller
 * itself, which has not yielded yet: what ends its wait kicks the gate.
 */
static IdletimeWaiter *take(IdletimeWork *work)
{
    IdletimeQueue *queue = &work->queue;
    IdletimeWaiter *waiter;

    QEMU_LOCK_GUARD(&queue->lock);
    QTAILQ_FOREACH(waiter, &queue->waiters, next) {
        bool turn = waiter == QTAILQ_FIRST(&queue->waiters) &&
                    !queue->awake && !queue->refused;

        if (waiter->co != qemu_coroutine_self() &&
            client_let_go(waiter, turn)) {
            QTAILQ_REMOVE(&queue->waiters, waiter, next);
            idletime_work_held(work, --queue->length);
            waiter->awake = !waiter->dropped;
            queue->awake |= waiter->awake;
            return waiter;
        }
    }
    return NULL;
}

void idletime_queue_wake(IdletimeWork *work)
{
    IdletimeWaiter *waiter;

    IO_CODE();
    if (!idletime_work_is_here(work)) {
        return;
    }
    while ((waiter = take(work))) {
        aio_co_enter(qemu_get_current_aio_context(), waiter->co);
    }
}

void idletime_queue_ask_again(IdletimeWork *work)
{
    IdletimeQueue *queue = &work->queue;
    bool nobody = false;

    IO_CODE();
    WITH_QEMU_LOCK_GUARD(&queue->lock) {
        queue->refused = false;
    }
    idletime_queue_wake(work);
    WITH_QEMU_LOCK_GUARD(&queue->lock) {
        nobody = !queue->awake && !queue->refused;
    }
    if (nobody) {
        /* In a drained section none can start: others go first. */
        idletime_gate_rest(work->gate);
    }
}

bool idletime_queue_is_empty(const IdletimeWork *work)
{
    IdletimeQueue *queue = (IdletimeQueue *)&work->queue;

    IO_CODE();
    QEMU_LOCK_GUARD(&queue->lock);
    return QTAILQ_EMPTY(&queue->waiters) && !queue->awake;
}
