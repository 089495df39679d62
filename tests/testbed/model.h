/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How long a disk needs for a request: pure functions, no clock and no state
 * but what the caller passes.
 *
 * model=fixed: service = service-us (5000) [+ bytes / rate]
 * model=seek:  service = overhead + seek + rotation + bytes / rate, where
 *   - a request that begins where the last one ended needs neither seek nor
 *     rotation: the head is there already;
 *   - one that begins up to one track ahead waits for the sectors in between
 *     to pass under the head, at the media rate;
 *   - any other moves the arm: seek = seek-min + (seek-max - seek-min) *
 *     sqrt(distance / size), as an arm that accelerates half of the way and
 *     brakes for the other half needs time in proportion to the square root;
 *     then waits for the sector: a part of a turn that is random (from
 *     `seed` and the number of the request, thus the same in each run), or
 *     half a turn with rotation=half.
 * The defaults are those of a nearline disk of 7200 turns a minute: 8333 us a
 * turn, track to track 800 us, full stroke 16000 us (mean over random pairs,
 * 8/15 of the range: 8.9 ms), 150 MB/s at the media, 1 MiB a track, 100 us of
 * controller and bus.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Model {
    bool is_seek;
    bool rotation_is_half;
    int64_t size_bytes;
    int64_t service_us;
    int64_t overhead_us;
    int64_t seek_min_us;
    int64_t seek_max_us;
    int64_t rate_bytes; /* per second; 0: transfers cost no time */
    int64_t seed;
} Model;

/* Where the disk is: the byte after the last one served, requests served. */
typedef struct Position {
    uint64_t head;
    uint64_t served;
} Position;

/* Service time, nanoseconds. */
int64_t model_service_ns(const Model *model, Position position, uint64_t offset,
                         uint32_t bytes);

#endif
