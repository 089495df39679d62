/*
 * idletime-resource: one contended host resource, as a QOM object.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_RESOURCE_H
#define IDLETIME_RESOURCE_H

#include "idletime/arena/arena.h"
#include "idletime/learner/learner.h"
#include "idletime/uplink/interval.h"
#include "qemu/queue.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "qom/object.h"

#define TYPE_IDLETIME_RESOURCE "idletime-resource"
OBJECT_DECLARE_SIMPLE_TYPE(IdletimeResource, IDLETIME_RESOURCE)

typedef struct IdletimeDevice IdletimeDevice;

/* The numeric properties; one table row each in resource.c. */
typedef enum IdletimeSetting {
    IDLETIME_INTERVAL_US,
    IDLETIME_MAX_INFLIGHT,
    IDLETIME_MAX_REQUEST_BYTES,
    IDLETIME_MAX_HOLD_MS,
    IDLETIME_WEIGHT,
    IDLETIME_AUTO,
    IDLETIME_BUDGET_PERCENT,
    IDLETIME_SHADOW,
    IDLETIME_RATE_BPS,
    IDLETIME_SETTING__MAX,
} IdletimeSetting;

/*
 * The mapped boards of one arena.  When the arena is lost and found again
 * (attach.c), participants move from one set to the next, each in its thread.
 */
typedef struct IdletimeBoards {
    IdletimeBoard fg_write;     /* each is mapped at its first use */
    IdletimeBoard fg_read;
    IdletimeBoard bg;
} IdletimeBoards;

struct IdletimeResource {
    Object parent_obj;

    char *path;
    int64_t setting[IDLETIME_SETTING__MAX];  /* any thread, qatomic */
    bool given[IDLETIME_SETTING__MAX];       /* set by the operator; likewise */
    bool uplink;                             /* has a NIC; likewise */

    /* BQL: */
    bool complete;
    unsigned users;                         /* devices */
    IdletimeBoards *boards;                 /* in use, or to be moved to */
    IdletimeBoards *old_boards;             /* being left; NULL: none */
    QEMUTimer *watch;
    int64_t found_ns;                       /* arena found again; 0: never */
    QTAILQ_HEAD(, IdletimeDevice) devices;
    QTAILQ_ENTRY(IdletimeResource) next;

    /*
     * The arena is lost, or found again so lately that foreground may not
     * have moved yet.  Written under the BQL, read by any thread (qatomic).
     */
    bool blind;

    /* Background participants of this process only; never the foreground. */
    QemuMutex lock;
    IdletimeCore core;
    bool core_ready;
    int64_t collision_ns;
    IdletimeLearner *learner;               /* NULL: never asked for */
    int64_t learner_ns;         /* spent in it, preemption included */
    IdletimeUplinkPackets packets;                 /* of an uplink */
    int64_t uplink_interval_ns; /* learned, any thread (qatomic); 0: not */
};

/** idletime_clock: the clock of all timestamps; virtual time under qtest. */
QEMUClockType idletime_clock(void);

static inline int64_t idletime_now_ns(void)
{
    return qemu_clock_get_ns(idletime_clock());
}

/** idletime_resource_learns: by 'auto' or 'shadow'.  Context: any thread. */
bool idletime_resource_learns(const IdletimeResource *res);

/** idletime_resource_goal: for the learner.  Context: any thread. */
IdletimeGoal idletime_resource_goal(const IdletimeResource *res);

/**
 * idletime_resource_rule: the settings now.  Context: any thread.
 * With 'auto', an in-flight cap that the operator did not set is the largest:
 * the learner sets it.
 */
IdletimeRule idletime_resource_rule(const IdletimeResource *res);

static inline int64_t idletime_resource_get(const IdletimeResource *res,
                                            IdletimeSetting setting)
{
    return qatomic_read(&res->setting[setting]);
}

/**
 * idletime_setting_check: is @value in range?  The error names the property,
 * the value and the range.
 */
bool idletime_setting_check(IdletimeSetting setting, int64_t value,
                            Error **errp);
/** idletime_resource_set: @value must have passed the check.  Context: BQL. */
void idletime_resource_set(IdletimeResource *res, IdletimeSetting setting,
                           int64_t value);

/**
 * idletime_resource_make_uplink: a NIC is attached.  What the operator did not
 * set becomes the standard of uplinks, and 'auto' goes by the time of packets
 * (uplink.c).  Idempotent.  Context: BQL.
 */
void idletime_resource_make_uplink(IdletimeResource *res);

/**
 * idletime_resource_served: a background request of an uplink has left.
 * @n: background requests in service when it started, with it
 * Context: any thread, res->lock is held.
 */
void idletime_resource_served(IdletimeResource *res, uint32_t bytes,
                              uint32_t n, int64_t took_ns);

/**
 * idletime_resource_find: by id; the error names @property and the remedy.
 * Context: BQL.
 */
IdletimeResource *idletime_resource_find(const char *id, const char *property,
                                         Error **errp);

/**
 * idletime_resource_board: map a board on its first use, else return it.
 * @writable: to claim slots.  Context: BQL.
 */
IdletimeBoard *idletime_resource_board(IdletimeResource *res,
                                       IdletimeBoardKind kind, bool writable,
                                       Error **errp);

/**
 * idletime_boards_map: map a board of @boards on its first use.
 * Returns NULL with @errp set.  Context: BQL.
 */
IdletimeBoard *idletime_boards_map(const IdletimeResource *res,
                                   IdletimeBoards *boards,
                                   IdletimeBoardKind kind, bool writable,
                                   Error **errp);
IdletimeBoards *idletime_boards_new(void);
void idletime_boards_free(IdletimeBoards *boards);

/**
 * idletime_resource_watch: look every second whether the arena is still the
 * one that others see; if not, go blind and move to the new one.  From the
 * first device on: -object is too early to know the clock.  Idempotent.
 * Context: BQL.
 */
void idletime_resource_watch(IdletimeResource *res);
void idletime_resource_unwatch(IdletimeResource *res);

/** idletime_resource_id: for messages. */
const char *idletime_resource_id(const IdletimeResource *res);

/** idletime_resource_foreach: in order of creation.  Context: BQL. */
void idletime_resource_foreach(void (*fn)(IdletimeResource *res, void *opaque),
                               void *opaque);

#endif
