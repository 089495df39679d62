/*
 * Large packets as a guest hands them over: virtio-net header, headers, a
 * payload that is to be segmented, checksums as far as guests fill them in.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_TEST_LARGE_H
#define IDLETIME_TEST_LARGE_H

#include "frames.h"
#include <netinet/in.h>

#define VNET 12
#define IPV4 0x0800
#define IPV6 0x86dd

/* struct virtio_net_hdr */
#define GSO_TCPV4 1
#define GSO_UDP 3
#define GSO_TCPV6 4
#define GSO_UDP_L4 5
#define GSO_ECN 0x80

typedef struct Case {
    const char *name;
    bool v6, udp, big_endian;
    uint8_t gso_type, flags;
    uint16_t segment;
    uint32_t payload;
    size_t limit;
} Case;

static inline uint16_t get16(const uint8_t *p)
{
    return p[0] << 8 | p[1];
}

static inline uint32_t sum16(const uint8_t *p, size_t size, uint32_t sum)
{
    for (size_t i = 0; i + 1 < size; i += 2) {
        sum += get16(p + i);
    }
    if (size % 2) {
        sum += p[size - 1] << 8;
    }
    while (sum >> 16) {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    return sum;
}

/* Sum of the pseudo header, as a guest puts it into the checksum field. */
static inline uint32_t pseudo(const uint8_t *ip, bool v6, uint8_t protocol,
                       size_t length)
{
    uint32_t sum = v6 ? sum16(ip + 8, 32, 0) : sum16(ip + 12, 8, 0);

    sum += protocol + (length >> 16) + (length & 0xffff);
    while (sum >> 16) {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    return sum;
}

static inline void vnet16(Frame *f, size_t at, uint16_t v, bool big_endian)
{
    f->byte[at + !big_endian] = v >> 8;
    f->byte[at + big_endian] = v;
}

static inline size_t ip_bytes(const Case *c)
{
    return c->v6 ? 40 : 20;
}

static inline size_t transport_bytes(const Case *c)
{
    return c->udp ? 8 : 32;
}

static inline void put_vnet(Frame *f, const Case *c)
{
    size_t transport = 14 + ip_bytes(c);

    frame_zero(f, VNET);
    f->byte[0] = 1;
    f->byte[1] = c->gso_type;
    /* As Linux counts, with what of the payload lies behind the headers. */
    vnet16(f, 2, transport + transport_bytes(c) + 1400, c->big_endian);
    vnet16(f, 4, c->segment, c->big_endian);
    vnet16(f, 6, transport, c->big_endian);
    vnet16(f, 8, c->udp ? 6 : 16, c->big_endian);
}

static inline Frame *make(const Case *c)
{
    uint8_t protocol = c->udp ? IPPROTO_UDP : IPPROTO_TCP;
    size_t rest = transport_bytes(c) + c->payload;
    Frame *f = g_new0(Frame, 1);
    size_t ip, transport;
    uint32_t sum;

    put_vnet(f, c);
    frame_ethernet(f, c->v6 ? IPV6 : IPV4);
    ip = f->size;
    if (c->v6) {
        frame_ipv6(f, 1, protocol, rest);
    } else {
        frame_ipv4(f, 1, protocol, 0, rest);
    }
    transport = f->size;
    if (c->udp) {
        frame_udp(f, 1000, 9, c->payload);
    } else {
        frame_tcp(f, 1000, 9, 0xfffffff0, c->flags);
    }
    sum = pseudo(f->byte + ip, c->v6, protocol, rest);
    f->byte[transport + (c->udp ? 6 : 16)] = sum >> 8;
    f->byte[transport + (c->udp ? 7 : 17)] = sum;
    for (uint32_t i = 0; i < c->payload; i++) {
        f->byte[f->size++] = i * 7 + (i >> 8);
    }
    return f;
}

static inline bool begin(IdletimeCut *cut, const Frame *f, bool big_endian)
{
    struct iovec iov[] = { { (void *)f->byte, 30 },
                           { (void *)(f->byte + 30), f->size - 30 } };
    IdletimePacket packet;

    idletime_packet_parse(iov, 2, VNET, &packet);
    return idletime_cut_begin(cut, iov, 2, VNET, big_endian, &packet);
}

#endif
