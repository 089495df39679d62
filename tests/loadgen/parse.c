/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Values of command-line options. */
#include "parse.h"
#include "samples.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint64_t number(const char *option, const char *text, uint64_t least,
                uint64_t most)
{
    char *end;
    uint64_t value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || *end || end == text || *text == '-' || value < least ||
        value > most) {
        fail("--%s %s: use a whole number from %" PRIu64 " to %" PRIu64,
             option, text, least, most);
    }
    return value;
}

double duration(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (*end || end == text || !(value > 0 && value <= SECONDS_MAX)) {
        fail("--seconds %s: use a number above 0, at most %d", text,
             SECONDS_MAX);
    }
    return value;
}

const char *choice(const char *option, const char *text, const char *a,
                   const char *b, const char *c)
{
    if (strcmp(text, a) != 0 && strcmp(text, b) != 0 &&
        (!c || strcmp(text, c) != 0)) {
        fail("--%s %s: use %s%s%s or %s", option, text, a, c ? ", " : "",
             c ? c : "", b);
    }
    return text;
}
