/*
 * Packet classifier: what is background, and what is never held.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "frames.h"
#include <netinet/in.h>

#define LE 1                    /* RFC 8622 */
#define IPV4 0x0800
#define IPV6 0x86dd

static Frame *frame_new(void)
{
    return g_new0(Frame, 1);
}

static void assert_is(Frame *f, IdletimePacketKind kind, unsigned dscp)
{
    IdletimePacket packet = frame_parse(f);

    g_assert_cmpint(packet.kind, ==, kind);
    g_assert_cmpint(packet.dscp, ==, dscp);
    g_assert_cmpint(packet.bytes, ==, f->size);
    g_free(f);
}

static void test_dscp_ipv4(void)
{
    for (unsigned dscp = 0; dscp < 64; dscp++) {
        Frame *f = frame_new();

        frame_ethernet(f, IPV4);
        frame_ipv4(f, dscp, IPPROTO_UDP, 0, 12);
        frame_udp(f, 1000, 9, 4);
        frame_zero(f, 4);
        assert_is(f, IDLETIME_PACKET_DATA, dscp);
    }
}

static void test_dscp_ipv6(void)
{
    for (unsigned dscp = 0; dscp < 64; dscp++) {
        Frame *f = frame_new();

        frame_ethernet(f, IPV6);
        frame_ipv6(f, dscp, IPPROTO_UDP, 12);
        frame_udp(f, 1000, 9, 4);
        frame_zero(f, 4);
        assert_is(f, IDLETIME_PACKET_DATA, dscp);
    }
}

/* The two low bits are for congestion, not for the class. */
static void test_ecn(void)
{
    Frame *f = frame_new();

    frame_ethernet(f, IPV4);
    frame_ipv4(f, LE, IPPROTO_UDP, 0, 8);
    frame_udp(f, 1000, 9, 0);
    f->byte[15] |= 3;
    assert_is(f, IDLETIME_PACKET_DATA, LE);
}

static void tagged(unsigned tags, uint16_t outer, IdletimePacketKind kind,
                   unsigned dscp)
{
    Frame *f = frame_new();

    frame_ethernet(f, tags ? outer : IPV4);
    for (unsigned i = 0; i < tags; i++) {
        frame16(f, 100 + i);
        frame16(f, i == tags - 1 ? IPV4 : 0x8100);
    }
    frame_ipv4(f, LE, IPPROTO_UDP, 0, 8);
    frame_udp(f, 1000, 9, 0);
    assert_is(f, kind, dscp);
}

static void test_tags(void)
{
    tagged(0, 0, IDLETIME_PACKET_DATA, LE);
    tagged(1, 0x8100, IDLETIME_PACKET_DATA, LE);
    tagged(2, 0x88a8, IDLETIME_PACKET_DATA, LE);
    tagged(2, 0x9100, IDLETIME_PACKET_DATA, LE);
    tagged(4, 0x8100, IDLETIME_PACKET_DATA, LE);
    /* Deeper than anybody nests: not understood. */
    tagged(5, 0x8100, IDLETIME_PACKET_UNKNOWN, 0);
}

static void test_never_held(void)
{
    static const uint16_t types[] = {
        0x0806 /* ARP */, 0x8035 /* RARP */, 0x88cc /* LLDP */,
        0x8847 /* MPLS */, 0x05dc /* 802.3 length */, 0,
    };
    Frame *f;

    for (unsigned i = 0; i < G_N_ELEMENTS(types); i++) {
        f = frame_new();
        frame_ethernet(f, types[i]);
        frame_ipv4(f, LE, IPPROTO_UDP, 0, 20);
        frame_zero(f, 20);
        assert_is(f, IDLETIME_PACKET_UNKNOWN, 0);
    }
}

static IdletimePacketKind udp_kind(uint16_t type, uint16_t from, uint16_t to)
{
    Frame *f = frame_new();
    IdletimePacket packet;

    frame_ethernet(f, type);
    if (type == IPV4) {
        frame_ipv4(f, LE, IPPROTO_UDP, 0, 8);
    } else {
        frame_ipv6(f, LE, IPPROTO_UDP, 8);
    }
    frame_udp(f, from, to, 0);
    packet = frame_parse(f);
    g_free(f);
    return packet.kind;
}

static void test_dhcp(void)
{
    g_assert_cmpint(udp_kind(IPV4, 68, 67), ==, IDLETIME_PACKET_CONTROL);
    g_assert_cmpint(udp_kind(IPV4, 67, 68), ==, IDLETIME_PACKET_CONTROL);
    g_assert_cmpint(udp_kind(IPV6, 546, 547), ==, IDLETIME_PACKET_CONTROL);
    /* One port alone is anybody's. */
    g_assert_cmpint(udp_kind(IPV4, 67, 5000), ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(udp_kind(IPV6, 5000, 547), ==, IDLETIME_PACKET_DATA);
}

static IdletimePacketKind icmpv6_kind(uint8_t type)
{
    Frame *f = frame_new();
    IdletimePacket packet;

    frame_ethernet(f, IPV6);
    frame_ipv6(f, LE, IPPROTO_ICMPV6, 24);
    frame16(f, type << 8);
    frame_zero(f, 22);
    packet = frame_parse(f);
    g_free(f);
    return packet.kind;
}

static void test_neighbour_discovery(void)
{
    for (int type = 133; type <= 137; type++) {
        g_assert_cmpint(icmpv6_kind(type), ==, IDLETIME_PACKET_CONTROL);
    }
    g_assert_cmpint(icmpv6_kind(128), ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(icmpv6_kind(138), ==, IDLETIME_PACKET_DATA);
}

static IdletimePacketKind tcp_kind(uint8_t flags, size_t payload,
                                   size_t padding)
{
    Frame *f = frame_new();
    IdletimePacket packet;

    frame_ethernet(f, IPV4);
    frame_ipv4(f, LE, IPPROTO_TCP, 0, 32 + payload);
    frame_tcp(f, 1000, 9, 1, flags);
    frame_zero(f, payload + padding);
    packet = frame_parse(f);
    g_free(f);
    return packet.kind;
}

static void test_bare_ack(void)
{
    g_assert_cmpint(tcp_kind(TCP_ACK, 0, 0), ==, IDLETIME_PACKET_BARE_ACK);
    /* Padded to the least size of a frame. */
    g_assert_cmpint(tcp_kind(TCP_ACK, 0, 6), ==, IDLETIME_PACKET_BARE_ACK);
    g_assert_cmpint(tcp_kind(TCP_ACK, 1, 0), ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(tcp_kind(TCP_SYN, 0, 0), ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(tcp_kind(TCP_ACK | TCP_FIN, 0, 0), ==,
                    IDLETIME_PACKET_DATA);
}

static IdletimePacket fragment4(uint16_t fragment)
{
    Frame *f = frame_new();
    IdletimePacket packet;

    frame_ethernet(f, IPV4);
    frame_ipv4(f, LE, IPPROTO_UDP, fragment, 16);
    frame_udp(f, 1000, 9, 8);
    frame_zero(f, 8);
    packet = frame_parse(f);
    g_free(f);
    return packet;
}

/* All of a datagram are one flow, the first one too. */
static void test_fragments(void)
{
    IdletimePacket first = fragment4(0x2000), last = fragment4(185);

    g_assert_cmpint(first.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(last.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(first.flow, ==, last.flow);
    g_assert_cmpint(first.payload_offset, ==, 0);
}

/* @kind: of extension header; 8 bytes each */
static IdletimePacket extended(const uint8_t *kind, unsigned count,
                               uint8_t last)
{
    Frame *f = frame_new();
    IdletimePacket packet;

    frame_ethernet(f, IPV6);
    frame_ipv6(f, LE, count ? kind[0] : last, 8 * count + 8);
    for (unsigned i = 0; i < count; i++) {
        frame16(f, (i + 1 < count ? kind[i + 1] : last) << 8);
        frame_zero(f, 6);
    }
    frame_udp(f, 68, 67, 0);
    packet = frame_parse(f);
    g_free(f);
    return packet;
}

static void test_extensions(void)
{
    uint8_t chain[9] = { IPPROTO_HOPOPTS, IPPROTO_DSTOPTS, IPPROTO_ROUTING,
                         IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS,
                         IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS };
    IdletimePacket p;

    for (unsigned n = 0; n < 8; n++) {
        p = extended(chain, n, IPPROTO_UDP);
        g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_CONTROL);
        g_assert_cmpint(p.transport_offset, ==, 54 + 8 * n);
    }
    p = extended(chain, 8, IPPROTO_UDP);
    g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_UNKNOWN);
    /* An unknown protocol is still IP with a code point. */
    p = extended(chain, 1, 253);
    g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(p.dscp, ==, LE);
}

static bool same_flow(uint16_t from1, uint16_t to1, uint16_t from2,
                      uint16_t to2)
{
    IdletimePacket p[2];
    uint16_t port[2][2] = { { from1, to1 }, { from2, to2 } };

    for (int i = 0; i < 2; i++) {
        Frame *f = frame_new();

        frame_ethernet(f, IPV4);
        /* The code point is no part of the flow. */
        frame_ipv4(f, i, IPPROTO_UDP, 0, 8 + i);
        frame_udp(f, port[i][0], port[i][1], i);
        frame_zero(f, i);
        p[i] = frame_parse(f);
        g_free(f);
    }
    return p[0].flow == p[1].flow;
}

static void test_flow(void)
{
    g_assert_true(same_flow(1000, 9, 1000, 9));
    g_assert_false(same_flow(1000, 9, 1001, 9));
    g_assert_false(same_flow(1000, 9, 1000, 10));
}

/* Each way to cut the headers into three gives the same. */
static void test_split(void)
{
    Frame *f = frame_new();
    IdletimePacket whole, p;

    frame_zero(f, 12);
    frame_ethernet(f, 0x8100);
    frame16(f, 7);
    frame16(f, IPV6);
    frame_ipv6(f, LE, IPPROTO_TCP, 32 + 10);
    frame_tcp(f, 1000, 9, 1, TCP_ACK);
    frame_zero(f, 10);
    for (size_t a = 0; a <= f->size; a++) {
        for (size_t b = a; b <= f->size; b++) {
            struct iovec iov[] = {
                { f->byte, a }, { NULL, 0 }, { f->byte + a, b - a },
                { f->byte + b, f->size - b },
            };

            idletime_packet_parse(iov, G_N_ELEMENTS(iov), 12, &p);
            if (a == 0 && b == 0) {
                whole = p;
            }
            g_assert_cmpmem(&p, sizeof(p), &whole, sizeof(whole));
        }
    }
    g_assert_cmpint(whole.kind, ==, IDLETIME_PACKET_DATA);
    g_assert_cmpint(whole.dscp, ==, LE);
    g_assert_cmpint(whole.payload_offset, ==, 14 + 4 + 40 + 32);
    g_free(f);
}

/* Cut off anywhere: no access behind the end (a page of its own each). */
static void test_truncated(void)
{
    Frame *f = frame_new();

    frame_ethernet(f, 0x88a8);
    frame16(f, 7);
    frame16(f, IPV4);
    frame_ipv4(f, LE, IPPROTO_TCP, 0, 32);
    frame_tcp(f, 1000, 9, 1, TCP_ACK);
    for (size_t size = 0; size < f->size; size++) {
        uint8_t *copy = g_memdup2(f->byte, MAX(size, 1));
        struct iovec iov = { copy, size };
        IdletimePacket p;

        idletime_packet_parse(&iov, 1, 0, &p);
        g_assert_cmpint(p.kind, ==, IDLETIME_PACKET_UNKNOWN);
        /* The header in front is longer than the packet. */
        idletime_packet_parse(&iov, 1, size + 1, &p);
        g_assert_cmpint(p.bytes, ==, 0);
        g_free(copy);
    }
    g_free(f);
}

static void test_dscp_list(void)
{
    static const struct {
        const char *text;
        uint64_t set;
    } good[] = {
        { "1", 1ull << 1 }, { "0", 1 }, { "63", 1ull << 63 }, { "", 0 },
        { "1,8", 1ull << 1 | 1ull << 8 }, { "0-63", UINT64_MAX },
        { "8-10,1", 7ull << 8 | 1ull << 1 }, { "007", 1ull << 7 },
    };
    static const char *const bad[] = {
        "64", "-1", "1-", "2-1", "1,", ",1", "1 ", " 1", "x", "1,,2",
        "18446744073709551617", "0x1", "1--2", "1-64",
    };
    uint64_t set;

    for (unsigned i = 0; i < G_N_ELEMENTS(good); i++) {
        g_assert_true(idletime_dscp_parse(good[i].text, &set));
        g_assert_cmphex(set, ==, good[i].set);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_assert_false(idletime_dscp_parse(bad[i], &set));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/packet/dscp-ipv4", test_dscp_ipv4);
    g_test_add_func("/packet/dscp-ipv6", test_dscp_ipv6);
    g_test_add_func("/packet/ecn", test_ecn);
    g_test_add_func("/packet/tags", test_tags);
    g_test_add_func("/packet/never-held", test_never_held);
    g_test_add_func("/packet/dhcp", test_dhcp);
    g_test_add_func("/packet/neighbour-discovery", test_neighbour_discovery);
    g_test_add_func("/packet/bare-ack", test_bare_ack);
    g_test_add_func("/packet/fragments", test_fragments);
    g_test_add_func("/packet/extensions", test_extensions);
    g_test_add_func("/packet/flow", test_flow);
    g_test_add_func("/packet/split", test_split);
    g_test_add_func("/packet/truncated", test_truncated);
    g_test_add_func("/packet/dscp-list", test_dscp_list);
    return g_test_run();
}
