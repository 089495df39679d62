/*
 * Idletime uplink: the interval of an uplink, from the time of its packets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_UPLINK_INTERVAL_H
#define IDLETIME_UPLINK_INTERVAL_H

/* Zeroed: nothing is known. */
typedef struct IdletimeUplinkPackets {
    double count;               /* packets */
    double sum_ns;              /* the time of so many full ones */
} IdletimeUplinkPackets;

/**
 * idletime_uplink_note: a background packet that met no foreground has left.
 * @bytes: its size
 * @n: packets in service when it started, with it
 * @took_ns: its time in service
 */
void idletime_uplink_note(IdletimeUplinkPackets *u, uint32_t bytes, uint32_t n,
                          int64_t took_ns);

/** idletime_uplink_interval: @safe_ns while too little is known. */
int64_t idletime_uplink_interval(const IdletimeUplinkPackets *u,
                                 int64_t safe_ns);

#endif
