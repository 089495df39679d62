/*
 * Idletime cut: a packet under headers of our own, a large one in pieces that
 * are packets of their own.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A guest with segmentation offload (TSO, USO) hands out up to 64 KiB as one
 * packet; a link of 100 Mbit/s is busy with that for 5.2 ms.  A cut takes some
 * of its segments at a time, each time with a copy of the headers.  What asks
 * for segmentation in a way that we do not understand leaves as one frame that
 * asks for none: links refuse that, as it is longer than they take.  A large
 * datagram that asks for IP fragments (UFO, which no Linux guest does since
 * 4.14) is not cut: the host makes the fragments.
 *
 * All of them, those of one piece too, have a copy of the virtio-net header:
 * another processor of the guest may write segments into its own between our
 * look and the host's.
 *
 * Pure: no clock, lock, allocation or I/O.
 */
#ifndef IDLETIME_CUT_H
#define IDLETIME_CUT_H

#include "idletime/packet/packet.h"

/* Copies of the virtio-net header (at most 20 bytes) and all behind it. */
#define IDLETIME_CUT_HEADERS    (20 + IDLETIME_PACKET_HEADERS)

typedef enum IdletimeCutKind {
    IDLETIME_CUT_SEGMENTS,      /* of TCP or UDP */
    IDLETIME_CUT_WHOLE,         /* one frame, that asks for no segmentation */
    IDLETIME_CUT_AS_ASKED,      /* one piece, as its virtio-net header says */
} IdletimeCutKind;

typedef struct IdletimeCut {
    uint8_t header[IDLETIME_CUT_HEADERS];
    uint16_t vnet_bytes;        /* of the virtio-net header */
    uint16_t header_bytes;      /* of all headers, that one included */
    uint16_t ip;                /* offsets into header */
    uint16_t transport;
    uint16_t segment_bytes;     /* payload of a segment */
    uint32_t payload_bytes;
    uint32_t done_bytes;        /* of the payload */
    uint8_t kind;               /* IdletimeCutKind */
    uint8_t version;
    uint8_t protocol;
    bool big_endian;            /* the virtio-net header is */
} IdletimeCut;

/* One piece: a header, and where in the packet its payload lies. */
typedef struct IdletimePiece {
    uint8_t header[IDLETIME_CUT_HEADERS];
    uint16_t header_bytes;
    uint32_t payload_offset;    /* from the start, virtio-net header included */
    uint32_t payload_bytes;
} IdletimePiece;

/**
 * idletime_cut_begin: prepare to send a packet.
 * @iov, @count, @vnet_bytes: as for idletime_packet_parse()
 * @packet: what that found
 *
 * Returns false where no byte is behind the virtio-net header, or that is none.
 */
bool idletime_cut_begin(IdletimeCut *cut, const struct iovec *iov,
                        unsigned count, size_t vnet_bytes, bool big_endian,
                        const IdletimePacket *packet);

/**
 * idletime_cut_next: the next piece of at most @limit bytes from the Ethernet
 * header on, but of one segment at least.
 * Call it while idletime_cut_left() is not 0.
 */
void idletime_cut_next(IdletimeCut *cut, size_t limit, IdletimePiece *piece);

/** idletime_cut_asks_for_segments: or for fragments: not one frame as it is. */
bool idletime_cut_asks_for_segments(const IdletimeCut *cut);

/** idletime_cut_size: bytes that this piece would have. */
size_t idletime_cut_size(const IdletimeCut *cut, size_t limit);

static inline uint32_t idletime_cut_left(const IdletimeCut *cut)
{
    return cut->payload_bytes - cut->done_bytes;
}

#endif
