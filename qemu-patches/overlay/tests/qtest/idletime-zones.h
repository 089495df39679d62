/*
 * Idletime machine tests: zones of a disk, each with one random request.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A request has a zone for itself, so what it must read, and what the image
 * must hold in the end, is known.  A reset forgets requests, task management
 * ends them: then the image says which of them were carried out, block by
 * block.
 */
#ifndef IDLETIME_ZONES_H
#define IDLETIME_ZONES_H

#include "qemu/units.h"
#include "idletime-machine.h"

#define ZONES           16
#define ZONE_BYTES      (512 * KiB)
#define ZONE_BLOCKS     (ZONE_BYTES / BLOCK_BYTES)

/* One request at a time. */
typedef struct TestZone {
    TestRequest *r;
    uint64_t addr;                  /* its memory, which is the zone's */
    uint32_t type;
    unsigned first, count;          /* blocks of the zone */
    uint8_t value;
    uint8_t holds[ZONE_BLOCKS];
} TestZone;

typedef struct TestZones {
    TestDisk *d;
    TestZone zone[ZONES];
    unsigned requests;
    unsigned ended;                 /* without a result of their own */
    uint64_t verified_bytes;
} TestZones;

void zones_init(TestZones *zones, TestDisk *d);
/** zones_submit: a request in a zone that has none, if the rings have room */
void zones_submit(TestZones *zones, GRand *rand);
/** zones_reap: check those that are done; returns how many are not. */
unsigned zones_reap(TestZones *zones);
/** zones_compare: the image with what it must hold; forgets all requests. */
void zones_compare(TestZones *zones);

#endif
