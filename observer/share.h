/*
 * Idletime observer: what the loader tells the programs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef OBSERVER_SHARE_H
#define OBSERVER_SHARE_H

/* Background cgroups at a time; a host has some hundred VMs. */
#define OBSERVER_CGROUPS    1024
/* Interfaces of background VMs at a time. */
#define OBSERVER_INTERFACES 4096

/*
 * Since when, and until when, requests of this cgroup are background, by the
 * time at which they were made.  This does not change while a request is in
 * service, so both of its ends are judged alike; both times are set a little
 * in the future, so that all processors know in time.
 */
struct background {
    unsigned long long from_ns;
    unsigned long long until_ns;
};

/* What the loader found out, for the program that corrects the page. */
struct correction {
    unsigned long long lost;        /* begins whose end was not told */
    unsigned long long lost_foreground; /* of these, or taken for others' */
    unsigned long long missed;      /* events that were not told, more */
};

/*
 * What all programs read, in one cache line that seldom changes; the loader
 * writes it in memory that both map.
 */
struct orders {
    unsigned long long epoch_ns;    /* older requests do not count; 0: none */
    unsigned long long version;     /* of the set of cgroups; from 1 on */
    unsigned long long queue;       /* of the leaf; 0: the programs look for it */
    unsigned char has_background;
    unsigned char idle_class_is_background;
} __attribute__((aligned(64)));

/* The other way: what the programs tell the loader and nobody else. */
struct told {
    uint64_t begun_background;      /* requests of the background, issued */
} __attribute__((aligned(64)));

#endif
