/*
 * Idletime client: of an export, as far as its requests can wait.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A request that waits is not in flight: a drain does not wait for it, and in
 * a drained section it does not begin.  The server counts its requests, waiting
 * or not; those that are in flight are the ones that are not held.
 *
 * When the connection is cut, what waits is dropped: nobody was told that it is
 * done, and it must not overwrite what the next client writes.  A client that
 * says goodbye (NBD_CMD_DISC) has its writes carried out first, as NBD asks,
 * and its place among the connections until then; no more is read of it.
 */
#ifndef IDLETIME_CLIENT_H
#define IDLETIME_CLIENT_H

#include "qemu/lockable.h"

typedef struct IdletimeClient {
    QemuMutex *lock;            /* the server's, of all below */
    const bool *quiescing;      /* the export is drained */
    const bool *closing;        /* the connection is cut */
    int held;                   /* requests that wait */
    bool leaving;               /* it has said goodbye */
} IdletimeClient;

/** idletime_client_init: part of making the server's client. */
static inline void idletime_client_init(IdletimeClient *client, QemuMutex *lock,
                                        const bool *quiescing,
                                        const bool *closing)
{
    *client = (IdletimeClient) {
        .lock = lock, .quiescing = quiescing, .closing = closing,
    };
}

/** idletime_client_is_gone: nobody waits for its requests.  Any thread. */
static inline bool idletime_client_is_gone(const IdletimeClient *client)
{
    QEMU_LOCK_GUARD(client->lock);
    return *client->closing;
}

/**
 * idletime_client_is_done: of a client that said goodbye, @requests are left.
 * Called with its lock.
 */
static inline bool idletime_client_is_done(const IdletimeClient *client,
                                           int requests)
{
    return client->leaving && requests == 0;
}

#endif
