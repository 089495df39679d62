/*
 * Packets for the tests of the classifier and the cut.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_FRAMES_H
#define IDLETIME_FRAMES_H

#include "qemu/osdep.h"
#include "idletime/packet/cut.h"

#define FRAME_MAX 70000

/* A frame that is put together from its end: add_*() appends. */
typedef struct Frame {
    uint8_t byte[FRAME_MAX];
    size_t size;
} Frame;

static inline void frame_bytes(Frame *f, const void *data, size_t size)
{
    memcpy(f->byte + f->size, data, size);
    f->size += size;
}

static inline void frame16(Frame *f, uint16_t v)
{
    f->byte[f->size++] = v >> 8;
    f->byte[f->size++] = v;
}

static inline void frame_zero(Frame *f, size_t size)
{
    memset(f->byte + f->size, 0, size);
    f->size += size;
}

static inline void frame_ethernet(Frame *f, uint16_t type)
{
    frame_bytes(f, "\x52\x54\0\0\0\1\x52\x54\0\0\0\2", 12);
    frame16(f, type);
}

/* @rest: bytes behind the IPv4 header */
static inline void frame_ipv4(Frame *f, uint8_t dscp, uint8_t protocol,
                              uint16_t fragment, size_t rest)
{
    frame16(f, 0x4500 | dscp << 2);
    frame16(f, 20 + rest);
    frame16(f, 0x1234);
    frame16(f, fragment);
    frame16(f, 64 << 8 | protocol);
    frame16(f, 0);
    frame_bytes(f, "\x0a\0\0\1\x0a\0\0\2", 8);
}

static inline void frame_ipv6(Frame *f, uint8_t dscp, uint8_t next,
                              size_t rest)
{
    frame16(f, 0x6000 | dscp << 6);
    frame16(f, 0xabcd);
    frame16(f, rest);
    frame16(f, next << 8 | 64);
    frame_bytes(f, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
    frame_bytes(f, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 16);
}

static inline void frame_udp(Frame *f, uint16_t from, uint16_t to, size_t rest)
{
    frame16(f, from);
    frame16(f, to);
    frame16(f, 8 + rest);
    frame16(f, 0);
}

#define TCP_ACK 0x10
#define TCP_PSH 0x08
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_CWR_FLAG 0x80

/* With 12 bytes of options, as a timestamp. */
static inline void frame_tcp(Frame *f, uint16_t from, uint16_t to,
                             uint32_t sequence, uint8_t flags)
{
    frame16(f, from);
    frame16(f, to);
    frame16(f, sequence >> 16);
    frame16(f, sequence);
    frame_zero(f, 4);
    frame16(f, 8 << 12 | flags);
    frame_zero(f, 6);
    frame_zero(f, 12);
}

static inline IdletimePacket frame_parse(const Frame *f)
{
    struct iovec iov = { (void *)f->byte, f->size };
    IdletimePacket packet;

    idletime_packet_parse(&iov, 1, 0, &packet);
    return packet;
}

#endif
