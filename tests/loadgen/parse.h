/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Values of command-line options; each fails with the option, the value and what is allowed. */
#ifndef PARSE_H
#define PARSE_H

#include <stdint.h>

enum {
    /* Start offsets are 32-bit microseconds: 2^32 us are 4294 s. */
    SECONDS_MAX = 4000,
};

uint64_t number(const char *option, const char *text, uint64_t least,
                uint64_t most);
double duration(const char *text);
/* One of a, b and, where it is not NULL, c. */
const char *choice(const char *option, const char *text, const char *a,
                   const char *b, const char *c);

#endif
