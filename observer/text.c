/*
 * Idletime observer: what it says, and a line of a file.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "observer.h"

#include <stdarg.h>

static char reason[2 * PATH_MAX];

bool fail(const char *format, ...)
{
    int error = errno;
    va_list ap;

    va_start(ap, format);
    vsnprintf(reason, sizeof(reason), format, ap);
    va_end(ap);
    errno = error;
    return false;
}

const char *what(void)
{
    return reason;
}

void warn(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fputs("idletime-observer: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
}

bool read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");
    bool there = file && fgets(line, size, file);

    if (file) {
        fclose(file);
    }
    return there;
}
