/*
 * Microbenchmarks of the arena: what the foreground and the background pay.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_MICRO_H
#define IDLETIME_MICRO_H

#include "qemu/osdep.h"
#include "idletime/arena/foreground.h"
#include "idletime/arena/look.h"
#include "idletime/arena/slot.h"

#define MS (1000 * 1000LL)
#define SEC (1000 * MS)

typedef struct Bench {
    char dir[64];
    IdletimeArena arena;
    IdletimeBoard fg, bg, fg_read;
    IdletimeSlot self;
    IdletimeScan scan;
} Bench;

int64_t micro_clock_ns(void);
void micro_must(bool ok, const char *what);
double micro_median(double *value, size_t count);
IdletimeSlot micro_claim(IdletimeBoard *board);

void micro_foreground(Bench *bench);
void micro_background(Bench *bench);
void micro_learner(void);
void micro_packet(Bench *bench);

#endif
