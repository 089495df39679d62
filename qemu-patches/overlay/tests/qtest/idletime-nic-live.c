/*
 * Idletime machine tests: network devices that are attached, detached and
 * migrated.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime-nic-live.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"

/* ---- attach, detach */

static bool shows(QDict *response, const char *id)
{
    const QListEntry *resource, *device;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(response, "return"), resource) {
        QLIST_FOREACH_ENTRY(qdict_get_qlist(qobject_to(QDict, resource->value),
                                            "devices"), device) {
            if (g_str_equal(qdict_get_str(qobject_to(QDict, device->value),
                                          "device"), id)) {
                return true;
            }
        }
    }
    return false;
}

bool nic_is_attached(TestNic *nic)
{
    QDict *response = qtest_qmp(nic->m->qts, "{'execute': 'query-idletime'}");
    bool attached = shows(response, nic->id);

    qobject_unref(response);
    return attached;
}

void nic_attach(TestNic *nic, const char *class)
{
    machine_ok(nic->m, "idletime-attach", "{'device': %s, 'resource': '"
               RESOURCE "', 'class': %s}", nic->id, class);
    nic_settle(nic->m);
}

void nic_detach(TestNic *nic)
{
    machine_ok(nic->m, "idletime-detach", "{'device': %s}", nic->id);
    nic_settle(nic->m);
}

void nic_await_detached(TestNic *nic)
{
    QDict *event = qtest_qmp_eventwait_ref(nic->m->qts, "IDLETIME_DETACHED");

    g_assert_cmpstr(qdict_get_str(qdict_get_qdict(event, "data"), "device"),
                    ==, nic->id);
    qobject_unref(event);
    g_assert_false(nic_is_attached(nic));
}

/* ---- migration */

static void migrate_to_file(TestMachine *m, const char *uri)
{
    QDict *info;
    bool finished = false;

    machine_ok(m, "migrate", "{'uri': %s}", uri);
    while (!finished) {
        info = qtest_qmp_assert_success_ref(m->qts,
                                            "{'execute': 'query-migrate'}");
        g_assert_cmpstr(qdict_get_try_str(info, "status"), !=, "failed");
        finished = g_strcmp0(qdict_get_try_str(info, "status"),
                             "completed") == 0;
        qobject_unref(info);
        g_usleep(1000);
    }
}

void nic_move(TestNic *from, TestNic *to)
{
    g_autofree char *uri = g_strdup_printf("file:%s/state", from->m->dir);

    migrate_to_file(from->m, uri);
    machine_args(to->m, "-incoming %s", uri);
    machine_start_moved(to->m, from->m);
    nic_adopt(to, from);
    nic_settle(to->m);
}

/* ---- a stock device beside an attached one */

/* struct virtio_pci_common_cfg: le16 queue_notify_data, le16 queue_reset */
#define QUEUE_RESET     58

void nic_reset_queue(TestNic *nic, uint16_t index)
{
    QVirtioPCIDevice *pci = nic->pci;

    pci->vdev.bus->queue_select(&pci->vdev, index);
    qpci_io_writew(pci->pdev, pci->bar,
                   pci->common_cfg_offset + QUEUE_RESET, 1);
    nic_settle(nic->m);
}

void nic_step(TestMachine *m, int64_t us)
{
    machine_step_us(m, us);
    nic_settle(m);
}

TestMachine *nic_stock_pair(const char *options, TestNic **fg, TestNic **vm)
{
    TestMachine *m = machine_new();

    nic_resource(m, LONG_INTERVAL);
    *fg = machine_nic(m, "fg", "idletime=" RESOURCE);
    *vm = machine_nic(m, "vm", options);
    machine_start(m);
    nic_init(*fg);
    nic_init(*vm);
    return m;
}

void nic_pair_done(TestMachine *m, TestNic *fg, TestNic *vm)
{
    nic_free(fg);
    nic_free(vm);
    machine_free(m);
}

void nic_marked(TestNic *nic, uint32_t number)
{
    nic_send(nic, (TestPacket) { .dscp = DSCP_LE, .number = number });
}

void nic_plain(TestNic *nic, uint32_t number)
{
    nic_send(nic, (TestPacket) { .port = 2000, .number = number });
}

void nic_send_some(TestNic *fg, TestNic *vm)
{
    nic_plain(fg, 0);
    for (int i = 1; i <= NIC_HELD; i++) {
        nic_marked(vm, i);
    }
}

void nic_hold_some(TestNic *fg, TestNic *vm)
{
    nic_send_some(fg, vm);
    assert_none_left(vm);
    g_assert_cmpint(nic_number(vm, "held"), >=, 1);
}
