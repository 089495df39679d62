/*
 * Idletime arena: the observer in the kernel, as one more foreground source.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   absent --socket--> greeting --descriptor--> seen
 *      ^                                          |
 *      +-------------- connection ends -----------+
 *
 * Its page (observed.h) is mapped read-only at one address for as long as
 * this is open, and is all zeros while there is no observer; its connection
 * keeps one number.  So a look needs no lock while observers come and go.
 *
 * What arrives is not trusted: the peer is root, the page is
 * a kernel object that nobody can truncate, magic and version are right.
 */
#ifndef IDLETIME_OBSERVER_H
#define IDLETIME_OBSERVER_H

#include "idletime/arena/directory.h"
#include "idletime/arena/observed.h"

/* Zero-initialise; idletime_observer_open() fills it. */
typedef struct IdletimeObserver {
    const IdletimeObserved *page;   /* its content comes and goes */
    int guard;                  /* index in the SIGBUS guard */
    int link;                   /* the connection, or a dead one (atomic) */
    bool declared;              /* the arena is to be observed (atomic) */
    uint64_t before;            /* requests until it came (atomic) */

    /* Of the one thread that watches: */
    char *base;                 /* the arena's directory, below root */
    int root;
    bool any_file;              /* set by tests: a file of our user */
    bool linked;                /* link was alive at the last look */
    int greeting;               /* connected, the descriptor has not come */
    unsigned patience;          /* looks until that is given up */
    uint64_t came, died, refused;   /* counters */
    IdletimeError why;          /* of the last refusal */
} IdletimeObserver;

typedef enum IdletimeObserverNews {
    IDLETIME_OBSERVER_NO_NEWS,
    IDLETIME_OBSERVER_CAME,
    IDLETIME_OBSERVER_DIED,
    IDLETIME_OBSERVER_REFUSED,  /* why says it */
} IdletimeObserverNews;

typedef enum IdletimeObserverState {
    IDLETIME_OBSERVER_ABSENT,
    IDLETIME_OBSERVER_SEEN,
    IDLETIME_OBSERVER_LOST,     /* absent, but declared: who looks is blind */
} IdletimeObserverState;

/**
 * idletime_observer_open: of @arena, which is open; looks for the observer.
 * Returns false with @err set.
 */
bool idletime_observer_open(IdletimeObserver *observer,
                            const IdletimeArena *arena, IdletimeError *err);
/** idletime_observer_close: nobody may look any more.  Idempotent. */
void idletime_observer_close(IdletimeObserver *observer);

/**
 * idletime_observer_watch: has it come, has it died?  Once a second.
 * Waits for nothing; a few system calls.  Context: one thread, guarded
 * against SIGBUS.
 */
IdletimeObserverNews idletime_observer_watch(IdletimeObserver *observer);

/** idletime_observer_intact: is there a page to look at?  Any thread. */
static inline bool idletime_observer_intact(const IdletimeObserver *observer)
{
    const IdletimeObserved *page = observer->page;

    return __atomic_load_n(&page->magic, __ATOMIC_RELAXED) ==
               IDLETIME_OBSERVED_MAGIC &&
           __atomic_load_n(&page->version, __ATOMIC_RELAXED) ==
               IDLETIME_OBSERVED_VERSION;
}

/**
 * idletime_observer_alive: does the process behind the page live?
 * One system call.  Any thread.
 */
bool idletime_observer_alive(const IdletimeObserver *observer);

/** idletime_observer_state: as of now.  Any thread. */
IdletimeObserverState
idletime_observer_state(const IdletimeObserver *observer);

/* Requests since it came, so that a sum of these does not jump. */
static inline uint64_t
idletime_observer_started(const IdletimeObserver *observer)
{
    uint64_t before = __atomic_load_n(&observer->before, __ATOMIC_RELAXED);
    uint64_t n = __atomic_load_n(&observer->page->started, __ATOMIC_RELAXED);

    return n > before ? n - before : 0;
}

/* Requests in service: for nanoseconds their number may be negative. */
static inline uint32_t
idletime_observed_in_service(const IdletimeObserved *page)
{
    int32_t n = __atomic_load_n(&page->in_service, __ATOMIC_ACQUIRE);

    return MAX(n, 0);
}

#endif
