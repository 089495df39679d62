/*
 * Idletime cut: a large UDP datagram in IP fragments.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What the host's kernel would have done (RFC 791 section 2.3, RFC 8200
 * section 4.5; Linux: udp4_ufo_fragment(), udp6_ufo_fragment()):
 *
 *   virtio-net  asks for nothing
 *   IPv4        length, more-fragments and offset, header checksum
 *   IPv6        length; a fragment header of 8 bytes
 *   UDP         in the first fragment only, its checksum complete
 */
#include "qemu/osdep.h"
#include "idletime/packet/cut-impl.h"
#include <netinet/in.h>

#define FRAGMENT_BYTES          8   /* IPv6's header, and the unit of offsets */
#define IPV4_MORE               0x2000
#define IPV6_MORE               1

/* ---- the datagram */

/* The sum of all from @skip on; @sum is what it begins with. */
static uint16_t sum_from(const struct iovec *iov, unsigned count, size_t skip,
                         uint16_t sum)
{
    uint64_t total = sum;
    bool odd = false;

    for (unsigned i = 0; i < count; i++) {
        const uint8_t *byte = iov[i].iov_base;

        for (size_t k = MIN(skip, iov[i].iov_len); k < iov[i].iov_len; k++) {
            total += odd ? byte[k] : byte[k] << 8;
            odd = !odd;
        }
        skip -= MIN(skip, iov[i].iov_len);
    }
    while (total >> 16) {
        total = (total >> 16) + (total & 0xffff);
    }
    return total;
}

/* The field has the sum of the pseudo header; the rest is added to it. */
static void complete_checksum(IdletimeCut *cut, const struct iovec *iov,
                              unsigned count)
{
    uint8_t *udp = cut->header + cut->transport;
    uint32_t sum = idletime_get16(udp + UDP_LENGTH) +
                   idletime_get16(udp + UDP_CHECKSUM) +
                   idletime_get16(udp) + idletime_get16(udp + 2);
    uint16_t checksum = ~sum_from(iov, count, cut->header_bytes,
                                  idletime_fold(sum));

    /* 0 would say that there is none. */
    idletime_put16(udp + UDP_CHECKSUM, checksum ?: 0xffff);
}

bool idletime_fragment_begin(IdletimeCut *cut, const struct iovec *iov,
                             unsigned count, const IdletimePacket *packet)
{
    cut->segment_bytes -= cut->segment_bytes % FRAGMENT_BYTES;
    if (cut->segment_bytes <= UDP_BYTES ||
        (cut->version == 6 && cut->transport != cut->ip + IPV6_BYTES)) {
        return false;
    }
    if (cut->header[VNET_FLAGS] & FLAG_NEEDS_CSUM) {
        complete_checksum(cut, iov, count);
    }
    cut->kind = IDLETIME_CUT_FRAGMENTS;
    /* Of the contents: what has the same is the same, or another flow. */
    cut->id = packet->flow + 65537u * idletime_get16(cut->header +
                                                    cut->transport +
                                                    UDP_CHECKSUM);
    memset(cut->header, 0, cut->vnet_bytes);
    return true;
}

/* ---- one fragment */

/* The UDP header is the first one's. */
static uint16_t udp_bytes(const IdletimeCut *cut)
{
    return cut->done_bytes ? 0 : UDP_BYTES;
}

static uint16_t extension_bytes(const IdletimeCut *cut)
{
    return cut->version == 6 ? FRAGMENT_BYTES : 0;
}

uint32_t idletime_fragment_payload(const IdletimeCut *cut)
{
    uint32_t most = cut->segment_bytes - udp_bytes(cut);

    return MIN(most, idletime_cut_left(cut));
}

uint16_t idletime_fragment_headers(const IdletimeCut *cut)
{
    return cut->transport + extension_bytes(cut) + udp_bytes(cut);
}

static void write_ipv4(uint8_t *ip, size_t header_bytes, size_t data_bytes,
                       size_t offset, bool more)
{
    idletime_put16(ip + IPV4_LENGTH, header_bytes + data_bytes);
    idletime_put16(ip + IPV4_FRAGMENT,
                   offset / FRAGMENT_BYTES | (more ? IPV4_MORE : 0));
    idletime_ipv4_checksum(ip, header_bytes);
}

/* The offset's unit is 8 bytes, and it is the field's upper 13 bits. */
static void write_ipv6(uint8_t *ip, uint32_t id, size_t data_bytes,
                       size_t offset, bool more)
{
    uint8_t *extension = ip + IPV6_BYTES;

    extension[0] = ip[IPV6_NEXT];
    extension[1] = 0;
    idletime_put16(extension + 2, offset | (more ? IPV6_MORE : 0));
    idletime_put16(extension + 4, id >> 16);
    idletime_put16(extension + 6, id);
    ip[IPV6_NEXT] = IPPROTO_FRAGMENT;
    idletime_put16(ip + IPV6_LENGTH, FRAGMENT_BYTES + data_bytes);
}

void idletime_fragment_write(const IdletimeCut *cut, uint32_t payload,
                             uint8_t *header)
{
    uint8_t *ip = header + cut->ip;
    size_t data_bytes = udp_bytes(cut) + payload;
    size_t offset = cut->done_bytes ? UDP_BYTES + cut->done_bytes : 0;
    bool more = payload < idletime_cut_left(cut);

    memmove(header + cut->transport + extension_bytes(cut),
            cut->header + cut->transport, udp_bytes(cut));
    if (cut->version == 6) {
        write_ipv6(ip, cut->id, data_bytes, offset, more);
    } else {
        write_ipv4(ip, cut->transport - cut->ip, data_bytes, offset, more);
    }
}
