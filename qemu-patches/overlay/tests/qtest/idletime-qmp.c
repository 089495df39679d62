/*
 * Idletime machine tests: QMP commands, and what query-idletime shows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime-machine.h"
#include "qobject/qbool.h"
#include "qobject/qjson.h"
#include "qobject/qlist.h"
#include "qobject/qnum.h"
#include "qobject/qstring.h"

static QDict *G_GNUC_PRINTF(3, 0)
execute(TestMachine *m, const char *command, const char *fmt, va_list ap)
{
    QObject *arguments = qobject_from_vjsonf_nofail(fmt, ap);

    return qtest_qmp(m->qts, "{'execute': %s, 'arguments': %p}", command,
                     arguments);
}

void machine_ok(TestMachine *m, const char *command, const char *fmt, ...)
{
    QDict *response;
    va_list ap;

    va_start(ap, fmt);
    response = execute(m, command, fmt, ap);
    va_end(ap);
    if (qdict_haskey(response, "error")) {
        g_error("%s: %s", command,
                qdict_get_str(qdict_get_qdict(response, "error"), "desc"));
    }
    qobject_unref(response);
}

void machine_refused(TestMachine *m, const char *text, const char *command,
                     const char *fmt, ...)
{
    QDict *response, *error;
    va_list ap;

    va_start(ap, fmt);
    response = execute(m, command, fmt, ap);
    va_end(ap);
    error = qdict_get_qdict(response, "error");
    if (!error) {
        g_error("%s was not refused, expected: %s", command, text);
    }
    g_assert_cmpstr(qdict_get_str(error, "desc"), ==, text);
    qobject_unref(response);
}

/* The element of @list whose member @key is @value. */
static QObject *element_of(QList *list, const char *key, const char *value)
{
    const QListEntry *entry;

    QLIST_FOREACH_ENTRY(list, entry) {
        QDict *dict = qobject_to(QDict, entry->value);

        if (g_str_equal(qdict_get_str(dict, key), value)) {
            return entry->value;
        }
    }
    g_error("query-idletime does not show %s '%s'", key, value);
}

static QObject *element_at(QList *list, unsigned index)
{
    const QListEntry *entry;

    QLIST_FOREACH_ENTRY(list, entry) {
        if (index-- == 0) {
            return entry->value;
        }
    }
    return NULL;
}

/* "counters.idle.foreground", "hold.bins.8" */
static QObject *walk(QObject *object, const char *path)
{
    g_auto(GStrv) step = g_strsplit(path, ".", -1);

    for (unsigned i = 0; object && step[i]; i++) {
        QDict *dict = qobject_to(QDict, object);

        object = dict ? qdict_get(dict, step[i]) :
                 element_at(qobject_to(QList, object), atoi(step[i]));
    }
    if (!object) {
        g_error("query-idletime does not show '%s'", path);
    }
    return object;
}

static QDict *query(TestMachine *m)
{
    return qtest_qmp(m->qts, "{'execute': 'query-idletime'}");
}

static QObject *resource_in(QDict *response, const char *id)
{
    return element_of(qdict_get_qlist(response, "return"), "id", id);
}

/* false is 0, true is 1; fractions are cut off */
static int64_t number_of(QObject *object)
{
    QBool *flag = qobject_to(QBool, object);

    return flag ? qbool_get_bool(flag) :
                  (int64_t)qnum_get_double(qobject_to(QNum, object));
}

int64_t machine_number(TestMachine *m, const char *id, const char *member)
{
    QDict *response = query(m);
    QObject *found = walk(resource_in(response, id), member);
    int64_t value = number_of(found);

    qobject_unref(response);
    return value;
}

char *machine_string(TestMachine *m, const char *id, const char *member)
{
    QDict *response = query(m);
    QObject *found = walk(resource_in(response, id), member);
    char *text = g_strdup(qstring_get_str(qobject_to(QString, found)));

    qobject_unref(response);
    return text;
}

/* The device, on whichever resource it is; NULL: on none. */
static QObject *find_device(QDict *response, const char *id)
{
    const QListEntry *entry;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(response, "return"), entry) {
        QList *devices = qdict_get_qlist(qobject_to(QDict, entry->value),
                                         "devices");
        const QListEntry *e;

        QLIST_FOREACH_ENTRY(devices, e) {
            if (g_str_equal(qdict_get_str(qobject_to(QDict, e->value),
                                          "device"), id)) {
                return e->value;
            }
        }
    }
    return NULL;
}

static QObject *device_in(QDict *response, const char *id)
{
    QObject *device = find_device(response, id);

    if (!device) {
        g_error("query-idletime does not show device '%s'", id);
    }
    return device;
}

bool disk_is_attached(TestDisk *d)
{
    QDict *response = query(d->m);
    bool found = find_device(response, d->id);

    qobject_unref(response);
    return found;
}

int64_t disk_number(TestDisk *d, const char *member)
{
    QDict *response = query(d->m);
    QObject *found = walk(device_in(response, d->id), member);
    int64_t value = number_of(found);

    qobject_unref(response);
    return value;
}

void machine_set(TestMachine *m, const char *property, int64_t value)
{
    machine_ok(m, "qom-set", "{'path': '/objects/" RESOURCE "',"
               " 'property': %s, 'value': %" PRId64 "}", property, value);
}
