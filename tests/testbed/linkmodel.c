/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A link as arithmetic. */
#include "linkmodel.h"

enum { NS_PER_S = 1000000000, BITS = 8 };

static int64_t service_ns(const LinkModel *link, uint64_t bytes)
{
    if (!link->rate_bps) {
        return 0;
    }
    return (__int128)bytes * BITS * NS_PER_S / link->rate_bps;
}

int64_t link_arrive(LinkModel *link, int64_t now_ns, unsigned bytes)
{
    int64_t start_ns = link->free_ns > now_ns ? link->free_ns : now_ns;

    /* What is not sent yet, as time; the newcomer has to fit behind it. */
    if (link->queue_bytes && link->rate_bps &&
        start_ns - now_ns + service_ns(link, bytes) >
            service_ns(link, link->queue_bytes)) {
        return LINK_DROPPED;
    }
    link->free_ns = start_ns + service_ns(link, bytes);
    return link->free_ns + link->delay_ns;
}
