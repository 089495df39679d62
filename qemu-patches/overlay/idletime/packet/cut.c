/*
 * Idletime cut: a packet under headers of our own, a large one in pieces that
 * are packets of their own.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What differs between the pieces (RFC 791, 8200, 9293, 768; Linux does the
 * same in tcp_gso_segment() and __udp_gso_segment()):
 *
 *   virtio-net  segmentation is off in a piece of one segment; congestion
 *               window reduced only in the first; of headers no more than
 *               there are
 *   IPv4        length, identification, header checksum
 *   IPv6        payload length
 *   TCP         sequence number; FIN and PSH only in the last piece, CWR only
 *               in the first
 *   UDP         length
 *   both        the checksum field holds the sum of the pseudo header, whose
 *               length part is exchanged; the host completes it
 */
#include "qemu/osdep.h"
#include "idletime/packet/cut.h"
#include <netinet/in.h>

/* struct virtio_net_hdr */
#define VNET_FLAGS              0
#define VNET_GSO_TYPE           1
#define VNET_HDR_LEN            2
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
/* With less payload a segment would be mostly headers on the wire. */
#define SEGMENT_LEAST           64

#define IPV4_LENGTH             2
#define IPV4_ID                 4
#define IPV4_CHECKSUM           10
#define IPV6_LENGTH             4
#define IPV6_BYTES              40
#define UDP_LENGTH              4
#define UDP_CHECKSUM            6
#define TCP_SEQUENCE            4
#define TCP_FLAGS               13
#define TCP_CHECKSUM            16
#define TCP_FIN_PSH             0x09
#define TCP_CWR                 0x80

static uint16_t get16(const uint8_t *p)
{
    return p[0] << 8 | p[1];
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = v >> 8;
    p[1] = v;
}

/* The ones' complement sum of RFC 1071, of what was added up in 32 bits. */
static uint16_t fold(uint32_t sum)
{
    sum = (sum >> 16) + (sum & 0xffff);
    return (sum >> 16) + (sum & 0xffff);
}

/* The checksum of an IPv4 header of @bytes. */
static void ipv4_checksum(uint8_t *ip, size_t bytes)
{
    uint32_t sum = 0;

    put16(ip + IPV4_CHECKSUM, 0);
    for (size_t i = 0; i < bytes; i += 2) {
        sum += get16(ip + i);
    }
    put16(ip + IPV4_CHECKSUM, ~fold(sum));
}

static void add32(uint8_t *p, uint32_t n)
{
    uint32_t v = (uint32_t)get16(p) << 16 | get16(p + 2);

    v += n;
    put16(p, v >> 16);
    put16(p + 2, v);
}

static uint16_t get_vnet(const uint8_t *p, bool big_endian)
{
    return big_endian ? get16(p) : p[1] << 8 | p[0];
}

static void put_vnet(uint8_t *p, uint16_t v, bool big_endian)
{
    put16(p, big_endian ? v : v << 8 | v >> 8);
}

static void copy_out(uint8_t *to, size_t bytes, const struct iovec *iov,
                     unsigned count)
{
    for (unsigned i = 0; i < count && bytes; i++) {
        size_t take = MIN(bytes, iov[i].iov_len);

        if (take) {
            memcpy(to, iov[i].iov_base, take);
        }
        to += take;
        bytes -= take;
    }
}

/* Does the segmentation that is asked for fit the headers? */
static bool type_fits(const IdletimeCut *cut)
{
    switch (cut->header[VNET_GSO_TYPE] & ~GSO_ECN) {
    case GSO_TCPV4:
        return cut->version == 4 && cut->protocol == IPPROTO_TCP;
    case GSO_TCPV6:
        return cut->version == 6 && cut->protocol == IPPROTO_TCP;
    case GSO_UDP_L4:
        return cut->protocol == IPPROTO_UDP;
    default:
        return false;
    }
}

/* The IP packet's length by its header, in bytes. */
static size_t ip_length(const IdletimeCut *cut)
{
    const uint8_t *ip = cut->header + cut->ip;

    return cut->version == 4 ? get16(ip + IPV4_LENGTH) :
           (size_t)get16(ip + IPV6_LENGTH) + IPV6_BYTES;
}

/* Do its headers agree with each other, so that segments can be made? */
static bool can_segment(const IdletimeCut *cut, const IdletimePacket *packet)
{
    return type_fits(cut) && (cut->header[VNET_FLAGS] & FLAG_NEEDS_CSUM) &&
           get_vnet(cut->header + VNET_CSUM_START, cut->big_endian) ==
               packet->transport_offset &&
           ip_length(cut) == packet->bytes - packet->ip_offset;
}

/* Copies the headers; false where they are not understood. */
static bool take_headers(IdletimeCut *cut, const struct iovec *iov,
                         unsigned count, const IdletimePacket *packet)
{
    size_t header_bytes = cut->vnet_bytes + packet->payload_offset;

    if (!packet->payload_offset || packet->bytes <= packet->payload_offset ||
        header_bytes > 20 + IDLETIME_PACKET_HEADERS) {
        return false;
    }
    cut->header_bytes = header_bytes;
    cut->ip = cut->vnet_bytes + packet->ip_offset;
    cut->transport = cut->vnet_bytes + packet->transport_offset;
    cut->payload_bytes = packet->bytes - packet->payload_offset;
    cut->version = packet->version;
    cut->protocol = packet->protocol;
    /* A second look at what the guest may have changed meanwhile. */
    copy_out(cut->header, header_bytes, iov, count);
    cut->segment_bytes = get_vnet(cut->header + VNET_GSO_SIZE,
                                  cut->big_endian);
    return cut->segment_bytes != 0;
}

/* All behind the virtio-net header is payload. */
static void leave_whole(IdletimeCut *cut, const IdletimePacket *packet,
                        IdletimeCutKind kind)
{
    cut->kind = kind;
    cut->header_bytes = cut->vnet_bytes;
    cut->payload_bytes = packet->bytes;
}

bool idletime_cut_asks_for_segments(const IdletimeCut *cut)
{
    return cut->header[VNET_GSO_TYPE] != GSO_NONE;
}

/* One frame, or a datagram of which the host makes fragments. */
static bool is_as_asked(const IdletimeCut *cut)
{
    return !idletime_cut_asks_for_segments(cut) ||
           ((cut->header[VNET_GSO_TYPE] & ~GSO_ECN) == GSO_UDP &&
            get_vnet(cut->header + VNET_GSO_SIZE, cut->big_endian) >=
                SEGMENT_LEAST);
}

bool idletime_cut_begin(IdletimeCut *cut, const struct iovec *iov,
                        unsigned count, size_t vnet_bytes, bool big_endian,
                        const IdletimePacket *packet)
{
    if (vnet_bytes < VNET_BYTES || vnet_bytes > 20 || !packet->bytes) {
        return false;
    }
    *cut = (IdletimeCut) {
        .vnet_bytes = vnet_bytes,
        .big_endian = big_endian,
    };
    copy_out(cut->header, vnet_bytes, iov, count);
    if (is_as_asked(cut)) {
        leave_whole(cut, packet, IDLETIME_CUT_AS_ASKED);
    } else if (!take_headers(cut, iov, count, packet) ||
               !can_segment(cut, packet)) {
        leave_whole(cut, packet, IDLETIME_CUT_WHOLE);
    }
    return true;
}

/*
 * Payload of the next piece: all that is left, or whole segments, one at
 * least; a tiny one alone.
 */
static uint32_t piece_payload(const IdletimeCut *cut, size_t limit)
{
    size_t header = cut->header_bytes - cut->vnet_bytes;
    size_t room = limit > header ? limit - header : 0;
    size_t whole;

    if (cut->kind != IDLETIME_CUT_SEGMENTS) {
        return cut->payload_bytes;
    }
    if (cut->segment_bytes < SEGMENT_LEAST) {
        room = 0;
    }
    if (idletime_cut_left(cut) <= room) {
        return idletime_cut_left(cut);
    }
    whole = room - room % cut->segment_bytes;
    return MIN(MAX(whole, cut->segment_bytes), idletime_cut_left(cut));
}

size_t idletime_cut_size(const IdletimeCut *cut, size_t limit)
{
    return cut->header_bytes - cut->vnet_bytes + piece_payload(cut, limit);
}

/* The host is asked for nothing. */
static void write_plain(uint8_t *vnet)
{
    vnet[VNET_GSO_TYPE] = GSO_NONE;
    put16(vnet + VNET_GSO_SIZE, 0);
}

static void write_vnet(const IdletimeCut *cut, uint8_t *vnet, uint32_t payload)
{
    if (cut->done_bytes) {
        vnet[VNET_GSO_TYPE] &= ~GSO_ECN;
    }
    /* Guests count payload in; a host refuses more than a piece has. */
    put_vnet(vnet + VNET_HDR_LEN, cut->header_bytes - cut->vnet_bytes,
             cut->big_endian);
    if (payload <= cut->segment_bytes) {
        write_plain(vnet);
    }
}

static void write_ip(const IdletimeCut *cut, uint8_t *ip, uint32_t payload)
{
    size_t header = cut->transport - cut->ip;
    uint16_t length = cut->header_bytes - cut->ip + payload;

    if (cut->version == 6) {
        put16(ip + IPV6_LENGTH, length - IPV6_BYTES);
        return;
    }
    put16(ip + IPV4_LENGTH, length);
    put16(ip + IPV4_ID,
          get16(ip + IPV4_ID) + cut->done_bytes / cut->segment_bytes);
    ipv4_checksum(ip, header);
}

/* Exchange the length in the sum of the pseudo header. */
static void write_checksum(const IdletimeCut *cut, uint8_t *field,
                           uint32_t payload)
{
    uint32_t header = cut->header_bytes - cut->transport;
    uint32_t old = header + cut->payload_bytes;
    uint16_t taken = ~fold(old);

    put16(field, fold(get16(field) + taken + fold(header + payload)));
}

static void write_transport(const IdletimeCut *cut, uint8_t *transport,
                            uint32_t payload)
{
    if (cut->protocol == IPPROTO_UDP) {
        put16(transport + UDP_LENGTH,
              cut->header_bytes - cut->transport + payload);
        write_checksum(cut, transport + UDP_CHECKSUM, payload);
        return;
    }
    add32(transport + TCP_SEQUENCE, cut->done_bytes);
    if (cut->done_bytes) {
        transport[TCP_FLAGS] &= ~TCP_CWR;
    }
    if (payload < idletime_cut_left(cut)) {
        transport[TCP_FLAGS] &= ~TCP_FIN_PSH;
    }
    write_checksum(cut, transport + TCP_CHECKSUM, payload);
}

static void write_segment(const IdletimeCut *cut, uint8_t *header,
                          uint32_t payload)
{
    write_vnet(cut, header, payload);
    write_ip(cut, header + cut->ip, payload);
    write_transport(cut, header + cut->transport, payload);
}

void idletime_cut_next(IdletimeCut *cut, size_t limit, IdletimePiece *piece)
{
    uint32_t payload = piece_payload(cut, limit);

    memcpy(piece->header, cut->header, cut->header_bytes);
    piece->header_bytes = cut->header_bytes;
    piece->payload_offset = cut->header_bytes + cut->done_bytes;
    piece->payload_bytes = payload;
    if (cut->kind == IDLETIME_CUT_SEGMENTS) {
        write_segment(cut, piece->header, payload);
    } else if (cut->kind == IDLETIME_CUT_WHOLE) {
        write_plain(piece->header);
    }
    cut->done_bytes += payload;
}
