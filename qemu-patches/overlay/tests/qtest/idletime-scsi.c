/*
 * Idletime machine tests: commands of SCSI disks.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "scsi/constants.h"

/* CDB and sense data have their standard sizes. */
#define VIRTIO_SCSI_CDB_SIZE    32
#define VIRTIO_SCSI_SENSE_SIZE  96
#include "standard-headers/linux/virtio_scsi.h"

#define WAIT_US             (15 * G_USEC_PER_SEC)
#define POLL_US             500
#define UNWRITTEN           0xff
#define PRIORITY_LOWEST     15

QEMU_BUILD_BUG_ON(sizeof(struct virtio_scsi_cmd_req) != SCSI_HEADER_BYTES);
QEMU_BUILD_BUG_ON(sizeof(struct virtio_scsi_cmd_resp) != SCSI_RESPONSE_BYTES);

bool disks_are_scsi(void)
{
    return g_strcmp0(g_getenv(DISK_VARIABLE), "scsi") == 0;
}

/* ---- the devices */

static bool is_of_disk(const char *option)
{
    static const char *const name[] = {
        "idletime", "rerror", "werror", "logical_block_size",
        "physical_block_size", "share-rw", "write-cache", "dpofua",
    };

    for (unsigned i = 0; i < ARRAY_SIZE(name); i++) {
        if (g_str_has_prefix(option, name[i])) {
            return true;
        }
    }
    return false;
}

/* What virtio-blk calls otherwise. */
static const char *renamed(const char *option)
{
    static const char *const name[][2] = {
        { "num-queues=", "num_queues=" },
        { "queue-size=", "virtqueue_size=" },
        { "seg-max-adjust=", "seg_max_adjust=" },
    };
    static char text[64];

    for (unsigned i = 0; i < ARRAY_SIZE(name); i++) {
        if (g_str_has_prefix(option, name[i][0])) {
            snprintf(text, sizeof(text), "%s%s", name[i][1],
                     option + strlen(name[i][0]));
            return text;
        }
    }
    return option;
}

static char *options_of(const char *options, bool of_disk)
{
    g_auto(GStrv) option = g_strsplit(options, ",", 0);
    GString *text = g_string_new("");

    for (unsigned i = 0; option[i]; i++) {
        if (*option[i] && is_of_disk(option[i]) == of_disk) {
            g_string_append_printf(text, ",%s", renamed(option[i]));
        }
    }
    return g_string_free(text, false);
}

char *scsi_controller_options(const char *options)
{
    return options_of(options, false);
}

char *scsi_disk_options(const char *options)
{
    return options_of(options, true);
}

void scsi_ready(TestDisk *d)
{
    const uint8_t cdb[6] = { TEST_UNIT_READY };

    while (request_wait(scsi_submit(d, 0, cdb, sizeof(cdb), 0, NULL, 0,
                                    false)) != VIRTIO_BLK_S_OK) {
        continue;
    }
    g_ptr_array_set_size(d->requests, 0);
    d->completed = 0;
}

/* ---- commands */

uint64_t scsi_header(TestDisk *d, uint64_t tag, const uint8_t *cdb,
                     size_t cdb_size, uint8_t priority,
                     const void *data, size_t size)
{
    struct virtio_scsi_cmd_req header = {
        .lun = { 1, 0, 0, 0 },
        .tag = cpu_to_le64(tag),
        .prio = priority,
    };
    uint64_t addr = guest_alloc(&d->m->alloc, SCSI_HEADER_BYTES + size +
                                              SCSI_RESPONSE_BYTES);

    memcpy(header.cdb, cdb, cdb_size);
    qtest_bufwrite(d->m->qts, addr, &header, sizeof(header));
    if (data) {
        qtest_bufwrite(d->m->qts, addr + SCSI_HEADER_BYTES, data, size);
    }
    qtest_memset(d->m->qts, addr + SCSI_HEADER_BYTES + size, UNWRITTEN,
                 SCSI_RESPONSE_BYTES);
    return addr;
}

TestRequest *scsi_submit(TestDisk *d, unsigned queue, const uint8_t *cdb,
                         size_t cdb_size, uint8_t priority, const void *data,
                         size_t size, bool written)
{
    static uint64_t tag;
    uint64_t addr = scsi_header(d, ++tag, cdb, cdb_size, priority, data, size);
    const TestPart header = { addr, SCSI_HEADER_BYTES, false };
    const TestPart body = { addr + SCSI_HEADER_BYTES, size, written };
    const TestPart response = { addr + SCSI_HEADER_BYTES + size,
                                SCSI_RESPONSE_BYTES, true };
    const TestPart in[] = { header, response, body };
    const TestPart out[] = { header, body, response };
    TestRequest *r = disk_submit_parts(d, queue, written || !size ? in : out,
                                       size ? 3 : 2);

    r->size = size;
    r->tag = tag;
    return r;
}

static TestRequest *submit_range(TestDisk *d, unsigned queue, uint32_t type,
                                 uint8_t priority, uint64_t sector,
                                 const void *data, size_t size)
{
    bool is_read = type == VIRTIO_BLK_T_IN;
    uint8_t cdb[10] = { is_read ? READ_10 : WRITE_10 };

    stl_be_p(&cdb[2], sector);
    stw_be_p(&cdb[7], size / SECTOR_BYTES);
    return scsi_submit(d, queue, cdb, sizeof(cdb), priority, data, size,
                       is_read);
}

typedef struct virtio_blk_discard_write_zeroes BlkRange;

static TestRequest *submit_unmap(TestDisk *d, unsigned queue,
                                 uint8_t priority, const BlkRange *range)
{
    uint8_t list[24] = { 0, 22, 0, 16 };
    uint8_t cdb[10] = { UNMAP, 0, 0, 0, 0, 0, 0, 0, sizeof(list) };

    stq_be_p(&list[8], le64_to_cpu(range->sector));
    stl_be_p(&list[16], le32_to_cpu(range->num_sectors));
    return scsi_submit(d, queue, cdb, sizeof(cdb), priority, list,
                       sizeof(list), false);
}

static TestRequest *submit_write_zeroes(TestDisk *d, unsigned queue,
                                        uint8_t priority,
                                        const BlkRange *range)
{
    const uint8_t zeroes[SECTOR_BYTES] = {};
    uint8_t cdb[16] = { WRITE_SAME_16 };

    stq_be_p(&cdb[2], le64_to_cpu(range->sector));
    stl_be_p(&cdb[10], le32_to_cpu(range->num_sectors));
    return scsi_submit(d, queue, cdb, sizeof(cdb), priority, zeroes,
                       sizeof(zeroes), false);
}

TestRequest *scsi_submit_as(TestDisk *d, unsigned queue, uint32_t type,
                            uint32_t ioprio, uint64_t sector,
                            const void *data, size_t size)
{
    const uint8_t flush[10] = { SYNCHRONIZE_CACHE };
    const uint8_t unknown[6] = { 0xdf };
    const uint8_t inquiry[6] = { INQUIRY, 0, 0, 0, size };
    uint8_t priority = ioprio >> 13 == IOPRIO_IDLE >> 13 ? PRIORITY_LOWEST : 0;

    switch (type) {
    case VIRTIO_BLK_T_IN:
    case VIRTIO_BLK_T_OUT:
        return submit_range(d, queue, type, priority, sector, data, size);
    case VIRTIO_BLK_T_FLUSH:
        return scsi_submit(d, queue, flush, sizeof(flush), priority, NULL, 0,
                           false);
    case VIRTIO_BLK_T_GET_ID:
        return scsi_submit(d, queue, inquiry, sizeof(inquiry), priority, NULL,
                           size, true);
    case VIRTIO_BLK_T_DISCARD:
        return submit_unmap(d, queue, priority, data);
    case VIRTIO_BLK_T_WRITE_ZEROES:
        return submit_write_zeroes(d, queue, priority, data);
    default:
        return scsi_submit(d, queue, unknown, sizeof(unknown), priority, NULL,
                           0, false);
    }
}

/* ---- their ends */

static uint8_t response_byte(TestRequest *r, size_t offset)
{
    g_assert_true(request_done(r));
    return qtest_readb(r->disk->m->qts,
                       r->addr + SCSI_HEADER_BYTES + r->size + offset);
}

uint8_t scsi_response(TestRequest *r)
{
    return response_byte(r, offsetof(struct virtio_scsi_cmd_resp, response));
}

uint8_t scsi_status(TestRequest *r)
{
    return response_byte(r, offsetof(struct virtio_scsi_cmd_resp, status));
}

/* Fixed format. */
uint8_t scsi_sense_key(TestRequest *r)
{
    return response_byte(r, offsetof(struct virtio_scsi_cmd_resp, sense) + 2) &
           0xf;
}

void scsi_assert_response(TestRequest *r, uint8_t response)
{
    request_wait(r);
    g_assert_cmpint(scsi_response(r), ==, response);
}

bool scsi_was_ended(TestRequest *r)
{
    uint8_t response = scsi_response(r);

    return response == VIRTIO_SCSI_S_ABORTED ||
           response == VIRTIO_SCSI_S_RESET ||
           (response == VIRTIO_SCSI_S_OK &&
            scsi_status(r) == CHECK_CONDITION &&
            scsi_sense_key(r) == UNIT_ATTENTION);
}

/* ---- task management */

#define TMF_PARTS   2

uint64_t scsi_tmf_send(TestDisk *d, uint32_t subtype, uint64_t tag)
{
    struct virtio_scsi_ctrl_tmf_req tmf = {
        .type = cpu_to_le32(VIRTIO_SCSI_T_TMF),
        .subtype = cpu_to_le32(subtype),
        .lun = { 1, 0, 0, 0 },
        .tag = cpu_to_le64(tag),
    };
    uint64_t addr;

    if (ring_room(&d->ctrl) < TMF_PARTS) {
        return 0;
    }
    addr = guest_alloc(&d->m->alloc, sizeof(tmf) + 1);
    qtest_bufwrite(d->m->qts, addr, &tmf, sizeof(tmf));
    qtest_writeb(d->m->qts, addr + sizeof(tmf), UNWRITTEN);
    ring_send(&d->ctrl, (TestPart[]) { { addr, sizeof(tmf), false },
                                       { addr + sizeof(tmf), 1, true } },
              TMF_PARTS);
    return addr + sizeof(tmf);
}

uint8_t scsi_tmf(TestDisk *d, uint32_t subtype, uint64_t tag)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;
    uint64_t response = scsi_tmf_send(d, subtype, tag);
    uint32_t id;

    g_assert_cmphex(response, !=, 0);
    while (!ring_get(&d->ctrl, &id)) {
        if (g_get_monotonic_time() > until) {
            g_error("task management of %s does not complete", d->id);
        }
        g_usleep(POLL_US);
    }
    return qtest_readb(d->m->qts, response);
}
