/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The sink: counts what arrives, in buckets of time; loss and jitter of datagrams. */
#define _GNU_SOURCE
#include "netload.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* After the end: what has arrived before it, as far as a buffer holds it. */
    LAST_ROUNDS = 1000,
    /* One call takes this much; about what comes while a host is busy. */
    BATCH = 64,
    POLL_MS = 100,
};

/* What is known of one sender's socket. */
typedef struct Flow {
    struct sockaddr_in from;
    uint64_t next;       /* number of the datagram that is expected */
    uint64_t datagrams;
    int64_t transit_ns;  /* of the last one; the clocks differ by a constant */
    double jitter_ns;    /* RFC 3550, section 6.4.1 */
} Flow;

typedef struct Sink {
    const Net *net;
    struct pollfd fds[1 + CONNECTIONS_MAX];
    unsigned count; /* of fds */
    int64_t begin_ns;
    uint64_t *buckets;
    size_t bucket_count;
    uint64_t bytes;
    Flow flows[CONNECTIONS_MAX];
    unsigned flow_count;
} Sink;

static void account(Sink *sink, uint64_t bytes)
{
    size_t at = (now_ns() - sink->begin_ns) / NS_PER_MS / sink->net->bucket_ms;

    sink->bytes += bytes;
    if (at < sink->bucket_count) {
        sink->buckets[at] += bytes;
    }
}

/* The flow of an address; NULL: there are more than we keep. */
static Flow *find_flow(Sink *sink, const struct sockaddr_in *from)
{
    for (unsigned i = 0; i < sink->flow_count; i++) {
        if (sink->flows[i].from.sin_port == from->sin_port &&
            sink->flows[i].from.sin_addr.s_addr == from->sin_addr.s_addr) {
            return &sink->flows[i];
        }
    }
    if (sink->flow_count == CONNECTIONS_MAX) {
        return NULL;
    }
    sink->flows[sink->flow_count].from = *from;
    return &sink->flows[sink->flow_count++];
}

static void track(Flow *flow, const Stamp *stamp)
{
    int64_t transit_ns = now_ns() - stamp->sent_ns;
    int64_t change_ns = transit_ns - flow->transit_ns;

    if (flow->datagrams++) {
        change_ns = change_ns < 0 ? -change_ns : change_ns;
        flow->jitter_ns += (change_ns - flow->jitter_ns) / 16;
    }
    flow->transit_ns = transit_ns;
    if (stamp->number >= flow->next) {
        flow->next = stamp->number + 1;
    }
}

static void take_datagrams(Sink *sink)
{
    static Stamp stamps[BATCH];
    static struct sockaddr_in from[BATCH];
    static struct iovec vectors[BATCH];
    static struct mmsghdr messages[BATCH];
    int count;

    for (unsigned i = 0; i < BATCH; i++) {
        vectors[i] = (struct iovec){ &stamps[i], sizeof(Stamp) };
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &from[i], .msg_namelen = sizeof(from[i]),
            .msg_iov = &vectors[i], .msg_iovlen = 1,
        };
    }
    /* MSG_TRUNC: the true length, though only the stamp is copied. */
    count = recvmmsg(sink->fds[0].fd, messages, BATCH,
                     MSG_DONTWAIT | MSG_TRUNC, NULL);
    for (int i = 0; i < count; i++) {
        Flow *flow = find_flow(sink, &from[i]);

        account(sink, messages[i].msg_len);
        if (flow && messages[i].msg_len >= sizeof(Stamp)) {
            track(flow, &stamps[i]);
        }
    }
}

static void take_connection(Sink *sink)
{
    int fd = accept4(sink->fds[0].fd, NULL, NULL, SOCK_NONBLOCK);

    if (fd < 0) {
        return;
    }
    if (sink->count > CONNECTIONS_MAX) {
        close(fd);
        return;
    }
    sink->fds[sink->count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
}

/* False: the connection has ended. */
static bool take_bytes(Sink *sink, int fd)
{
    /* With MSG_TRUNC, TCP drops the data instead of copying it. */
    ssize_t got = recv(fd, NULL, 1 << 20, MSG_DONTWAIT | MSG_TRUNC);

    if (got > 0) {
        account(sink, got);
        return true;
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

static void serve(Sink *sink)
{
    if (sink->fds[0].revents) {
        sink->net->tcp ? take_connection(sink) : take_datagrams(sink);
    }
    for (unsigned i = sink->count; i-- > 1;) {
        if (sink->fds[i].revents && !take_bytes(sink, sink->fds[i].fd)) {
            close(sink->fds[i].fd);
            sink->fds[i] = sink->fds[--sink->count];
        }
    }
}

static void print_flows(const Sink *sink)
{
    uint64_t lost = 0, datagrams = 0;
    double jitter_ns = 0;

    for (unsigned i = 0; i < sink->flow_count; i++) {
        const Flow *flow = &sink->flows[i];

        datagrams += flow->datagrams;
        lost += flow->next > flow->datagrams ? flow->next - flow->datagrams : 0;
        jitter_ns += flow->jitter_ns / sink->flow_count;
    }
    printf(", \"datagrams\": %" PRIu64 ", \"lost\": %" PRIu64
           ", \"jitter_us\": %.1f", datagrams, lost, jitter_ns / NS_PER_US);
}

static void print_sink(const Sink *sink)
{
    size_t used = sink->bucket_count;

    while (used && sink->buckets[used - 1] == 0) {
        used--;
    }
    print_net("sink", sink->net);
    printf(", \"bytes\": %" PRIu64 ", \"begin_ns\": %" PRId64
           ", \"bucket_ms\": %u", sink->bytes, sink->begin_ns,
           sink->net->bucket_ms);
    if (!sink->net->tcp) {
        print_flows(sink);
    }
    printf(", \"buckets\": [");
    for (size_t i = 0; i < used; i++) {
        printf("%s%" PRIu64, i ? ", " : "", sink->buckets[i]);
    }
    puts("]}");
}

void net_sink(const Net *net)
{
    static Sink sink;
    int64_t end_ns;

    sink.net = net;
    sink.bucket_count = net->seconds * 1000 / net->bucket_ms + 1;
    sink.buckets = calloc(sink.bucket_count, sizeof(uint64_t));
    if (!sink.buckets) {
        fail("no memory for %zu buckets", sink.bucket_count);
    }
    sink.fds[sink.count++] = (struct pollfd){
        .fd = open_server(net), .events = POLLIN,
    };
    sink.begin_ns = now_ns();
    end_ns = sink.begin_ns + (int64_t)(net->seconds * NS_PER_S);
    puts("{\"ready\": true}");
    fflush(stdout);
    while (!stop_requested && now_ns() < end_ns) {
        if (poll(sink.fds, sink.count, POLL_MS) > 0) {
            serve(&sink);
        }
    }
    for (int i = 0; i < LAST_ROUNDS && poll(sink.fds, sink.count, 0) > 0; i++) {
        serve(&sink);
    }
    print_sink(&sink);
    free(sink.buckets);
}
