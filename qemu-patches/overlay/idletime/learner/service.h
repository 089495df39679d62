/*
 * Idletime service: how long background requests take, by size.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pure.
 */
#ifndef IDLETIME_SERVICE_H
#define IDLETIME_SERVICE_H

#include "idletime/learner/delay.h"

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
    IdletimeServiceClass any;   /* as the sizes come */
    double turnaround_ns;       /* mean, of all sizes */
} IdletimeServiceTimes;

/** idletime_service_note: a request of @bytes took @ns. */
void idletime_service_note(IdletimeServiceTimes *s, uint32_t bytes, double ns);

/** idletime_service_turnaround: @ns after a request the next one was there. */
void idletime_service_turnaround(IdletimeServiceTimes *s, double ns);

/** idletime_service_known: is there enough to speak of a service time? */
bool idletime_service_known(const IdletimeServiceTimes *s);

/** idletime_service_expected: of a request of @bytes. */
IdletimeService idletime_service_expected(const IdletimeServiceTimes *s,
                                          uint32_t bytes);
/** idletime_service_any: of requests as they come. */
IdletimeService idletime_service_any(const IdletimeServiceTimes *s);

/**
 * idletime_service_believed: what of the @ns that a request of @bytes took is
 * the device's doing; the rest is a host that was stalled.
 */
double idletime_service_believed(const IdletimeServiceTimes *s,
                                 uint32_t bytes, double ns);

#endif
