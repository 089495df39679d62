/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A link as arithmetic: single server, rate, bounded queue, propagation delay. No clock, no I/O. */
#ifndef LINKMODEL_H
#define LINKMODEL_H

#include <stdint.h>

enum { LINK_DROPPED = -1 };

typedef struct LinkModel {
    uint64_t rate_bps;    /* bits a second; 0: serialization takes no time */
    int64_t delay_ns;     /* propagation */
    uint64_t queue_bytes; /* that wait or are in service; 0: no bound */
    int64_t free_ns;      /* when the server has sent all it has */
} LinkModel;

/*
 * A packet of so many bytes arrives now_ns, which never goes back. Returns
 * when its last bit reaches the other end, or LINK_DROPPED: the queue is full.
 */
int64_t link_arrive(LinkModel *link, int64_t now_ns, unsigned bytes);

#endif
