/*
 * Idletime arena: reading what others write, in no order.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_LOAD_H
#define IDLETIME_LOAD_H

#define load_relaxed(p)         __atomic_load_n((p), __ATOMIC_RELAXED)

#endif
