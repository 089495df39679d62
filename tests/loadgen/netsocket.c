/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sockets of netload, and its parameters as JSON. */
#define _GNU_SOURCE
#include "netload.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* Generous for a guest under TCG that shares processors. */
    CONNECT_MS = 10000,
    /* So that the sink never is what loses packets. */
    SINK_BUFFER_BYTES = 4 << 20,
};

static struct sockaddr_in address(const char *host, unsigned port)
{
    struct sockaddr_in result = { .sin_family = AF_INET };

    result.sin_port = htons(port);
    if (inet_pton(AF_INET, host, &result.sin_addr) != 1) {
        fail("--host %s: use a numeric IPv4 address", host);
    }
    return result;
}

static void set(int fd, int level, int name, int value)
{
    if (setsockopt(fd, level, name, &value, sizeof(value)) != 0) {
        fail("socket option %d of level %d: %s", name, level, strerror(errno));
    }
}

static int new_socket(const Net *net)
{
    int fd = socket(AF_INET, (net->tcp ? SOCK_STREAM : SOCK_DGRAM) |
                    SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        fail("socket: %s", strerror(errno));
    }
    return fd;
}

/* The error with which a non-blocking connect ended; 0: connected. */
static int connect_error(int fd, int error)
{
    struct pollfd wait = { .fd = fd, .events = POLLOUT };
    socklen_t size = sizeof(error);

    if (error != EINPROGRESS) {
        return error;
    }
    if (poll(&wait, 1, CONNECT_MS) != 1) {
        return ETIMEDOUT;
    }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

int open_client(const Net *net)
{
    struct sockaddr_in peer;
    int fd = new_socket(net), error = 0;

    if (!net->host) {
        fail("--host ADDRESS is missing");
    }
    peer = address(net->host, net->port);
    set(fd, SOL_SOCKET, SO_SNDBUF, net->buffer_bytes);
    if (net->dscp) {
        set(fd, IPPROTO_IP, IP_TOS, net->dscp << 2);
    }
    if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) != 0) {
        error = connect_error(fd, errno);
    }
    if (error) {
        fail("%s port %u: %s", net->host, net->port, strerror(error));
    }
    return fd;
}

int open_server(const Net *net)
{
    struct sockaddr_in own = address(net->host ? net->host : "0.0.0.0",
                                     net->port);
    int fd = new_socket(net);

    set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (!net->tcp) {
        set(fd, SOL_SOCKET, SO_RCVBUFFORCE, SINK_BUFFER_BYTES);
    }
    if (bind(fd, (struct sockaddr *)&own, sizeof(own)) != 0 ||
        (net->tcp && listen(fd, CONNECTIONS_MAX) != 0)) {
        fail("port %u: %s", net->port, strerror(errno));
    }
    return fd;
}

void print_net(const char *command, const Net *net)
{
    printf("{\"command\": \"%s\", \"protocol\": \"%s\", \"port\": %u, "
           "\"planned_seconds\": %.3f, \"dscp\": %u, "
           "\"priority\": \"%s\"",
           command, net->tcp ? "tcp" : "udp", net->port, net->seconds,
           net->dscp, net->priority);
}
