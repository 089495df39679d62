/*
 * Idletime mark: the code point of what a connection sends.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * An observer takes what the host itself sends for foreground.  What is
 * background, and waits for the foreground, says so in its packets: DSCP 1,
 * lower effort (RFC 8622).  A mark of the socket needs privileges that QEMU
 * does not have; a code point does not.
 */
#ifndef IDLETIME_MARK_H
#define IDLETIME_MARK_H

#include "io/channel.h"
#include "qemu/atomic.h"

/** idletime_mark_socket: what @fd sends is background, or nobody said so. */
void idletime_mark_socket(int fd, bool background);
/** idletime_mark_channel: the socket below @ioc, TLS or not; -1: none. */
int idletime_mark_channel(QIOChannel *ioc);

/* Of the connection of a block node. */
typedef struct IdletimeMark {
    bool wanted;                /* qatomic */
    bool is;                    /* who sends */
} IdletimeMark;

/** idletime_mark_want: from its next request on.  Any thread. */
static inline void idletime_mark_want(IdletimeMark *mark, bool background)
{
    qatomic_set(&mark->wanted, background);
}

/** idletime_mark_begin: there is a new connection.  Context: who sends. */
static inline void idletime_mark_begin(IdletimeMark *mark)
{
    mark->is = false;
}

void idletime_mark_follow_slow(IdletimeMark *mark, QIOChannel *ioc);

/** idletime_mark_follow: before a request is sent.  Context: who sends. */
static inline void idletime_mark_follow(IdletimeMark *mark, QIOChannel *ioc)
{
    if (unlikely(qatomic_read(&mark->wanted) != mark->is)) {
        idletime_mark_follow_slow(mark, ioc);
    }
}

#endif
