/*
 * Programs that share the QAPI schema of objects but have no devices.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-idletime.h"

IdletimeResourceInfoList *qmp_query_idletime(Error **errp)
{
    return NULL;
}

void qmp_idletime_set(IdletimeChange *change, Error **errp)
{
    error_setg(errp, "this program has no devices");
}

void qmp_idletime_attach(IdletimeAttachment *attachment, Error **errp)
{
    error_setg(errp, "this program has no devices");
}

void qmp_idletime_detach(const char *device, Error **errp)
{
    error_setg(errp, "this program has no devices");
}
