/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of netload share. */
#ifndef NETLOAD_H
#define NETLOAD_H

#include "pace.h"
#include "samples.h"

#include <netinet/in.h>
#include <stdbool.h>

enum {
    /* The dissertation uses three; more only measure the guest's scheduler. */
    CONNECTIONS_MAX = 16,
    /* The largest payload of a UDP datagram. */
    DATAGRAM_MAX = 65507,
};

typedef struct Net {
    bool tcp;
    const char *host; /* numeric IPv4 address */
    unsigned port;
    double seconds;
    /* send */
    unsigned connections;
    unsigned block_bytes;  /* of one write, or of one datagram */
    unsigned buffer_bytes; /* SO_SNDBUF */
    unsigned back_off_ms;  /* pause when all send buffers are full */
    unsigned intensity;    /* percent of the quantum */
    unsigned quantum_ms;
    uint64_t quantum_bytes; /* at most so many in a quantum; 0: no bound */
    unsigned pace_mbit; /* never faster than this within a quantum; 0: free */
    unsigned dscp;
    const char *priority; /* for the processor: normal, nice (19), idle */
    /* sink */
    unsigned bucket_ms;
    /* ask */
    unsigned every_ms; /* mean pause between a response and the next request */
    unsigned timeout_ms;
    uint64_t seed;
    const char *latency_file;
} Net;

/* The head of each datagram; the sink derives loss and jitter from it. */
typedef struct Stamp {
    uint64_t number; /* of the socket, from 0 */
    int64_t sent_ns; /* the sender's clock */
} Stamp;

/* netoptions.c: the rest of the command line. */
Net parse_net(int argc, char **argv);

/* netsocket.c: each fails with the address and the reason. */
int open_client(const Net *net);
int open_server(const Net *net);
void print_net(const char *command, const Net *net);

/* The four commands; each runs to its end, prints one JSON line, and leaves. */
void net_send(const Net *net);
void net_sink(const Net *net);
void net_ask(const Net *net);
void net_answer(const Net *net);

#endif
