/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Blocks that say where they belong and which write they are from. */
#define _GNU_SOURCE
#include "verify.h"

#include <string.h>
#include <time.h>

static const uint64_t MAGIC = 0x59464952454c4449u; /* "IDLERIFY" */

typedef struct Block {
    uint64_t magic, place, sequence;
    uint64_t filler[BLOCK_BYTES / 8 - 3]; /* random numbers of place, sequence */
} Block;

uint64_t random_number(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

void block_make(void *block, uint64_t place, uint64_t sequence)
{
    Block *b = block;
    uint64_t state = place * 0x100000001b3u + sequence;

    b->magic = MAGIC;
    b->place = place;
    b->sequence = sequence;
    for (size_t i = 0; i < sizeof(b->filler) / sizeof(b->filler[0]); i++) {
        b->filler[i] = random_number(&state);
    }
}

int64_t block_sequence(const void *block, uint64_t place)
{
    const Block *b = block;
    Block wanted;

    if (b->magic == MAGIC) {
        block_make(&wanted, place, b->sequence);
        return memcmp(b, &wanted, sizeof(wanted)) == 0 ?
               (int64_t)b->sequence : -1;
    }
    memset(&wanted, 0, sizeof(wanted));
    return memcmp(b, &wanted, sizeof(wanted)) == 0 ? 0 : -1;
}
