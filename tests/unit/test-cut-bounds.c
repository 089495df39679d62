/*
 * Cutting large packets: what is not cut, at the bounds of sizes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "large.h"

/* Nothing to be cut, though the guest asks for it: one frame that does not. */
static void test_no_payload(void)
{
    Case c = { .gso_type = GSO_TCPV4, .flags = TCP_ACK, .segment = 1448,
               .payload = 0 };
    Frame *f = make(&c);
    IdletimePiece piece;
    IdletimeCut cut;

    g_assert_true(begin(&cut, f, false));
    g_assert_cmpint(cut.kind, ==, IDLETIME_CUT_WHOLE);
    idletime_cut_next(&cut, 1514, &piece);
    g_assert_cmpuint(piece.header_bytes, ==, VNET);
    g_assert_cmpuint(piece.payload_offset, ==, VNET);
    g_assert_cmpuint(piece.payload_bytes, ==, f->size - VNET);
    g_assert_cmpint(piece.header[1], ==, 0);
    g_assert_cmpuint(idletime_cut_left(&cut), ==, 0);
    /* One byte is a payload: a segment. */
    g_free(f);
    c.payload = 1;
    f = make(&c);
    g_assert_true(begin(&cut, f, false));
    g_assert_cmpint(cut.kind, ==, IDLETIME_CUT_SEGMENTS);
    g_assert_cmpuint(idletime_cut_left(&cut), ==, 1);
    g_free(f);
}

/* The virtio-net header has 10 to 20 bytes. */
static void test_header(void)
{
    Case c = { .gso_type = GSO_TCPV4, .flags = TCP_ACK, .segment = 100,
               .payload = 1000 };
    Frame *f = make(&c);

    for (size_t bytes = 0; bytes < 30; bytes++) {
        uint8_t vnet[30] = { 0 };
        struct iovec iov[] = { { vnet, bytes },
                               { f->byte + VNET, f->size - VNET } };
        IdletimePacket packet;
        IdletimeCut cut;

        memcpy(vnet, f->byte, 10);
        idletime_packet_parse(iov, 2, bytes, &packet);
        g_assert_cmpint(idletime_cut_begin(&cut, iov, 2, bytes, false,
                                           &packet), ==,
                        bytes >= 10 && bytes <= 20);
        if (bytes >= 10 && bytes <= 20) {
            g_assert_cmpint(cut.kind, ==, IDLETIME_CUT_SEGMENTS);
            g_assert_cmpuint(idletime_cut_left(&cut), ==, 1000);
        }
    }
    g_free(f);
}

/* A packet that ends in its virtio-net header: no byte behind it is read. */
static void test_short(void)
{
    for (size_t bytes = 0; bytes <= VNET; bytes++) {
        g_autofree struct iovec *iov = g_new(struct iovec, 1);
        g_autofree uint8_t *data = g_malloc(bytes + 1);
        IdletimePacket packet;
        IdletimeCut cut;

        memset(data, 1, bytes);
        *iov = (struct iovec) { data, bytes };
        idletime_packet_parse(iov, 1, VNET, &packet);
        g_assert_cmpint(packet.kind, ==, IDLETIME_PACKET_UNKNOWN);
        g_assert_false(idletime_cut_begin(&cut, iov, 1, VNET, false, &packet));
    }
}

/* Less room than headers need: one segment, as there is no smaller piece. */
static void test_no_room(void)
{
    Case c = { .gso_type = GSO_TCPV4, .flags = TCP_ACK, .segment = 100,
               .payload = 1000 };
    const size_t headers = 14 + 20 + 32;
    Frame *f = make(&c);
    IdletimeCut cut;

    g_assert_true(begin(&cut, f, false));
    g_assert_cmpuint(idletime_cut_size(&cut, 0), ==, headers + 100);
    g_assert_cmpuint(idletime_cut_size(&cut, headers - 1), ==, headers + 100);
    g_assert_cmpuint(idletime_cut_size(&cut, headers), ==, headers + 100);
    g_assert_cmpuint(idletime_cut_size(&cut, headers + 199), ==,
                     headers + 100);
    g_assert_cmpuint(idletime_cut_size(&cut, headers + 200), ==,
                     headers + 200);
    g_free(f);
}

/* Whatever the addresses are: sums with no carry, with one and with two. */
static void test_sums(void)
{
    Case c = { .gso_type = GSO_TCPV4, .flags = TCP_ACK, .segment = 1448,
               .payload = 2896 };
    Frame *f = make(&c);
    uint8_t *ip = f->byte + VNET + 14, *tcp = ip + 20;

    for (uint32_t address = 0; address <= UINT16_MAX; address++) {
        IdletimePiece piece;
        IdletimeCut cut;
        uint8_t *made = piece.header + VNET + 14;
        uint32_t sum;

        ip[14] = address >> 8;
        ip[15] = address;
        sum = pseudo(ip, false, IPPROTO_TCP, 32 + 2896);
        tcp[16] = sum >> 8;
        tcp[17] = sum;
        g_assert_true(begin(&cut, f, false));
        idletime_cut_next(&cut, 1514, &piece);
        g_assert_cmphex(sum16(made, 20, 0), ==, 0xffff);
        g_assert_cmphex(get16(made + 20 + 16), ==,
                        pseudo(made, false, IPPROTO_TCP, 32 + 1448));
    }
    g_free(f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cut/no-payload", test_no_payload);
    g_test_add_func("/cut/header", test_header);
    g_test_add_func("/cut/short", test_short);
    g_test_add_func("/cut/no-room", test_no_room);
    g_test_add_func("/cut/sums", test_sums);
    return g_test_run();
}
