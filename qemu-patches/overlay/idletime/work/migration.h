/*
 * Idletime migration: the stream of an outgoing migration, sent when the
 * uplink is idle.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Before each chunk of bytes the migration thread asks the gate of the uplink;
 * in between it sends nothing.  The guest runs meanwhile, so waiting costs
 * nobody.  From the switchover on the guest waits, and so do the pages that
 * postcopy asks for: that is foreground, and as stock.
 *
 * Its packets have the code point of RFC 8622 (lower effort): so the observer
 * of the uplink does not take them for foreground, and neither do routers.
 *
 * Who migrates without it pays one test of a variable for a page.
 */
#ifndef IDLETIME_MIGRATION_H
#define IDLETIME_MIGRATION_H

#include "qemu/atomic.h"

typedef struct QEMUFile QEMUFile;
typedef struct IdletimeWork IdletimeWork;

/* qatomic; false: nothing of the below has anything to do. */
extern bool idletime_migration_on;

/* Slow paths; use the inline functions below. */
bool idletime_migration_exceeded_slow(void);
bool idletime_migration_interrupts_slow(void);
bool idletime_migration_wait_slow(QEMUFile *f, int ms);
uint32_t idletime_migration_pages_slow(uint32_t pages);
uint64_t idletime_migration_bandwidth_slow(void);

/**
 * idletime_migration_exceeded: nothing more may be sent for now; wait.
 * Context: the migration thread, before each page.
 */
static inline bool idletime_migration_exceeded(void)
{
    return unlikely(qatomic_read(&idletime_migration_on)) &&
           idletime_migration_exceeded_slow();
}

/**
 * idletime_migration_interrupts: the same within a huge page, which is left
 * where it is: nobody waits there with the locks that are held.
 */
static inline bool idletime_migration_interrupts(void)
{
    return unlikely(qatomic_read(&idletime_migration_on)) &&
           idletime_migration_interrupts_slow();
}

/**
 * idletime_migration_wait: for the right to send, or @ms milliseconds.
 * Returns false at once where it is not the uplink that is waited for.
 * Context: the migration thread.
 */
static inline bool idletime_migration_wait(QEMUFile *f, int ms)
{
    return unlikely(qatomic_read(&idletime_migration_on)) &&
           idletime_migration_wait_slow(f, ms);
}

/** idletime_migration_pages: of @pages, how many go into one packet. */
static inline uint32_t idletime_migration_pages(uint32_t pages)
{
    return likely(!qatomic_read(&idletime_migration_on)) ? pages :
           idletime_migration_pages_slow(pages);
}

/**
 * idletime_migration_switchover: the guest is stopped; nothing is held from
 * now on, also if it is attached later.  Context: the migration thread.
 */
void idletime_migration_switchover(QEMUFile *f);

/**
 * idletime_migration_bandwidth: bytes a second while it sends, pauses left
 * out: what it will have once it does not pause.  0: as stock.
 * Context: the migration thread.
 */
static inline uint64_t idletime_migration_bandwidth(void)
{
    return likely(!qatomic_read(&idletime_migration_on)) ? 0 :
           idletime_migration_bandwidth_slow();
}

/**
 * idletime_migration_begun: a migration, and no snapshot, which has the same
 * loops.  Context: the migration thread.
 */
void idletime_migration_begun(void);
/** idletime_migration_ended: its thread has ended.  Context: BQL. */
void idletime_migration_ended(void);

/**
 * idletime_migration_attach: what migrates now, or does so until it is
 * detached, is background on @resource.  Context: BQL.
 */
bool idletime_migration_attach(const char *resource, Error **errp);
/** idletime_migration_detach: it goes on as a stock one.  Context: BQL. */
bool idletime_migration_detach(Error **errp);

/** idletime_migration_rate: as bandwidth, for people; 0: not known.  BQL. */
uint64_t idletime_migration_rate(void);

#endif
