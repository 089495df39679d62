/*
 * Idletime: lists of queues such as "2-3,6".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/range.h"
#include "qapi/string-input-visitor.h"
#include "qapi/qapi-builtin-visit.h"
#include "idletime/device/device.h"

static bool in_range(const uint16List *list, uint16_t num_queues,
                     const char *text, Error **errp)
{
    for (; list; list = list->next) {
        if (list->value >= num_queues) {
            error_setg(errp, "property 'idletime-background-queues' is '%s': "
                       "queue %" PRIu16 " does not exist, the device has the "
                       "queues 0 to %d (see num-queues)",
                       text, list->value, num_queues - 1);
            return false;
        }
    }
    return true;
}

bool idletime_queue_list_parse(const char *text, uint16_t num_queues,
                               bool *listed, Error **errp)
{
    g_autoptr(uint16List) list = NULL;
    Visitor *v;
    bool ok;

    memset(listed, 0, num_queues * sizeof(*listed));
    if (!text || !*text) {
        return true;
    }
    v = string_input_visitor_new(text);
    ok = visit_type_uint16List(v, NULL, &list, NULL);
    visit_free(v);
    if (!ok || !list) {
        error_setg(errp, "property 'idletime-background-queues' is '%s', must "
                   "be a list of queues such as '2-3,6'", text);
        return false;
    }
    if (!in_range(list, num_queues, text, errp)) {
        return false;
    }
    for (uint16List *l = list; l; l = l->next) {
        listed[l->value] = true;
    }
    return true;
}
