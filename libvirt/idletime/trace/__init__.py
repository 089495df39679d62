# SPDX-License-Identifier: GPL-2.0-or-later
"""Logs of QEMU's trace events as a picture: what each request waited for, beside the foreground's.

    log      the lines of a log (QEMU's backend "log") as events; pure
    slices   events as stretches of time: requests, held, in service, collided; pure
    chrome   slices as Chrome's trace format, which Perfetto and chrome://tracing open; pure
"""
