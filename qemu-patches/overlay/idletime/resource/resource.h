/*
 * idletime-resource: one contended host resource, as a QOM object.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_RESOURCE_H
#define IDLETIME_RESOURCE_H

#include "idletime/arena/observer.h"
#include "idletime/core/core.h"
#include "idletime/learner/learner.h"
#include "idletime/resource/boards.h"
#include "idletime/resource/settings.h"
#include "idletime/uplink/interval.h"
#include "qemu/notify.h"
#include "qemu/queue.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "qom/object.h"

#define TYPE_IDLETIME_RESOURCE "idletime-resource"
OBJECT_DECLARE_SIMPLE_TYPE(IdletimeResource, IDLETIME_RESOURCE)

/* One participant; what it is, only its room (gate) knows. */
typedef struct IdletimeGate IdletimeGate;

struct IdletimeResource {
    Object parent_obj;

    char *path;
    int64_t setting[IDLETIME_SETTING__MAX];  /* any thread, qatomic */
    bool given[IDLETIME_SETTING__MAX];       /* set by the operator; likewise */
    IdletimeResourceKind kind;                       /* likewise */

    /* BQL: */
    bool complete;
    unsigned users;                         /* devices */
    QTAILQ_HEAD(, IdletimeGate) gates;
    NotifierList changed;                   /* settings; data: NULL */
    IdletimeBoards *boards;                 /* in use, or to be moved to */
    GSList *old_boards;                     /* being left */
    IdletimeError observer_why;             /* refused: said so already */
    QEMUTimer *watch;                       /* gate/recover.c */
    int64_t found_ns;                       /* arena found again; 0: never */
    QTAILQ_ENTRY(IdletimeResource) next;

    /*
     * The arena is lost, or found again so lately that foreground may not
     * have moved yet.  Written under the BQL, read by any thread (qatomic).
     */
    bool blind;

    /* Open from complete on; watched under the BQL, looked at by any thread. */
    IdletimeObserver observer;

    /* Background participants of this process only; never the foreground. */
    QemuMutex lock;
    IdletimeCore core;
    bool core_ready;
    int64_t collision_ns;
    IdletimeLearner *learner;   /* there while 'auto' or 'shadow' is on */
    int64_t learner_ns;         /* spent in it, preemption included */
    IdletimeUplinkPackets packets;          /* of an uplink */
    int64_t uplink_interval_ns; /* learned, any thread (qatomic); 0: not */
};

/** idletime_clock: the clock of all timestamps; virtual time under qtest. */
QEMUClockType idletime_clock(void);

static inline int64_t idletime_now_ns(void)
{
    return qemu_clock_get_ns(idletime_clock());
}

/** idletime_resource_goal: for the learner.  Context: any thread. */
IdletimeGoal idletime_resource_goal(const IdletimeResource *res);

/**
 * idletime_resource_rule: the settings now.  Context: any thread.
 * With 'auto', an in-flight cap that the operator did not set is the largest:
 * the learner sets it.  Who finds no learner applies the setting.
 */
IdletimeRule idletime_resource_rule(const IdletimeResource *res);

static inline int64_t idletime_resource_get(const IdletimeResource *res,
                                            IdletimeSetting setting)
{
    return qatomic_read(&res->setting[setting]);
}

/**
 * idletime_resource_set: what the operator wants from now on; res->changed is
 * told.  @value must have passed the check.  Context: BQL.
 */
void idletime_resource_set(IdletimeResource *res, IdletimeSetting setting,
                           int64_t value);

/**
 * idletime_resource_join: one more device of @kind uses it.
 * The first one says what the resource is: what the operator did not set
 * becomes the standard of that kind, and on an uplink 'auto' goes by the time
 * of packets (uplink/interval.c).  Another kind is refused: @errp is set.
 * Context: BQL.
 */
bool idletime_resource_join(IdletimeResource *res, IdletimeResourceKind kind,
                            Error **errp);
/**
 * idletime_resource_become: of another kind.  No device may use it.
 * Context: BQL; used by idletime_resource_join().
 */
void idletime_resource_become(IdletimeResource *res, IdletimeResourceKind kind);
/** idletime_resource_leave: Context: BQL. */
void idletime_resource_leave(IdletimeResource *res);

static inline bool idletime_resource_is_uplink(const IdletimeResource *res)
{
    return qatomic_read(&res->kind) == IDLETIME_KIND_UPLINK;
}

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

/** idletime_resource_id: for messages. */
const char *idletime_resource_id(const IdletimeResource *res);

/** idletime_resource_foreach: in order of creation.  Context: BQL. */
void idletime_resource_foreach(void (*fn)(IdletimeResource *res, void *opaque),
                               void *opaque);

#endif
