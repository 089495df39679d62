/*
 * Idletime packet: what class guest reads from a packet.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pure: no clock, lock, allocation or I/O.  The same file is compiled into
 * QEMU, the unit tests and the fuzzer.
 */
#ifndef IDLETIME_PACKET_H
#define IDLETIME_PACKET_H

#include <sys/uio.h>

/*
 * Bytes that are looked at: Ethernet 14, tags 4 x 4, IPv6 40, extensions 64,
 * TCP 60; and some air.
 */
#define IDLETIME_PACKET_HEADERS 256

/* What a packet is, as far as holding it matters. */
typedef enum IdletimePacketKind {
    IDLETIME_PACKET_UNKNOWN,    /* not IP, or not understood: never held */
    IDLETIME_PACKET_CONTROL,    /* DHCP, neighbour discovery: never held */
    IDLETIME_PACKET_BARE_ACK,   /* TCP without payload */
    IDLETIME_PACKET_DATA,       /* other IPv4 or IPv6 */
} IdletimePacketKind;

/*
 * Offsets are from the first byte after the virtio-net header; 0 where a
 * part is absent or not understood.
 */
typedef struct IdletimePacket {
    uint8_t kind;               /* IdletimePacketKind */
    uint8_t dscp;               /* of DATA and BARE_ACK, 0 to 63 */
    uint8_t version;            /* 4 or 6 */
    uint8_t protocol;           /* IPPROTO_TCP, ... of the last header seen */
    uint16_t ip_offset;
    uint16_t transport_offset;
    uint16_t payload_offset;    /* of TCP and UDP */
    uint32_t flow;              /* equal for packets of one flow */
    uint32_t bytes;             /* from the Ethernet header on */
} IdletimePacket;

/**
 * idletime_packet_parse: classify a packet.
 * @iov, @count: as the guest gave it; headers may be split anywhere
 * @skip: bytes of the virtio-net header in front
 *
 * Never fails: what is malformed or unknown is IDLETIME_PACKET_UNKNOWN.
 * Reads each byte once, so that a guest that changes it meanwhile gains
 * nothing.  Context: any thread.
 */
void idletime_packet_parse(const struct iovec *iov, unsigned count,
                           size_t skip, IdletimePacket *packet);

/**
 * idletime_dscp_parse: "1,8,10-12" sets those bits of @set.
 * Returns false where it is no list of code points from 0 to 63.
 */
bool idletime_dscp_parse(const char *text, uint64_t *set);

#endif
