/*
 * Packet classifier: each field of a header at its exact place, and the
 * shortest packet that is understood.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "frames.h"
#include <netinet/in.h>

#define LE      1               /* RFC 8622 */
#define IPV4    0x0800
#define IPV6    0x86dd
/* Offsets in a frame without tags. */
#define IP      14
#define V4_L4   (IP + 20)
#define V6_L4   (IP + 40)

static Frame *frame4(uint8_t protocol, size_t rest)
{
    Frame *f = g_new0(Frame, 1);

    frame_ethernet(f, IPV4);
    frame_ipv4(f, LE, protocol, 0, rest);
    return f;
}

static Frame *frame6(uint8_t next, size_t rest)
{
    Frame *f = g_new0(Frame, 1);

    frame_ethernet(f, IPV6);
    frame_ipv6(f, LE, next, rest);
    return f;
}

static Frame *udp4(void)
{
    Frame *f = frame4(IPPROTO_UDP, 8);

    frame_udp(f, 1000, 9, 0);
    return f;
}

static Frame *udp6(void)
{
    Frame *f = frame6(IPPROTO_UDP, 8);

    frame_udp(f, 1000, 9, 0);
    return f;
}

static Frame *tcp4(void)
{
    Frame *f = frame4(IPPROTO_TCP, 32);

    frame_tcp(f, 1000, 9, 1, TCP_ACK);
    return f;
}

static Frame *tcp6(void)
{
    Frame *f = frame6(IPPROTO_TCP, 32);

    frame_tcp(f, 1000, 9, 1, TCP_ACK);
    return f;
}

/* ---- fields */

static void assert_fields(Frame *f, const IdletimePacket *want)
{
    IdletimePacket p = frame_parse(f);

    g_assert_cmpint(p.kind, ==, want->kind);
    g_assert_cmpint(p.dscp, ==, LE);
    g_assert_cmpint(p.version, ==, want->version);
    g_assert_cmpint(p.protocol, ==, want->protocol);
    g_assert_cmpint(p.ip_offset, ==, IP);
    g_assert_cmpint(p.transport_offset, ==, want->transport_offset);
    g_assert_cmpint(p.payload_offset, ==, want->payload_offset);
    g_assert_cmpint(p.bytes, ==, f->size);
    g_free(f);
}

static void test_fields(void)
{
    assert_fields(udp4(), &(IdletimePacket) {
        .kind = IDLETIME_PACKET_DATA, .version = 4, .protocol = IPPROTO_UDP,
        .transport_offset = V4_L4, .payload_offset = V4_L4 + 8 });
    assert_fields(udp6(), &(IdletimePacket) {
        .kind = IDLETIME_PACKET_DATA, .version = 6, .protocol = IPPROTO_UDP,
        .transport_offset = V6_L4, .payload_offset = V6_L4 + 8 });
    assert_fields(tcp4(), &(IdletimePacket) {
        .kind = IDLETIME_PACKET_BARE_ACK, .version = 4,
        .protocol = IPPROTO_TCP,
        .transport_offset = V4_L4, .payload_offset = V4_L4 + 32 });
    assert_fields(tcp6(), &(IdletimePacket) {
        .kind = IDLETIME_PACKET_BARE_ACK, .version = 6,
        .protocol = IPPROTO_TCP,
        .transport_offset = V6_L4, .payload_offset = V6_L4 + 32 });
    assert_fields(frame4(IPPROTO_GRE, 0), &(IdletimePacket) {
        .kind = IDLETIME_PACKET_DATA, .version = 4, .protocol = IPPROTO_GRE,
        .transport_offset = V4_L4 });
}

/* IPv4's options: the header's length is in words of 4 bytes, 5 at least. */
static void test_ipv4_options(void)
{
    for (unsigned words = 0; words < 16; words++) {
        Frame *f = frame4(IPPROTO_UDP, 4 * words);
        IdletimePacket p;

        f->byte[IP] = 0x40 | words;
        frame_zero(f, words > 5 ? 4 * words - 20 : 0);
        frame_udp(f, 1000, 9, 0);
        p = frame_parse(f);
        g_assert_cmpint(p.kind, ==, words < 5 ? IDLETIME_PACKET_UNKNOWN :
                                                IDLETIME_PACKET_DATA);
        g_assert_cmpint(p.transport_offset, ==,
                        words < 5 ? 0 : IP + 4 * words);
        g_free(f);
    }
}

/* What says to be another version than its Ethernet type is not understood. */
static void test_version(void)
{
    for (unsigned version = 0; version < 16; version++) {
        Frame *four = udp4(), *six = udp6();

        four->byte[IP] = version << 4 | 5;
        six->byte[IP] = version << 4;
        g_assert_cmpint(frame_parse(four).kind, ==,
                        version == 4 ? IDLETIME_PACKET_DATA :
                                       IDLETIME_PACKET_UNKNOWN);
        g_assert_cmpint(frame_parse(six).kind, ==,
                        version == 6 ? IDLETIME_PACKET_DATA :
                                       IDLETIME_PACKET_UNKNOWN);
        g_free(four);
        g_free(six);
    }
}

/* TCP's header: 5 words of 4 bytes at least, and all of it there. */
static void test_tcp_header(void)
{
    for (unsigned words = 0; words < 16; words++) {
        /* 32 bytes, 8 words, are there. */
        bool good = words >= 5 && words <= 8;
        Frame *f = tcp4();
        IdletimePacket p;

        f->byte[V4_L4 + 12] = words << 4;
        p = frame_parse(f);
        g_assert_cmpint(p.kind, ==, !good ? IDLETIME_PACKET_UNKNOWN :
                                    words == 8 ? IDLETIME_PACKET_BARE_ACK :
                                                 IDLETIME_PACKET_DATA);
        g_assert_cmpint(p.payload_offset, ==, good ? V4_L4 + 4 * words : 0);
        g_free(f);
    }
}

/* Of TCP's flags, three start or end a flow; the others change nothing. */
static void test_tcp_flags(void)
{
    for (unsigned flags = 0; flags < 256; flags++) {
        Frame *f = tcp6();

        f->byte[V6_L4 + 13] = flags;
        g_assert_cmpint(frame_parse(f).kind, ==,
                        flags & 7 ? IDLETIME_PACKET_DATA :
                                    IDLETIME_PACKET_BARE_ACK);
        g_free(f);
    }
}

/* The length is IP's, whatever is behind: padding does not make it data. */
static void test_bare_ack_length(void)
{
    for (int more = -1; more <= 1; more++) {
        Frame *four = tcp4(), *six = tcp6();

        frame_zero(four, 6);
        frame_zero(six, 6);
        four->byte[IP + 3] = 52 + more;
        six->byte[IP + 5] = 32 + more;
        g_assert_cmpint(frame_parse(four).kind, ==,
                        more ? IDLETIME_PACKET_DATA :
                               IDLETIME_PACKET_BARE_ACK);
        g_assert_cmpint(frame_parse(six).kind, ==,
                        more ? IDLETIME_PACKET_DATA :
                               IDLETIME_PACKET_BARE_ACK);
        g_free(four);
        g_free(six);
    }
}

/* Both ports have to be DHCP's; which of them does not matter. */
static void test_dhcp_ports(void)
{
    static const uint16_t port[] = { 66, 67, 68, 69, 545, 546, 547, 548 };

    for (unsigned i = 0; i < G_N_ELEMENTS(port); i++) {
        for (unsigned k = 0; k < G_N_ELEMENTS(port); k++) {
            /* The first and the last of each four are none. */
            bool dhcp = i % 4 % 3 && k % 4 % 3;
            Frame *f = frame4(IPPROTO_UDP, 8);

            frame_udp(f, port[i], port[k], 0);
            g_assert_cmpint(frame_parse(f).kind, ==,
                            dhcp ? IDLETIME_PACKET_CONTROL :
                                   IDLETIME_PACKET_DATA);
            g_free(f);
        }
    }
}

static void test_icmpv6_types(void)
{
    for (unsigned type = 0; type < 256; type++) {
        Frame *f = frame6(IPPROTO_ICMPV6, 8);

        frame16(f, type << 8);
        frame_zero(f, 6);
        g_assert_cmpint(frame_parse(f).kind, ==,
                        type >= 133 && type <= 137 ?
                        IDLETIME_PACKET_CONTROL : IDLETIME_PACKET_DATA);
        g_free(f);
    }
}

/* ---- extension headers of IPv6 */

/* One extension header of @bytes, whose length field is @length. */
static IdletimePacket extended(uint8_t kind, uint8_t length, size_t bytes)
{
    Frame *f = frame6(kind, bytes + 8);
    IdletimePacket p;

    frame16(f, IPPROTO_UDP << 8 | length);
    frame_zero(f, bytes - 2);
    frame_udp(f, 1000, 9, 0);
    p = frame_parse(f);
    g_free(f);
    return p;
}

static void assert_extended(uint8_t kind, uint8_t length, size_t bytes)
{
    IdletimePacket p = extended(kind, length, bytes);

    g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(p.protocol, ==, IPPROTO_UDP);
    g_assert_cmpint(p.transport_offset, ==, V6_L4 + bytes);
    g_assert_cmpint(p.payload_offset, ==, V6_L4 + bytes + 8);
}

/* In units of 8 bytes without the first; IPsec's in 4 without two. */
static void test_extension_lengths(void)
{
    for (unsigned n = 0; n < 16; n++) {
        assert_extended(IPPROTO_HOPOPTS, n, 8 * (n + 1));
        assert_extended(IPPROTO_ROUTING, n, 8 * (n + 1));
        assert_extended(IPPROTO_DSTOPTS, n, 8 * (n + 1));
        assert_extended(IPPROTO_AH, n + 1, 4 * (n + 3));
    }
    /* Longer than what is there, and than what is looked at. */
    g_assert_cmpint(extended(IPPROTO_HOPOPTS, 2, 8).kind, ==,
                    IDLETIME_PACKET_UNKNOWN);
    g_assert_cmpint(extended(IPPROTO_HOPOPTS, 255, 2048).kind, ==,
                    IDLETIME_PACKET_UNKNOWN);
    g_assert_cmpint(extended(IPPROTO_AH, 255, 1028).kind, ==,
                    IDLETIME_PACKET_UNKNOWN);
}

/* The shortest ones end with the packet: nothing has to be behind them. */
static void test_extension_is_last(void)
{
    static const uint8_t kind[] = { IPPROTO_HOPOPTS, IPPROTO_ROUTING,
                                    IPPROTO_DSTOPTS, IPPROTO_AH };

    for (unsigned i = 0; i < G_N_ELEMENTS(kind); i++) {
        Frame *f = frame6(kind[i], 8);
        IdletimePacket p;

        frame16(f, IPPROTO_NONE << 8);
        frame_zero(f, 6);
        p = frame_parse(f);
        g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_DATA);
        g_assert_cmpint(p.protocol, ==, IPPROTO_NONE);
        g_assert_cmpint(p.transport_offset, ==, V6_L4 + 8);
        g_free(f);
    }
}

/* @field: offset in units of 8 bytes << 3 | more */
static IdletimePacket fragment6(uint16_t field, uint16_t from)
{
    Frame *f = frame6(IPPROTO_FRAGMENT, 8 + 8);
    IdletimePacket p;

    frame16(f, IPPROTO_UDP << 8);
    frame16(f, field);
    frame_zero(f, 4);
    frame_udp(f, from, 9, 0);
    p = frame_parse(f);
    g_free(f);
    return p;
}

/* One flow by its addresses; only the first fragment has the header. */
static void test_fragments6(void)
{
    IdletimePacket first = fragment6(1, 1000), next = fragment6(8 | 1, 1001),
                   last = fragment6(16, 1002);

    g_assert_cmpint(first.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(next.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(last.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(first.protocol, ==, IPPROTO_UDP);
    g_assert_cmpint(next.protocol, ==, IPPROTO_NONE);
    g_assert_cmpint(first.flow, ==, next.flow);
    g_assert_cmpint(first.flow, ==, last.flow);
    g_assert_cmpint(first.transport_offset, ==, 0);
    g_assert_cmpint(next.payload_offset, ==, 0);
}

/* Behind a later fragment's header is data, however it looks. */
static void test_fragment_ends_the_headers(void)
{
    Frame *f = frame6(IPPROTO_FRAGMENT, 8);
    IdletimePacket p;

    frame16(f, IPPROTO_HOPOPTS << 8);
    frame16(f, 8);
    frame_zero(f, 4);
    p = frame_parse(f);
    g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_DATA);
    g_free(f);
}

/* In the first one the chain of headers goes on. */
static void test_fragment_goes_on(void)
{
    Frame *f = frame6(IPPROTO_FRAGMENT, 16);
    IdletimePacket p;

    frame16(f, IPPROTO_DSTOPTS << 8);
    frame16(f, 1);
    frame_zero(f, 4);
    frame16(f, IPPROTO_TCP << 8);
    frame_zero(f, 6);
    p = frame_parse(f);
    g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(p.protocol, ==, IPPROTO_TCP);
    g_free(f);
}

/* ---- the shortest that is understood */

static void assert_needs(Frame *f, size_t bytes)
{
    for (size_t size = 0; size <= f->size; size++) {
        g_autofree uint8_t *copy = g_memdup2(f->byte, MAX(size, 1));
        struct iovec iov = { copy, size };
        IdletimePacket p;

        idletime_packet_parse(&iov, 1, 0, &p);
        g_assert_cmpint(p.kind == IDLETIME_PACKET_UNKNOWN, ==, size < bytes);
    }
    g_free(f);
}

static void test_needed(void)
{
    Frame *f;

    assert_needs(udp4(), V4_L4 + 8);
    assert_needs(udp6(), V6_L4 + 8);
    assert_needs(tcp4(), V4_L4 + 32);
    assert_needs(tcp6(), V6_L4 + 32);

    f = frame4(IPPROTO_GRE, 8);
    frame_zero(f, 8);
    assert_needs(f, V4_L4);
    f = frame6(IPPROTO_NONE, 0);
    frame_zero(f, 8);
    assert_needs(f, V6_L4);
    f = frame6(IPPROTO_ICMPV6, 8);
    frame_zero(f, 8);
    assert_needs(f, V6_L4 + 1);
    f = frame6(IPPROTO_AH, 12 + 8);
    frame16(f, IPPROTO_UDP << 8 | 1);
    frame_zero(f, 10);
    frame_udp(f, 1000, 9, 0);
    assert_needs(f, V6_L4 + 12 + 8);
}

/* ---- flow */

/*
 * A flow is protocol, addresses and ports: a change of one of their bytes
 * makes another flow, one of any other byte does not.
 */
static void assert_flow_bytes(Frame *f, size_t l4, size_t protocol,
                              size_t addresses)
{
    IdletimePacket p = frame_parse(f);

    g_assert_cmpint(p.transport_offset, ==, l4);
    for (size_t at = 0; at < f->size; at++) {
        bool part = at == protocol || (at >= addresses && at < l4 + 4);
        IdletimePacket other;

        f->byte[at] ^= 0x40;
        other = frame_parse(f);
        f->byte[at] ^= 0x40;
        if (other.kind != IDLETIME_PACKET_UNKNOWN &&
            other.payload_offset == p.payload_offset) {
            g_assert_cmpint(other.flow != p.flow, ==, part);
        }
    }
    g_free(f);
}

static void test_flow_bytes(void)
{
    assert_flow_bytes(udp4(), V4_L4, IP + 9, IP + 12);
    assert_flow_bytes(tcp4(), V4_L4, IP + 9, IP + 12);
    assert_flow_bytes(udp6(), V6_L4, IP + 6, IP + 8);
    assert_flow_bytes(tcp6(), V6_L4, IP + 6, IP + 8);
}

/* The same addresses and ports: TCP and UDP are two flows. */
static void test_flow_protocol(void)
{
    Frame *tcp = tcp4(), *udp = udp4();

    g_assert_cmpint(frame_parse(tcp).flow, !=, frame_parse(udp).flow);
    g_free(tcp);
    g_free(udp);
}

/* A protocol without ports: its payload is no part of the flow. */
static void test_flow_without_ports(void)
{
    Frame *f = frame4(IPPROTO_GRE, 4);
    uint32_t flow;

    frame_zero(f, 4);
    flow = frame_parse(f).flow;
    f->byte[V4_L4] = 1;
    g_assert_cmpint(frame_parse(f).flow, ==, flow);
    g_free(f);
}

/* Nor is the tag of a VLAN. */
static void test_flow_of_tagged(void)
{
    Frame *f = udp4(), *tagged = g_new0(Frame, 1);

    frame_ethernet(tagged, 0x8100);
    frame16(tagged, 7);
    frame_bytes(tagged, f->byte + 12, f->size - 12);
    g_assert_cmpint(frame_parse(tagged).ip_offset, ==, IP + 4);
    g_assert_cmpint(frame_parse(tagged).flow, ==, frame_parse(f).flow);
    g_free(tagged);
    g_free(f);
}

/* ---- size */

/* Behind what is looked at, bytes are counted and not read. */
static void test_bytes(void)
{
    static uint8_t head[12 + IDLETIME_PACKET_HEADERS];
    Frame *f = udp4();
    struct iovec iov[2] = { { head, sizeof(head) }, { NULL, 1000 } };
    IdletimePacket p;

    memcpy(head + 12, f->byte, f->size);
    idletime_packet_parse(iov, 2, 12, &p);
    g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(p.bytes, ==, IDLETIME_PACKET_HEADERS + 1000);
    iov[1].iov_len = UINT32_MAX - IDLETIME_PACKET_HEADERS;
    idletime_packet_parse(iov, 2, 12, &p);
    g_assert_cmpint(p.bytes, ==, UINT32_MAX);
    iov[1].iov_len = UINT32_MAX;
    idletime_packet_parse(iov, 2, 12, &p);
    g_assert_cmpint(p.bytes, ==, UINT32_MAX);
    g_free(f);
}

static void test_dscp_each(void)
{
    for (unsigned i = 0; i < 100; i++) {
        g_autofree char *text = g_strdup_printf("%u", i);
        uint64_t set;

        g_assert_cmpint(idletime_dscp_parse(text, &set), ==, i < 64);
        g_assert_cmphex(set, ==, i < 64 ? 1ull << i : 0);
    }
}

static void test_dscp_ranges(void)
{
    uint64_t set;

    g_assert_true(idletime_dscp_parse("5-5", &set));
    g_assert_cmphex(set, ==, 1 << 5);
    g_assert_true(idletime_dscp_parse("0-0,62-63", &set));
    g_assert_cmphex(set, ==, 1 | 3ull << 62);
    g_assert_false(idletime_dscp_parse("1/", &set));
    g_assert_false(idletime_dscp_parse("1:", &set));
    g_assert_false(idletime_dscp_parse("1,", &set));
    g_assert_false(idletime_dscp_parse("100", &set));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/packet/fields", test_fields);
    g_test_add_func("/packet/ipv4-options", test_ipv4_options);
    g_test_add_func("/packet/version", test_version);
    g_test_add_func("/packet/tcp-header", test_tcp_header);
    g_test_add_func("/packet/tcp-flags", test_tcp_flags);
    g_test_add_func("/packet/bare-ack-length", test_bare_ack_length);
    g_test_add_func("/packet/dhcp-ports", test_dhcp_ports);
    g_test_add_func("/packet/icmpv6-types", test_icmpv6_types);
    g_test_add_func("/packet/extension-lengths", test_extension_lengths);
    g_test_add_func("/packet/extension-is-last", test_extension_is_last);
    g_test_add_func("/packet/fragments6", test_fragments6);
    g_test_add_func("/packet/fragment-ends-the-headers",
                    test_fragment_ends_the_headers);
    g_test_add_func("/packet/fragment-goes-on", test_fragment_goes_on);
    g_test_add_func("/packet/needed", test_needed);
    g_test_add_func("/packet/flow-bytes", test_flow_bytes);
    g_test_add_func("/packet/flow-protocol", test_flow_protocol);
    g_test_add_func("/packet/flow-without-ports", test_flow_without_ports);
    g_test_add_func("/packet/flow-of-tagged", test_flow_of_tagged);
    g_test_add_func("/packet/bytes", test_bytes);
    g_test_add_func("/packet/dscp-each", test_dscp_each);
    g_test_add_func("/packet/dscp-ranges", test_dscp_ranges);
    return g_test_run();
}
