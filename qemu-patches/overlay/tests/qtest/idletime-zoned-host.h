/*
 * Idletime machine tests: a host with a zoned disk, where the kernel has none.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_ZONED_HOST_H
#define IDLETIME_ZONED_HOST_H

/* The environment variable that names the file, and what lets writes go. */
#define ZONED_HOST_IMAGE        "IDLETIME_ZONED"
#define ZONED_HOST_GO           ".go"

#define ZONED_HOST_ZONES        64
#define ZONED_HOST_ZONE_BYTES   (1 << 20)

/** zoned_host_library: for LD_PRELOAD of QEMU */
const char *zoned_host_library(void);

#endif
