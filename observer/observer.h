/*
 * Idletime observer: what its parts share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   main.c      the command line, and the loop
 *   text.c      what it says, and a line of a file
 *   leaf.c      which device's queue a disk's requests go through (pure, but for sysfs)
 *   disk.c      loads the programs of a disk
 *   heal.c      finds begins whose end was not told
 *   uplink.c    loads the program of an uplink
 *   groups.c    which cgroups or interfaces are background; level-triggered
 *   serve.c     who is connected
 *   socket.c    the socket in the arena's directory
 *   lock.c      one observer for an arena
 *   rights.c    gives back the rights that are not needed any more
 *
 * Each function that can fail returns false, or -1, with what() filled.
 */
#ifndef OBSERVER_H
#define OBSERVER_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "idletime/arena/observed.h"

/*
 * A directory that came back is served within two.  A leak is healed at the
 * third tick of idle: 600 ms, and 50 that these ticks look.
 */
#define TICK_MS         200
/* From an order to its validity: all processors have read it by then. */
#define SOON_NS         250000000ULL

/** fail: keeps the reason.  Returns false, for the caller to return. */
bool fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** what: why the last one failed. */
const char *what(void);
/** warn: a line for people; the observer goes on. */
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** now_ns: CLOCK_MONOTONIC. */
uint64_t now_ns(void);
/** read_line: the first line of a file, cut.  False where there is none. */
bool read_line(const char *path, char *line, size_t size);

typedef struct Options {
    const char *arena;
    const char *disk;
    const char *uplink;
    const char *list;           /* file of background cgroups or interfaces */
    const char **background;
    unsigned backgrounds;
    bool idle_class;
    bool raw;                   /* for tests: as on a kernel without types, tcx */
} Options;

/* ---- leaf.c */

typedef struct Leaf {
    char name[32];              /* of the kernel, e.g. sda, nvme0c0n1 */
    int major, minor;
    bool hidden;                /* has no number */
} Leaf;

/** leaf_of: in sysfs, or the tree like it that OBSERVER_SYS names. */
bool leaf_of(const char *device, Leaf *leaf);

/* ---- groups.c */

typedef struct Member {
    uint64_t id;
    uint64_t from_ns;           /* of the last time */
    uint64_t until_ns;          /* 0: still in the set */
    bool wanted;
} Member;

typedef struct Groups {
    const Options *options;
    uint64_t (*resolve)(const char *name);  /* 0: there is none now */
    bool (*check)(const char *name);        /* what() is for people; or NULL */
    bool (*put)(void *opaque, uint64_t id, uint64_t from_ns,
                uint64_t until_ns);
    bool (*drop)(void *opaque, uint64_t id);
    void *opaque;
    Member *member;
    unsigned members, most;
    bool complained;
} Groups;

/**
 * groups_update: makes the set what the options and the file say now.
 * Returns whether it changed.
 */
bool groups_update(Groups *groups);
uint64_t cgroup_resolve(const char *path);
/** cgroup_check: can the kernel tell its requests from others? */
bool cgroup_check(const char *path);

/* ---- disk.c, uplink.c */

typedef struct Source Source;
struct Source {
    int page_fd;
    const IdletimeObserved *page;
    /* NULL, or: what must not happen while another one is at the arena. */
    bool (*start)(const Options *options, Source *source);
    bool (*tick)(void);         /* false: there is nothing to observe any more */
    void (*close)(void);
    bool net_admin;             /* close() needs CAP_NET_ADMIN */
};

bool disk_open(const Options *options, Source *source);
bool uplink_open(const Options *options, Source *source);
/**
 * page_open: fills the page's head and the source's first two fields; before
 * any program runs.
 */
bool page_open(Source *source, int map_fd, IdletimeObservedKind kind,
               const char *label);

/* ---- heal.c */

struct correction;              /* share.h */

/** heal_open: @leaf: by the kernel's name; sysfs as for leaf_of. */
bool heal_open(const char *leaf);
/** heal_is_counted: does the kernel count requests (queue/iostats)? */
bool heal_is_counted(void);
/**
 * heal_look: at each tick.  @background: how many of the background began.
 * Returns false when the device is gone; @correction: begins without an end.
 */
bool heal_look(const IdletimeObserved *page, const uint64_t *background,
               struct correction *correction);
/** heal_forget: what was seen so far says nothing any more. */
void heal_forget(void);

/* ---- serve.c */

bool serve_open(const char *arena, const Source *source);
/** serve_tick: the socket is there, with the board's rights, or soon. */
void serve_tick(void);
/** serve_descriptor: the descriptor that tells of events. */
int serve_descriptor(void);
void serve_events(void);
void serve_close(void);

/* ---- socket.c */

typedef struct Place {
    int listener;               /* -1: none now */
    dev_t device;               /* of the socket's file */
    ino_t inode;
} Place;

/** is_short: errno says that no descriptor was left. */
bool is_short(void);
/** place_socket: makes the socket in the arena's directory. */
bool place_socket(const char *arena, Place *place);
/** place_keep: is it there still?  Then with the rights of now. */
bool place_keep(const char *arena, const Place *place);
void place_remove(const char *arena, const Place *place);

/* ---- lock.c */

/** lock_arena: -1 with errno ENOENT: there is no arena; EBUSY: another has it. */
int lock_arena(const char *arena);
void lock_leave(int lock);

/* ---- rights.c */

/** rights_drop: @net_admin: all but this one too. */
bool rights_drop(bool net_admin);

#endif
