/*
 * Idletime packet: what class guest reads from a packet.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The headers are copied out of guest memory first, at most HEADERS bytes,
 * and parsed there.  A cursor walks over the copy; each step takes what it
 * needs or ends with "not understood", which is foreground.
 *
 *   Ethernet -> VLAN tags (QinQ) -> IPv4, or IPv6 and extension headers
 *            -> TCP, UDP, ICMPv6
 *
 * Formats: IEEE 802.3 and 802.1Q, RFC 791, 8200, 9293, 768, 4861, 2474.
 */
#include "qemu/osdep.h"
#include "idletime/packet/packet.h"
#include <netinet/in.h>

#define HEADERS             IDLETIME_PACKET_HEADERS
/* Two are QinQ; nobody nests more than that twice. */
#define TAGS_MAX            4
#define EXTENSIONS_MAX      8

#define ETHERTYPE_OFFSET    12
#define ETHERNET_BYTES      14
#define TAG_BYTES           4
#define TYPE_IPV4           0x0800
#define TYPE_IPV6           0x86dd
#define TYPE_VLAN           0x8100
#define TYPE_QINQ           0x88a8
/* QinQ as some switches did it before 802.1ad. */
#define TYPE_QINQ_OLD       0x9100

#define IPV4_BYTES          20
#define IPV4_FRAGMENT       0x1fff
#define IPV4_MORE           0x2000
#define IPV6_BYTES          40
#define TCP_BYTES           20
#define UDP_BYTES           8
#define TCP_SYN_FIN_RST     0x07
#define ND_FIRST            133     /* router solicitation */
#define ND_LAST             137     /* redirect */
#define FNV_OFFSET          2166136261u
#define FNV_PRIME           16777619u

typedef struct Cursor {
    uint8_t byte[HEADERS];
    size_t have;                /* bytes that were copied */
    size_t at;
} Cursor;

static size_t gather(const struct iovec *iov, unsigned count, size_t skip,
                     Cursor *c, size_t *total)
{
    size_t size = 0;

    c->have = c->at = 0;
    for (unsigned i = 0; i < count; i++) {
        size_t from = MIN(skip, iov[i].iov_len);
        size_t left = iov[i].iov_len - from;
        size_t take = MIN(left, HEADERS - c->have);

        skip -= from;
        if (take) {
            memcpy(c->byte + c->have, (uint8_t *)iov[i].iov_base + from, take);
        }
        c->have += take;
        size += left;
    }
    *total = size;
    return c->have;
}

static bool has(const Cursor *c, size_t bytes)
{
    return c->have - c->at >= bytes;
}

static uint8_t byte_at(const Cursor *c, size_t offset)
{
    return c->byte[c->at + offset];
}

static uint16_t word_at(const Cursor *c, size_t offset)
{
    return byte_at(c, offset) << 8 | byte_at(c, offset + 1);
}

/* FNV-1a: a collision only promotes a packet that could have waited. */
static void mix(uint32_t *flow, const uint8_t *byte, size_t count)
{
    while (count--) {
        *flow = (*flow ^ *byte++) * FNV_PRIME;
    }
}

/* ---- layers; each returns false where it does not understand */

static bool is_tag(uint16_t type)
{
    return type == TYPE_VLAN || type == TYPE_QINQ || type == TYPE_QINQ_OLD;
}

static bool ethernet(Cursor *c, uint16_t *type)
{
    unsigned tags = 0;

    if (!has(c, ETHERNET_BYTES)) {
        return false;
    }
    *type = word_at(c, ETHERTYPE_OFFSET);
    c->at += ETHERNET_BYTES;
    while (is_tag(*type)) {
        if (++tags > TAGS_MAX || !has(c, TAG_BYTES)) {
            return false;
        }
        *type = word_at(c, 2);
        c->at += TAG_BYTES;
    }
    return true;
}

/* @fragment: the transport header is in another packet, or cut off */
static bool ipv4(Cursor *c, IdletimePacket *p, bool *fragment)
{
    size_t header = has(c, IPV4_BYTES) ? (byte_at(c, 0) & 15) * 4 : 0;

    if (header < IPV4_BYTES || byte_at(c, 0) >> 4 != 4 || !has(c, header)) {
        return false;
    }
    p->version = 4;
    p->dscp = byte_at(c, 1) >> 2;
    p->protocol = byte_at(c, 9);
    *fragment = word_at(c, 6) & (IPV4_FRAGMENT | IPV4_MORE);
    mix(&p->flow, &c->byte[c->at + 12], 8);
    c->at += header;
    return true;
}

/* Bytes of an extension header, or 0 for what is none that we pass over. */
static size_t extension_bytes(const Cursor *c, uint8_t protocol)
{
    switch (protocol) {
    case IPPROTO_HOPOPTS:
    case IPPROTO_ROUTING:
    case IPPROTO_DSTOPTS:
        return has(c, 8) ? (byte_at(c, 1) + 1) * 8 : HEADERS;
    case IPPROTO_FRAGMENT:
        return 8;
    case IPPROTO_AH:
        return has(c, 8) ? (byte_at(c, 1) + 2) * 4 : HEADERS;
    default:
        return 0;
    }
}

static bool ipv6_extensions(Cursor *c, IdletimePacket *p, bool *fragment)
{
    for (int i = 0; i < EXTENSIONS_MAX; i++) {
        size_t bytes = extension_bytes(c, p->protocol);

        if (!bytes) {
            return true;
        }
        if (!has(c, bytes)) {
            return false;
        }
        if (p->protocol == IPPROTO_FRAGMENT) {
            /* The first fragment's transport header is there: look on. */
            *fragment = true;
            if (word_at(c, 2) >> 3) {
                p->protocol = IPPROTO_NONE;
            }
        }
        if (p->protocol != IPPROTO_NONE) {
            p->protocol = byte_at(c, 0);
        }
        c->at += bytes;
    }
    return false;
}

static bool ipv6(Cursor *c, IdletimePacket *p, bool *fragment)
{
    if (!has(c, IPV6_BYTES) || byte_at(c, 0) >> 4 != 6) {
        return false;
    }
    p->version = 6;
    p->dscp = word_at(c, 0) >> 6 & 63;
    p->protocol = byte_at(c, 6);
    mix(&p->flow, &c->byte[c->at + 8], 32);
    c->at += IPV6_BYTES;
    return ipv6_extensions(c, p, fragment);
}

static bool is_dhcp_port(uint16_t port)
{
    return port == 67 || port == 68 || port == 546 || port == 547;
}

static IdletimePacketKind udp(Cursor *c, IdletimePacket *p)
{
    if (!has(c, UDP_BYTES)) {
        return IDLETIME_PACKET_UNKNOWN;
    }
    p->payload_offset = p->transport_offset + UDP_BYTES;
    return is_dhcp_port(word_at(c, 0)) && is_dhcp_port(word_at(c, 2)) ?
           IDLETIME_PACKET_CONTROL : IDLETIME_PACKET_DATA;
}

/*
 * @length: of the IP packet by its header; a short frame is padded.  SYN,
 * FIN and RST count as data: they start and end a flow, they are no clock.
 */
static IdletimePacketKind tcp(Cursor *c, IdletimePacket *p, size_t length)
{
    size_t header = has(c, TCP_BYTES) ? (byte_at(c, 12) >> 4) * 4 : 0;

    if (header < TCP_BYTES || !has(c, header)) {
        return IDLETIME_PACKET_UNKNOWN;
    }
    p->payload_offset = p->transport_offset + header;
    return length == (size_t)p->payload_offset - p->ip_offset &&
           !(byte_at(c, 13) & TCP_SYN_FIN_RST) ? IDLETIME_PACKET_BARE_ACK :
                                                 IDLETIME_PACKET_DATA;
}

static IdletimePacketKind transport(Cursor *c, IdletimePacket *p,
                                    size_t length)
{
    p->transport_offset = c->at;
    if (p->protocol == IPPROTO_TCP || p->protocol == IPPROTO_UDP) {
        mix(&p->flow, &p->protocol, 1);
        if (has(c, 4)) {
            mix(&p->flow, &c->byte[c->at], 4);
        }
    }
    switch (p->protocol) {
    case IPPROTO_TCP:
        return tcp(c, p, length);
    case IPPROTO_UDP:
        return udp(c, p);
    case IPPROTO_ICMPV6:
        return !has(c, 1) ? IDLETIME_PACKET_UNKNOWN :
               byte_at(c, 0) >= ND_FIRST && byte_at(c, 0) <= ND_LAST ?
               IDLETIME_PACKET_CONTROL : IDLETIME_PACKET_DATA;
    default:
        return IDLETIME_PACKET_DATA;
    }
}

static IdletimePacketKind classify(Cursor *c, IdletimePacket *p)
{
    bool fragment = false;
    size_t length;
    uint16_t type;

    if (!ethernet(c, &type)) {
        return IDLETIME_PACKET_UNKNOWN;
    }
    p->ip_offset = c->at;
    if (type == TYPE_IPV4 && has(c, 4)) {
        length = word_at(c, 2);
        if (!ipv4(c, p, &fragment)) {
            return IDLETIME_PACKET_UNKNOWN;
        }
    } else if (type == TYPE_IPV6 && has(c, 6)) {
        length = IPV6_BYTES + word_at(c, 4);
        if (!ipv6(c, p, &fragment)) {
            return IDLETIME_PACKET_UNKNOWN;
        }
    } else {
        return IDLETIME_PACKET_UNKNOWN;
    }
    /* All fragments of a datagram are one flow: by address alone. */
    return fragment ? IDLETIME_PACKET_DATA : transport(c, p, length);
}

void idletime_packet_parse(const struct iovec *iov, unsigned count,
                           size_t skip, IdletimePacket *packet)
{
    Cursor c;
    size_t total;

    *packet = (IdletimePacket) { .flow = FNV_OFFSET };
    gather(iov, count, skip, &c, &total);
    packet->bytes = MIN(total, UINT32_MAX);
    packet->kind = classify(&c, packet);
}

/* ---- idletime-dscp */

static bool code_point(const char **text, unsigned *value)
{
    const char *start = *text;

    for (*value = 0; **text >= '0' && **text <= '9'; (*text)++) {
        *value = MIN(*value * 10 + (**text - '0'), 64);
    }
    return *text > start && *value < 64;
}

bool idletime_dscp_parse(const char *text, uint64_t *set)
{
    unsigned first, last;

    *set = 0;
    while (*text) {
        if (!code_point(&text, &first)) {
            return false;
        }
        last = first;
        if (*text == '-') {
            text++;
            if (!code_point(&text, &last) || last < first) {
                return false;
            }
        }
        for (unsigned i = first; i <= last; i++) {
            *set |= 1ULL << i;
        }
        if (*text == ',' && text[1]) {
            text++;
        } else if (*text) {
            return false;
        }
    }
    return true;
}
