/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Request and response: the latency probe, and who answers it. */
#define _GNU_SOURCE
#include "netload.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* Both ways; a small query, as to a cache or a name server. */
    MESSAGE_BYTES = 64,
    POLL_MS = 100,
};

typedef struct Message {
    uint64_t number;
    char rest[MESSAGE_BYTES - sizeof(uint64_t)];
} Message;

static void no_delay(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Wait for the response with this number; false: it did not come in time. */
static bool await_response(int fd, uint64_t wanted, int64_t until_ns)
{
    Message message;

    while (!stop_requested && now_ns() < until_ns) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        struct timespec left = { .tv_nsec = until_ns - now_ns() };

        left.tv_sec = left.tv_nsec / NS_PER_S;
        left.tv_nsec %= NS_PER_S;
        if (left.tv_nsec < 0 || ppoll(&wait, 1, &left, NULL) != 1) {
            continue;
        }
        if (recv(fd, &message, sizeof(message), MSG_DONTWAIT) ==
                sizeof(message) && message.number == wanted) {
            return true;
        }
    }
    return false;
}

/* Exponential pauses: a probe with a rhythm of its own might beat with the load's. */
static int64_t next_pause_ns(const Net *net, uint64_t *state)
{
    return -log(next_fraction(state)) * net->every_ms * NS_PER_MS;
}

static void ask_one(const Net *net, int fd, uint64_t number, int64_t begin_ns,
                    Samples *samples, uint64_t *lost)
{
    Message message = { .number = number };
    int64_t start_ns = now_ns();

    if (send(fd, &message, sizeof(message), 0) != sizeof(message) &&
        errno != EAGAIN && errno != ENOBUFS && errno != ECONNREFUSED) {
        fail("%s port %u: %s", net->host, net->port, strerror(errno));
    }
    /* A lost one counts with the time that was waited for it. */
    if (!await_response(fd, number,
                        start_ns + net->timeout_ms * (int64_t)NS_PER_MS)) {
        if (stop_requested) {
            return;
        }
        ++*lost;
    }
    add_sample(samples, begin_ns, start_ns, now_ns());
}

void net_ask(const Net *net)
{
    Samples samples = { 0 };
    uint64_t state = net->seed, number = 0, lost = 0;
    int fd = open_client(net);
    int64_t begin_ns = now_ns();
    int64_t end_ns = begin_ns + (int64_t)(net->seconds * NS_PER_S);

    if (net->tcp) {
        no_delay(fd);
    }
    while (!stop_requested && now_ns() < end_ns) {
        int64_t next_ns = now_ns() + next_pause_ns(net, &state);

        sleep_until(next_ns < end_ns ? next_ns : end_ns);
        if (now_ns() < end_ns) {
            ask_one(net, fd, number++, begin_ns, &samples, &lost);
        }
    }
    if (net->latency_file) {
        write_latencies(net->latency_file, &samples);
    }
    print_net("ask", net);
    printf(", \"every_ms\": %u, \"message_bytes\": %d, \"operations\": %zu, "
           "\"lost\": %" PRIu64 ", \"seconds\": %.6f", net->every_ms,
           MESSAGE_BYTES, samples.count, lost,
           (double)(now_ns() - begin_ns) / NS_PER_S);
    print_latencies(&samples);
    puts("}");
    free(samples.at);
}

/* Send back what came; false: the connection has ended. */
static bool answer_one(int fd)
{
    struct sockaddr_in from;
    socklen_t size = sizeof(from);
    Message message;
    ssize_t got = recvfrom(fd, &message, sizeof(message), MSG_DONTWAIT,
                           (struct sockaddr *)&from, &size);

    if (got > 0) {
        sendto(fd, &message, got, 0, (struct sockaddr *)&from, size);
    }
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* One client at a time. */
void net_answer(const Net *net)
{
    int server = open_server(net);
    struct pollfd wait = { .fd = server, .events = POLLIN };

    puts("{\"ready\": true}");
    fflush(stdout);
    while (!stop_requested) {
        if (poll(&wait, 1, POLL_MS) != 1) {
            continue;
        }
        if (net->tcp && wait.fd == server) {
            int fd = accept4(server, NULL, NULL, SOCK_NONBLOCK);

            wait.fd = fd < 0 ? server : fd;
            no_delay(wait.fd);
        } else if (!answer_one(wait.fd) && net->tcp) {
            close(wait.fd);
            wait.fd = server;
        }
    }
}
