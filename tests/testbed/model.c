/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "model.h"

#include <math.h>

enum {
    NS_PER_US = 1000,
    NS_PER_S = 1000000000,
    TRACK_BYTES = 1 << 20,
    TURN_NS = 8333333, /* 7200 turns a minute */
};

/* splitmix64 of seed and request number. */
static uint64_t random_number(uint64_t seed, uint64_t number)
{
    uint64_t z = seed + (number + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t transfer_ns(const Model *model, uint64_t bytes)
{
    if (model->rate_bytes == 0) {
        return 0;
    }
    return (int64_t)((double)bytes / model->rate_bytes * NS_PER_S);
}

static int64_t rotation_ns(const Model *model, uint64_t served)
{
    if (model->rotation_is_half) {
        return TURN_NS / 2;
    }
    return random_number(model->seed, served) % TURN_NS;
}

static int64_t arm_ns(const Model *model, uint64_t head, uint64_t offset)
{
    uint64_t distance = offset > head ? offset - head : head - offset;
    double part = sqrt((double)distance / model->size_bytes);
    int64_t range_us = model->seek_max_us - model->seek_min_us;

    return (int64_t)((model->seek_min_us + range_us * part) * NS_PER_US);
}

static int64_t positioning_ns(const Model *model, Position position,
                              uint64_t offset)
{
    if (offset >= position.head && offset - position.head <= TRACK_BYTES) {
        return transfer_ns(model, offset - position.head);
    }
    return arm_ns(model, position.head, offset) +
           rotation_ns(model, position.served);
}

int64_t model_service_ns(const Model *model, Position position, uint64_t offset,
                         uint32_t bytes)
{
    if (!model->is_seek) {
        return model->service_us * NS_PER_US + transfer_ns(model, bytes);
    }
    return model->overhead_us * NS_PER_US +
           positioning_ns(model, position, offset) + transfer_ns(model, bytes);
}
