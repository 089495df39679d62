/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The sender: fills its sockets in turn, backs off when all are full. */
#define _GNU_SOURCE
#include "netload.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* A tenth of what the queue of a link holds in time. */
    PACE_MS = 1,
};

typedef struct Sender {
    const Net *net;
    int fds[CONNECTIONS_MAX];
    Stamp stamps[CONNECTIONS_MAX];
    uint64_t bytes, writes, back_offs;
    uint64_t quantum_start; /* bytes, when this quantum began */
    int64_t quantum_ns;     /* when it began */
    char block[DATAGRAM_MAX];
} Sender;

/* One write; false: the socket takes no more now. */
static bool send_one(Sender *sender, unsigned i)
{
    Stamp *stamp = &sender->stamps[i];
    ssize_t sent;

    stamp->sent_ns = now_ns();
    memcpy(sender->block, stamp, sizeof(*stamp));
    sent = send(sender->fds[i], sender->block, sender->net->block_bytes, 0);
    if (sent > 0) {
        stamp->number++;
        sender->bytes += sent;
        sender->writes++;
        return true;
    }
    /* A refused datagram is reported once: somebody answered with ICMP. */
    if (errno != EAGAIN && errno != ENOBUFS && errno != EINTR &&
        errno != ECONNREFUSED) {
        fail("send to %s port %u: %s", sender->net->host, sender->net->port,
             strerror(errno));
    }
    return false;
}

/* Bytes that may have been written by now: the quantum's bound, and the pace. */
static uint64_t allowed(const Sender *sender)
{
    const Net *net = sender->net;
    uint64_t most = net->quantum_bytes ? net->quantum_bytes : UINT64_MAX / 2;

    if (net->pace_mbit) {
        uint64_t paced = (now_ns() - sender->quantum_ns) / NS_PER_US *
                         net->pace_mbit / 8;

        most = paced < most ? paced : most;
    }
    return sender->quantum_start + most;
}

static void back_off(unsigned ms, int64_t until_ns)
{
    int64_t back_ns = now_ns() + ms * (int64_t)NS_PER_MS;

    sleep_until(back_ns < until_ns ? back_ns : until_ns);
}

/* Write to the sockets in turn until all are full, or the time has come. */
static void fill(Sender *sender, int64_t until_ns)
{
    bool progress = true;

    if (sender->bytes >= allowed(sender)) {
        back_off(PACE_MS, until_ns);
        return;
    }
    while (progress && !stop_requested && now_ns() < until_ns &&
           sender->bytes < allowed(sender)) {
        progress = false;
        for (unsigned i = 0; i < sender->net->connections; i++) {
            progress |= send_one(sender, i);
        }
    }
    if (!progress) {
        sender->back_offs++;
        back_off(sender->net->back_off_ms, until_ns);
    }
}

static bool quantum_is_done(const Sender *sender)
{
    return sender->net->quantum_bytes &&
           sender->bytes >= sender->quantum_start + sender->net->quantum_bytes;
}

/* Of this process, in the place of nice and chrt, which a guest may lack. */
static void take_priority(const char *name)
{
    const struct sched_param none = { 0 };

    if ((strcmp(name, "nice") == 0 && setpriority(PRIO_PROCESS, 0, 19) != 0) ||
        (strcmp(name, "idle") == 0 &&
         sched_setscheduler(0, SCHED_IDLE, &none) != 0)) {
        fail("--priority %s: %s", name, strerror(errno));
    }
}

static void run(Sender *sender, int64_t begin_ns)
{
    const Net *net = sender->net;
    int64_t quantum_ns = net->quantum_ms * (int64_t)NS_PER_MS;
    int64_t end_ns = begin_ns + (int64_t)(net->seconds * NS_PER_S);
    int64_t start_ns = begin_ns;

    while (!stop_requested && now_ns() < end_ns) {
        int64_t next_ns = start_ns + quantum_ns;
        /* A paced sender that was late makes up for it. */
        int64_t busy_ns = net->pace_mbit ?
            next_ns : start_ns + quantum_ns * net->intensity / 100;

        busy_ns = busy_ns < end_ns ? busy_ns : end_ns;
        sender->quantum_start = sender->bytes;
        sender->quantum_ns = start_ns;
        while (!stop_requested && now_ns() < busy_ns &&
               !quantum_is_done(sender)) {
            fill(sender, busy_ns);
        }
        sleep_until(next_ns < end_ns ? next_ns : end_ns);
        start_ns = next_ns;
    }
}

/* The kernel's word on the connections: retransmissions, smallest delay. */
static void print_tcp(const Sender *sender)
{
    uint32_t retransmitted = 0, rtt_us = 0;

    for (unsigned i = 0; i < sender->net->connections; i++) {
        struct tcp_info info = { 0 };
        socklen_t size = sizeof(info);

        getsockopt(sender->fds[i], IPPROTO_TCP, TCP_INFO, &info, &size);
        retransmitted += info.tcpi_total_retrans;
        rtt_us = info.tcpi_rtt > rtt_us ? info.tcpi_rtt : rtt_us;
    }
    printf(", \"retransmitted\": %u, \"rtt_us\": %u", retransmitted, rtt_us);
}

static void close_at_once(int fd)
{
    const struct linger none = { .l_onoff = 1, .l_linger = 0 };

    /* What is left in the buffer must not run into the next measurement. */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    close(fd);
}

void net_send(const Net *net)
{
    static Sender sender;
    int64_t begin_ns;

    sender.net = net;
    take_priority(net->priority);
    memset(sender.block, 'i', sizeof(sender.block));
    for (unsigned i = 0; i < net->connections; i++) {
        sender.fds[i] = open_client(net);
    }
    begin_ns = now_ns();
    run(&sender, begin_ns);
    print_net("send", net);
    printf(", \"connections\": %u, \"block_bytes\": %u, \"buffer_bytes\": %u, "
           "\"back_off_ms\": %u, \"intensity_percent\": %u, "
           "\"quantum_ms\": %u, \"quantum_bytes\": %" PRIu64 ", "
           "\"pace_mbit\": %u, \"bytes\": %" PRIu64 ", \"writes\": %" PRIu64
           ", \"back_offs\": %" PRIu64 ", \"seconds\": %.6f",
           net->connections, net->block_bytes, net->buffer_bytes,
           net->back_off_ms, net->intensity, net->quantum_ms,
           net->quantum_bytes, net->pace_mbit, sender.bytes,
           sender.writes, sender.back_offs,
           (double)(now_ns() - begin_ns) / NS_PER_S);
    if (net->tcp) {
        print_tcp(&sender);
    }
    puts("}");
    fflush(stdout);
    for (unsigned i = 0; i < net->connections; i++) {
        close_at_once(sender.fds[i]);
    }
}
