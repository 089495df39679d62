/*
 * Idletime uplink: frames on Ethernet, in bytes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_UPLINK_FRAME_H
#define IDLETIME_UPLINK_FRAME_H

/* A full one and the least, from the Ethernet header on. */
#define IDLETIME_FRAME_FULL     1514
#define IDLETIME_FRAME_LEAST    60
/* What a link sends beside it: preamble, checksum and gap. */
#define IDLETIME_FRAME_EXTRA    24

#endif
