/*
 * The storage daemon: jobs and exports, but no devices and no migration.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "idletime/device/attach.h"
#include "idletime/device/device.h"
#include "idletime/work/divergence.h"
#include "idletime/work/migration.h"

static void no_devices(Error **errp)
{
    error_setg(errp, "this program has no devices, only jobs and "
               "exports");
}

void idletime_device_foreach(const IdletimeResource *res,
                             void (*fn)(IdletimeDevice *dev, void *opaque),
                             void *opaque)
{
}

IdletimeDevice *idletime_device_find(const char *name, Error **errp)
{
    no_devices(errp);
    return NULL;
}

char *idletime_device_name(const IdletimeDevice *dev)
{
    g_assert_not_reached();
}

bool idletime_device_set(IdletimeDevice *dev, const IdletimeClass *class,
                         const char *queues, Error **errp)
{
    g_assert_not_reached();
}

Object *idletime_attachable_find(const char *name, Error **errp)
{
    no_devices(errp);
    return NULL;
}

bool idletime_attach(Object *obj, const IdletimeConf *conf, Error **errp)
{
    g_assert_not_reached();
}

bool idletime_detach(Object *obj, Error **errp)
{
    g_assert_not_reached();
}

bool idletime_migration_attach(const char *resource, Error **errp)
{
    no_devices(errp);
    return false;
}

bool idletime_migration_detach(Error **errp)
{
    no_devices(errp);
    return false;
}

uint64_t idletime_migration_rate(void)
{
    g_assert_not_reached();
}

bool idletime_divergence_now(void)
{
    g_assert_not_reached();
}
