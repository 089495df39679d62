/*
 * Idletime stream: the sockets of an outgoing migration.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Context of all: the migration thread.
 */
#ifndef IDLETIME_STREAM_H
#define IDLETIME_STREAM_H

typedef struct QEMUFile QEMUFile;

/**
 * idletime_stream_mark: as background; and have each tell when nothing waits
 * in it that has not been sent.  Returns false where @f is none, or not one of
 * sockets alone: a file, a pipe, RDMA.
 */
bool idletime_stream_mark(QEMUFile *f);
/** idletime_stream_unmark: as sockets are of which nobody has said anything. */
void idletime_stream_unmark(QEMUFile *f);
/**
 * idletime_stream_drain: until all that was written has left the sockets, or
 * @until_ns of the realtime clock.  Returns whether it has, or never will.
 */
bool idletime_stream_drain(QEMUFile *f, int64_t until_ns);

#endif
