/*
 * Idletime tests: an observer that sees what the test says.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Listens as idletime-observer does, but its page is a file in memory.  The
 * unit tests use it, too, so it needs nothing of QEMU.
 */
#ifndef IDLETIME_TEST_OBSERVER_H
#define IDLETIME_TEST_OBSERVER_H

#include "idletime/arena/observed.h"

typedef struct TestObserver {
    IdletimeObserved *page;
    int file;                   /* of the page; sent as read-only */
    int listener;
    int client;                 /* the last that was greeted; -1: none */
    char path[100];             /* of the socket */
} TestObserver;

/** observer_start: listens in @dir, in place of who listened there before. */
void observer_start(TestObserver *o, const char *dir);
/** observer_greet: who connects next gets the page. */
void observer_greet(TestObserver *o);
/** observer_accept: who connects next gets nothing yet. */
void observer_accept(TestObserver *o);
/** observer_send: to the client; @fd -1: no descriptor. */
void observer_send(TestObserver *o, const void *bytes, size_t size, int fd);
/** observer_flood: rubbish, as much as is taken.  Returns how much. */
size_t observer_flood(TestObserver *o);
/** observer_die: as if killed: the socket's file stays. */
void observer_die(TestObserver *o);
/** observer_end: as at SIGTERM. */
void observer_end(TestObserver *o);

/** observer_begin, observer_finish: a request, as the kernel would write it */
void observer_begin(TestObserver *o, int64_t now_ns, uint64_t bytes);
void observer_finish(TestObserver *o, int64_t now_ns);

#endif
