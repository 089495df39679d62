/*
 * Stand-in for QEMU's header: the processor that this thread runs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef HW_CORE_CPU_H
#define HW_CORE_CPU_H

typedef struct CPUState CPUState;

extern __thread CPUState *current_cpu;

#endif
