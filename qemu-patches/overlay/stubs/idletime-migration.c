/*
 * Tests of the parts of migration, which nothing attaches.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/work/migration.h"

bool idletime_migration_on;

bool idletime_migration_exceeded_slow(void)
{
    g_assert_not_reached();
}
