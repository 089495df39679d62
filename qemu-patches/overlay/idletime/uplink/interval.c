/*
 * Idletime uplink: the interval of an uplink, from the time of its packets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A foreground packet is an event: how long the link takes for it is not
 * known, so there is nothing of which a budget could be a share.  But it is
 * known which gaps within a burst an interval has to outlast: those of a
 * sender that waits for acknowledgements.  Receivers send one for two packets,
 *
 *   sent        ##        ##        ##             ##: two packets
 *   received      .         .         .            one comes for each two that
 *               |-- two packets' time --|          the link has sent
 *
 * so at 10 Mbit/s its gaps are 2.5 ms, and 0.25 ms at 100 Mbit/s, where the
 * round trip and the host's wake-ups are longer than that.  Hence
 *
 *   interval = max(2 ms, time of four full packets)
 *
 * and the time of a packet is that of our own which met no foreground.
 */
#include "qemu/osdep.h"
#include "idletime/uplink/frame.h"
#include "idletime/uplink/interval.h"
#include "idletime/core/recent.h"

#define PACKETS         4
/*
 * A round trip on a LAN takes less than 1 ms, but a guest whose processor is
 * wanted by others pauses in mid-burst: on a busy host a greedy TCP sender kept
 * 85 % at 1 ms, 90 % at 2 ms and 92 % at 5 ms.
 */
#define LEAST_NS        (2 * 1000 * 1000LL)
/* A packet of 1 s: 12 kbit/s. */
#define PACKET_MAX_NS   (1000 * 1000 * 1000LL)
/* A smaller one's time is not its bytes'. */
#define BYTES_MIN       1000
/* Less is no mean; memory. */
#define KNOWN           16
#define MEMORY          64

void idletime_uplink_note(IdletimeUplinkPackets *u, uint32_t bytes, uint32_t n,
                          int64_t took_ns)
{
    double each_ns = (double)MIN(MAX(took_ns, 0), PACKET_MAX_NS) / MAX(n, 1);

    if (bytes < BYTES_MIN) {
        return;
    }
    idletime_recent_limit(&u->sum_ns, &u->count, MEMORY - 1);
    u->sum_ns += each_ns * (IDLETIME_FRAME_FULL + IDLETIME_FRAME_EXTRA) /
                 (bytes + IDLETIME_FRAME_EXTRA);
    u->count++;
}

int64_t idletime_uplink_interval(const IdletimeUplinkPackets *u,
                                 int64_t safe_ns)
{
    return u->count < KNOWN ? safe_ns :
           MAX((int64_t)(PACKETS * u->sum_ns / u->count), LEAST_NS);
}
