/*
 * Idletime size: how long background requests take, by size, and which size
 * their pieces should have.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pure.
 */
#ifndef IDLETIME_SIZE_H
#define IDLETIME_SIZE_H

#include "idletime/learner/window.h"

/* 4 KiB, 8 KiB, ... 64 MiB and above. */
#define IDLETIME_SIZES          15
#define IDLETIME_SIZE_MIN       4096u

/* Service times of one size. */
typedef struct IdletimeServiceClass {
    double count;               /* at most so many are remembered */
    double mean_ns;
    double square;              /* mean square deviation, ns^2 */
} IdletimeServiceClass;

typedef struct IdletimeServiceTimes {
    IdletimeServiceClass size[IDLETIME_SIZES];
    IdletimeServiceClass any;      /* as the sizes come */
    double turnaround_ns;       /* mean, of all sizes */
    unsigned piece;             /* class that pieces should have */
    int64_t chosen_ns;          /* when it was chosen; 0: never */
} IdletimeServiceTimes;

/** idletime_service_note: a request of @bytes took @ns. */
void idletime_service_note(IdletimeServiceTimes *s, uint32_t bytes, double ns);

/** idletime_service_turnaround: @ns after a request the next one was there. */
void idletime_service_turnaround(IdletimeServiceTimes *s, double ns);

/** idletime_service_known: is there enough to speak of a service time? */
bool idletime_service_known(const IdletimeServiceTimes *s);

/** idletime_service_service: expected of a request of @bytes. */
IdletimeService idletime_service_service(const IdletimeServiceTimes *s, uint32_t bytes);
/** idletime_service_any: of requests as they come. */
IdletimeService idletime_service_any(const IdletimeServiceTimes *s);

/**
 * idletime_service_believed: what of the @ns that a request of @bytes took is the
 * device's doing; the rest is a host that was stalled.
 */
double idletime_service_believed(const IdletimeServiceTimes *s, uint32_t bytes,
                               double ns);

/**
 * idletime_service_choose: the size of pieces that brings most bytes within
 * the budget, or a neighbour of it whose service time is not known yet.
 * @max_bytes: largest piece that the operator allows
 * At most once a second; about 60 us a known size.
 */
void idletime_service_choose(IdletimeServiceTimes *s, const IdletimeWindows *w,
                           uint64_t max_bytes, const IdletimeTerms *terms,
                           int64_t now_ns);

/** idletime_service_piece: bytes, at most @max_bytes. */
uint64_t idletime_service_piece(const IdletimeServiceTimes *s, uint64_t max_bytes);

#endif
