/*
 * Fuzz target: the packet classifier and the cut, on packets of any length
 * and any split.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Input: size of the virtio-net header (10, 12 or 20) and byte order, split,
 * limit; then the packet, that header first.  Each part is memory of its own
 * size, so that the address sanitizer sees the first byte too many.
 */
#include "qemu/osdep.h"
#include "idletime/packet/cut.h"

#define CHECK(condition) do { if (!(condition)) { \
    fprintf(stderr, "broken: %s\n", #condition); abort(); } } while (0)

typedef struct __attribute__((packed)) Head {
    uint8_t vnet;
    uint16_t split;
    uint16_t limit;
    uint16_t more;              /* payload behind the input's bytes */
} Head;

static const size_t vnet_bytes[] = { 10, 12, 20 };

static void check_packet(const IdletimePacket *p, size_t size, size_t vnet)
{
    size_t bytes = size - MIN(size, vnet);

    CHECK(p->bytes == bytes);
    CHECK(p->kind <= IDLETIME_PACKET_DATA);
    CHECK(p->dscp < 64);
    CHECK(p->payload_offset <= IDLETIME_PACKET_HEADERS);
    CHECK(p->payload_offset <= bytes);
    CHECK(p->kind == IDLETIME_PACKET_UNKNOWN || p->version == 4 ||
          p->version == 6);
    CHECK(!p->payload_offset || p->payload_offset > p->transport_offset);
    CHECK(!p->transport_offset || p->transport_offset > p->ip_offset);
}

/* All of the payload once, in order; no piece over the limit but by need. */
static void check_pieces(IdletimeCut *cut, size_t limit, size_t size)
{
    uint32_t next = cut->header_bytes;
    IdletimePiece piece;

    while (idletime_cut_left(cut)) {
        idletime_cut_next(cut, limit, &piece);
        CHECK(piece.payload_offset == next);
        CHECK(piece.payload_bytes > 0);
        CHECK(piece.header_bytes == cut->header_bytes);
        CHECK(piece.payload_bytes <= cut->segment_bytes ||
              cut->kind != IDLETIME_CUT_SEGMENTS ||
              piece.header_bytes - cut->vnet_bytes + piece.payload_bytes <=
                  limit);
        CHECK(cut->kind != IDLETIME_CUT_WHOLE || !piece.header[1]);
        CHECK(cut->kind != IDLETIME_CUT_AS_ASKED ||
              !memcmp(piece.header, cut->header, cut->vnet_bytes));
        next += piece.payload_bytes;
    }
    CHECK(next == size);
}

static void *copy(const uint8_t *data, size_t size, size_t more)
{
    uint8_t *memory = calloc(1, size + more ?: 1);

    memcpy(memory, data, size);
    return memory;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Head head;
    IdletimePacket packet;
    IdletimeCut cut;
    size_t vnet, first;

    if (size < sizeof(head)) {
        return 0;
    }
    memcpy(&head, data, sizeof(head));
    data += sizeof(head);
    size -= sizeof(head);
    vnet = vnet_bytes[head.vnet % 3];
    first = MIN(head.split, size);

    struct iovec iov[] = {
        { copy(data, first, 0), first },
        { NULL, 0 },
        { copy(data + first, size - first, head.more),
          size - first + head.more },
    };
    size += head.more;
    idletime_packet_parse(iov, 3, vnet, &packet);
    check_packet(&packet, size, vnet);
    if (idletime_cut_begin(&cut, iov, 3, vnet, head.vnet & 128, &packet)) {
        check_pieces(&cut, head.limit, size);
    }
    free(iov[0].iov_base);
    free(iov[2].iov_base);
    return 0;
}
