/*
 * Cutting large packets: the pieces are what the host's own segmentation
 * would have made, and the checksums come out right.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "large.h"

/* The host completes the sum over the transport header and the payload. */
static void assert_checksum(const Case *c, const uint8_t *frame, size_t size)
{
    const uint8_t *ip = frame + 14, *transport = ip + ip_bytes(c);
    size_t length = size - 14 - ip_bytes(c);

    g_assert_cmphex(get16(transport + (c->udp ? 6 : 16)), ==,
                    pseudo(ip, c->v6, c->udp ? IPPROTO_UDP : IPPROTO_TCP,
                           length));
    if (!c->v6) {
        g_assert_cmphex(sum16(ip, 20, 0), ==, 0xffff);
        g_assert_cmpint(get16(ip + 2), ==, 20 + length);
    } else {
        g_assert_cmpint(get16(ip + 4), ==, length);
    }
}

static void assert_tcp(const Case *c, const uint8_t *frame, uint32_t done,
                       bool last)
{
    const uint8_t *tcp = frame + 14 + ip_bytes(c);
    uint32_t sequence = (uint32_t)get16(tcp + 4) << 16 | get16(tcp + 6);
    uint8_t flags = c->flags;

    flags &= last ? 0xff : ~(TCP_FIN | TCP_PSH);
    flags &= done ? ~TCP_CWR_FLAG : 0xff;
    g_assert_cmphex(sequence, ==, 0xfffffff0 + done);
    g_assert_cmphex(tcp[13], ==, flags);
}

static unsigned vnet16_at(const Case *c, const uint8_t *p)
{
    return p[!c->big_endian] << 8 | p[c->big_endian];
}

static void assert_vnet(const Case *c, const uint8_t *vnet, uint32_t done,
                        uint32_t payload)
{
    uint8_t type = c->gso_type & (done ? ~GSO_ECN : 0xff);

    g_assert_cmpint(vnet[0], ==, 1);
    g_assert_cmpint(vnet[1], ==, payload > c->segment ? type : 0);
    g_assert_cmpint(vnet16_at(c, vnet + 2), ==,
                    14 + ip_bytes(c) + transport_bytes(c));
    g_assert_cmpint(vnet16_at(c, vnet + 4), ==,
                    payload > c->segment ? c->segment : 0);
}

static uint32_t take(const Case *c, IdletimeCut *cut, const Frame *f,
                     uint32_t done)
{
    size_t headers = 14 + ip_bytes(c) + transport_bytes(c);
    size_t expected = idletime_cut_size(cut, c->limit);
    uint8_t *frame = g_malloc0(VNET + 70000);
    IdletimePiece piece;
    size_t size;

    idletime_cut_next(cut, c->limit, &piece);
    size = piece.header_bytes - VNET + piece.payload_bytes;
    g_assert_cmpint(size, ==, expected);
    g_assert_cmpint(piece.header_bytes, ==, VNET + headers);
    g_assert_cmpint(piece.payload_offset, ==, VNET + headers + done);
    memcpy(frame, piece.header, piece.header_bytes);
    memcpy(frame + piece.header_bytes, f->byte + piece.payload_offset,
           piece.payload_bytes);
    assert_vnet(c, frame, done, piece.payload_bytes);
    assert_checksum(c, frame + VNET, size);
    if (!c->v6) {
        g_assert_cmphex(get16(frame + VNET + 14 + 4), ==,
                        0x1234 + done / c->segment);
    }
    if (!c->udp) {
        assert_tcp(c, frame + VNET, done, !idletime_cut_left(cut));
    } else {
        g_assert_cmpint(get16(frame + VNET + 14 + ip_bytes(c) + 4), ==,
                        8 + piece.payload_bytes);
    }
    g_free(frame);
    return piece.payload_bytes;
}

static void test_case(const void *opaque)
{
    const Case *c = opaque;
    Frame *f = make(c);
    size_t headers = 14 + ip_bytes(c) + transport_bytes(c);
    uint32_t done = 0, bytes, whole;
    IdletimeCut cut;

    g_assert_true(begin(&cut, f, c->big_endian));
    whole = (c->limit > headers ? c->limit - headers : 0) / c->segment *
            c->segment;
    whole = MAX(whole, c->segment);
    if (headers + c->payload <= c->limit) {
        whole = c->payload;
    }
    while (idletime_cut_left(&cut)) {
        bytes = take(c, &cut, f, done);
        done += bytes;
        g_assert_true(bytes == whole || done == c->payload);
    }
    g_assert_cmpint(done, ==, c->payload);
    g_free(f);
}

static const Case cases[] = {
    { "tcp4", .gso_type = GSO_TCPV4, .segment = 1448, .payload = 14480,
      .limit = 1514, .flags = TCP_ACK | TCP_PSH },
    { "tcp4-rest", .gso_type = GSO_TCPV4, .segment = 1448, .payload = 14481,
      .limit = 1514, .flags = TCP_ACK | TCP_FIN },
    { "tcp4-three", .gso_type = GSO_TCPV4, .segment = 1448, .payload = 64000,
      .limit = 4500, .flags = TCP_ACK | TCP_PSH },
    { "tcp4-ecn", .gso_type = GSO_TCPV4 | GSO_ECN, .segment = 1000,
      .payload = 5001, .limit = 2200, .flags = TCP_ACK | TCP_CWR_FLAG },
    { "tcp4-whole", .gso_type = GSO_TCPV4, .segment = 1448, .payload = 65000,
      .limit = SIZE_MAX, .flags = TCP_ACK | TCP_PSH },
    { "tcp4-tiny-limit", .gso_type = GSO_TCPV4, .segment = 536,
      .payload = 1500, .limit = 0, .flags = TCP_ACK },
    { "tcp4-odd", .gso_type = GSO_TCPV4, .segment = 333, .payload = 999,
      .limit = 700, .flags = TCP_ACK },
    { "tcp4-big-endian", .gso_type = GSO_TCPV4, .segment = 1448,
      .payload = 5000, .limit = 1514, .flags = TCP_ACK, .big_endian = true },
    { "tcp6", .v6 = true, .gso_type = GSO_TCPV6, .segment = 1428,
      .payload = 60001, .limit = 1514, .flags = TCP_ACK | TCP_PSH },
    { "tcp4-two-small", .gso_type = GSO_TCPV4, .segment = 1000,
      .payload = 1400, .limit = 1514, .flags = TCP_ACK | TCP_PSH },
    { "tcp4-one", .gso_type = GSO_TCPV4, .segment = 1448, .payload = 1448,
      .limit = 1514, .flags = TCP_ACK | TCP_PSH },
    { "udp4", .udp = true, .gso_type = GSO_UDP_L4, .segment = 1400,
      .payload = 7001, .limit = 1514 },
    { "udp6", .v6 = true, .udp = true, .gso_type = GSO_UDP_L4,
      .segment = 1200, .payload = 12000, .limit = 3000 },
};

/* ---- what is not cut */

static void take_whole(IdletimeCut *cut, const Frame *f, IdletimePiece *piece)
{
    g_assert_cmpint(idletime_cut_size(cut, 1514), ==, f->size - VNET);
    idletime_cut_next(cut, 1514, piece);
    g_assert_cmpint(idletime_cut_left(cut), ==, 0);
    g_assert_cmpint(piece->header_bytes, ==, VNET);
    g_assert_cmpint(piece->payload_offset, ==, VNET);
    g_assert_cmpint(piece->payload_bytes, ==, f->size - VNET);
}

/* Leaves as one frame that asks for no segmentation: the link refuses it. */
static void assert_whole(IdletimeCut *cut, const Frame *f)
{
    IdletimePiece piece;

    g_assert_cmpint(cut->kind, ==, IDLETIME_CUT_WHOLE);
    take_whole(cut, f, &piece);
    g_assert_cmpint(piece.header[1], ==, 0);
    g_assert_cmpint(get16(piece.header + 4), ==, 0);
}

/* Leaves as it was when it was looked at, whatever became of its header. */
static void assert_as_asked(Frame *f)
{
    uint8_t header[VNET];
    IdletimePiece piece;
    IdletimeCut cut;

    g_assert_true(begin(&cut, f, false));
    g_assert_cmpint(cut.kind, ==, IDLETIME_CUT_AS_ASKED);
    memcpy(header, f->byte, VNET);
    f->byte[1] = GSO_TCPV4;
    f->byte[4] = 1;
    take_whole(&cut, f, &piece);
    g_assert_cmpmem(piece.header, VNET, header, VNET);
    memcpy(f->byte, header, VNET);
}

/* Each of these changes makes it nothing that we cut. */
static void test_refused(void)
{
    static const struct {
        const char *what;
        size_t at;
        uint8_t value;
    } change[] = {
        { "no checksum asked for", 0, 0 },
        { "an unknown kind", 1, 7 },
        { "another version", 1, GSO_TCPV6 },
        { "another protocol", 1, GSO_UDP_L4 },
        { "checksum from elsewhere", 6, 33 },
        { "IP length too short", VNET + 14 + 2, 1 },
        { "protocol UDP", VNET + 14 + 9, IPPROTO_UDP },
        { "a fragment", VNET + 14 + 6, 0x20 },
        { "short TCP header", VNET + 14 + 20 + 12, 0x40 },
    };
    IdletimeCut cut;

    for (unsigned i = 0; i < G_N_ELEMENTS(change); i++) {
        Frame *f = make(&cases[0]);

        g_assert_true(begin(&cut, f, false));
        f->byte[change[i].at] = change[i].value;
        g_test_message("%s", change[i].what);
        g_assert_true(begin(&cut, f, false));
        assert_whole(&cut, f);
        g_free(f);
    }
}

/* The host makes IP fragments of a large datagram. */
static void test_datagram(void)
{
    const Case c = { .udp = true, .gso_type = GSO_UDP, .segment = 1480,
                     .payload = 65000, .limit = 1514 };
    Frame *f = make(&c);

    assert_as_asked(f);
    /* Nor where a flag is set that such a packet has no use for. */
    f->byte[1] |= GSO_ECN;
    assert_as_asked(f);
    g_free(f);
}

/*
 * Of tiny segments the wire would carry mostly headers, so each is asked for
 * by itself, whatever the limit.  Fragments of a datagram are not ours to make.
 */
static void test_tiny_segments(void)
{
    static const Case tiny[] = {
        { .gso_type = GSO_TCPV4, .segment = 63, .payload = 1400,
          .limit = 1514, .flags = TCP_ACK },
        { .gso_type = GSO_TCPV4, .segment = 1, .payload = 60,
          .limit = SIZE_MAX, .flags = TCP_ACK },
        { .udp = true, .gso_type = GSO_UDP_L4, .segment = 40, .payload = 801,
          .limit = 1514 },
    };
    const Case c = { .udp = true, .gso_type = GSO_UDP, .segment = 8,
                     .payload = 1400 };
    IdletimeCut cut;
    Frame *f = make(&c);

    g_assert_true(begin(&cut, f, false));
    assert_whole(&cut, f);
    g_free(f);
    for (unsigned i = 0; i < G_N_ELEMENTS(tiny); i++) {
        uint32_t done = 0, bytes;

        f = make(&tiny[i]);
        g_assert_true(begin(&cut, f, false));
        while (idletime_cut_left(&cut)) {
            bytes = take(&tiny[i], &cut, f, done);
            g_assert_cmpint(bytes, ==,
                            MIN(tiny[i].segment, tiny[i].payload - done));
            done += bytes;
        }
        g_assert_cmpint(done, ==, tiny[i].payload);
        g_free(f);
    }
}

static void test_segment_size(void)
{
    Case c = cases[0];
    IdletimeCut cut;
    Frame *f;

    c.segment = 0;
    f = make(&c);
    g_assert_true(begin(&cut, f, false));
    assert_whole(&cut, f);
    g_assert_true(idletime_cut_asks_for_segments(&cut));
    /* Nor is what asks for none. */
    f->byte[1] = 0;
    assert_as_asked(f);
    g_assert_true(begin(&cut, f, false));
    g_assert_false(idletime_cut_asks_for_segments(&cut));
    g_free(f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *path = g_strdup_printf("/cut/%s", cases[i].name);

        g_test_add_data_func(path, &cases[i], test_case);
    }
    g_test_add_func("/cut/datagram", test_datagram);
    g_test_add_func("/cut/refused", test_refused);
    g_test_add_func("/cut/segment-size", test_segment_size);
    g_test_add_func("/cut/tiny-segments", test_tiny_segments);
    return g_test_run();
}
