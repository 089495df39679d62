/*
 * Idletime arena: why something failed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_ERROR_H
#define IDLETIME_ERROR_H

/* A reason in words: what, which file, which value, what to do. */
typedef struct IdletimeError {
    char text[512];
} IdletimeError;

/** idletime_fail: fills @err.  Returns false, for the caller to return. */
static inline bool G_GNUC_PRINTF(2, 3) idletime_fail(IdletimeError *err,
                                                     const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    return false;
}

#endif
