/*
 * Idletime client: of an export, as far as its requests can wait.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A request that waits is not in flight: a drain does not wait for it, and in
 * a drained section it does not begin.  The server counts its requests, waiting
 * or not; those that are in flight are the ones that are not held.
 */
#ifndef IDLETIME_CLIENT_H
#define IDLETIME_CLIENT_H

#include "qemu/thread.h"

typedef struct IdletimeClient {
    QemuMutex *lock;            /* the server's, of all below */
    const bool *quiescing;      /* the export is drained */
    const bool *closing;        /* the connection is cut */
    int held;                   /* requests that wait */
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

#endif
