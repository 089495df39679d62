/*
 * Idletime: idletime-attach and idletime-detach.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/device/attach.h"
#include "qapi/qapi-commands-idletime.h"

void qmp_idletime_attach(IdletimeAttachment *attachment, Error **errp)
{
    g_autofree char *class = attachment->has_q_class ?
        g_strdup(IdletimeClass_str(attachment->q_class)) : NULL;
    const IdletimeConf conf = {
        .resource = attachment->resource,
        .class = class,
        .queues = attachment->background_queues,
        .dscp = attachment->dscp,
    };
    Object *obj = idletime_attachable_find(attachment->device, errp);

    if (obj) {
        idletime_attach(obj, &conf, errp);
    }
}

void qmp_idletime_detach(const char *device, Error **errp)
{
    Object *obj = idletime_attachable_find(device, errp);

    if (obj) {
        idletime_detach(obj, errp);
    }
}
