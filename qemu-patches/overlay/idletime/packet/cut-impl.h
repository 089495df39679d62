/*
 * Idletime cut: what its files share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_CUT_IMPL_H
#define IDLETIME_CUT_IMPL_H

#include "idletime/packet/cut.h"

/* struct virtio_net_hdr */
#define VNET_FLAGS              0
#define VNET_GSO_TYPE           1
#define VNET_GSO_SIZE           4
#define VNET_CSUM_START         6
#define VNET_BYTES              10
#define FLAG_NEEDS_CSUM         1
#define GSO_NONE                0
#define GSO_TCPV4               1
#define GSO_UDP                 3
#define GSO_TCPV6               4
#define GSO_UDP_L4              5
#define GSO_ECN                 0x80

#define IPV4_LENGTH             2
#define IPV4_ID                 4
#define IPV4_FRAGMENT           6
#define IPV4_CHECKSUM           10
#define IPV6_LENGTH             4
#define IPV6_NEXT               6
#define IPV6_BYTES              40
#define UDP_LENGTH              4
#define UDP_CHECKSUM            6
#define UDP_BYTES               8

static inline uint16_t idletime_get16(const uint8_t *p)
{
    return p[0] << 8 | p[1];
}

static inline void idletime_put16(uint8_t *p, uint16_t v)
{
    p[0] = v >> 8;
    p[1] = v;
}

/* The ones' complement sum of RFC 1071, of what was added up in 32 bits. */
static inline uint16_t idletime_fold(uint32_t sum)
{
    sum = (sum >> 16) + (sum & 0xffff);
    return (sum >> 16) + (sum & 0xffff);
}

/* The checksum of an IPv4 header of @bytes. */
static inline void idletime_ipv4_checksum(uint8_t *ip, size_t bytes)
{
    uint32_t sum = 0;

    idletime_put16(ip + IPV4_CHECKSUM, 0);
    for (size_t i = 0; i < bytes; i += 2) {
        sum += idletime_get16(ip + i);
    }
    idletime_put16(ip + IPV4_CHECKSUM, ~idletime_fold(sum));
}

/**
 * idletime_fragment_begin: @cut has its headers; can it go in fragments?
 * Completes the datagram's checksum, as no host can do that in fragments.
 */
bool idletime_fragment_begin(IdletimeCut *cut, const struct iovec *iov,
                             unsigned count, const IdletimePacket *packet);
/** idletime_fragment_payload, _headers: of the next fragment, in bytes. */
uint32_t idletime_fragment_payload(const IdletimeCut *cut);
uint16_t idletime_fragment_headers(const IdletimeCut *cut);
/** idletime_fragment_write: the headers of the next, of @payload bytes. */
void idletime_fragment_write(const IdletimeCut *cut, uint32_t payload,
                             uint8_t *header);

#endif
