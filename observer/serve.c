/*
 * Idletime observer: the socket in the arena's directory.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Who connects gets one byte and the page's descriptor, and then nothing; the
 * connection tells it that we live.  Nobody is waited for.
 *
 * The directory may go and come back; each tick looks.  It belongs to QEMU's
 * user, who may put anything in the place of anything there at any moment.  So
 * the socket gets its rights through a descriptor of its own (socket.c), and the
 * lock by which there is one observer of an arena is elsewhere (lock.c).
 */
#include "observer.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* As many as a board has slots; more is somebody's error or malice. */
#define CLIENTS     1024
/* Of one process: more than it has disks in one arena. */
#define CLIENTS_EACH 64
/* Descriptors of our own, besides the clients'. */
#define FILES       64

static struct {
    const char *arena;
    const Source *source;
    int epoll;
    Place place;                /* the socket */
    int lock;                   /* -1: none now */
    unsigned clients;
    pid_t client[CLIENTS + FILES];  /* who is at a descriptor; 0: nobody */
    bool deaf;                  /* no descriptor was left: until the next tick */
    bool complained;
} serve = { .place.listener = -1, .lock = -1, .epoll = -1 };

static void leave(void)
{
    if (serve.place.listener >= 0) {
        close(serve.place.listener);
        serve.place.listener = -1;
    }
    lock_leave(serve.lock);
    serve.lock = -1;
}

static void listen_for(uint32_t events, int operation)
{
    struct epoll_event event = {
        .events = events, .data.fd = serve.place.listener
    };

    epoll_ctl(serve.epoll, operation, serve.place.listener, &event);
}

static bool enter(void)
{
    leave();
    serve.lock = lock_arena(serve.arena);
    if (serve.lock < 0 || !place_socket(serve.arena, &serve.place)) {
        int error = errno;

        leave();
        errno = error;
        return false;
    }
    listen_for(EPOLLIN, EPOLL_CTL_ADD);
    return true;
}

bool serve_open(const char *arena, const Source *source)
{
    struct rlimit files = { CLIENTS + FILES, CLIENTS + FILES };

    if (setrlimit(RLIMIT_NOFILE, &files) < 0) {
        warn("%d descriptors cannot be had (%s), so fewer background VMs can "
             "connect: set LimitNOFILE=%d", CLIENTS + FILES, strerror(errno),
             CLIENTS + FILES);
    }
    serve.arena = arena;
    serve.source = source;
    serve.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (serve.epoll < 0) {
        return fail("epoll: %s", strerror(errno));
    }
    /* An arena that is not there yet is waited for; another observer is not. */
    if (!enter()) {
        if (errno != ENOENT) {
            return false;
        }
        warn("%s; waiting for it", what());
        serve.complained = true;
    }
    return true;
}

void serve_tick(void)
{
    if (serve.deaf) {
        listen_for(EPOLLIN, EPOLL_CTL_MOD);
        serve.deaf = false;
    }
    if (place_keep(serve.arena, &serve.place)) {
        return;
    }
    if (enter()) {
        if (serve.complained) {
            warn("'%s' is back", serve.arena);
        }
        serve.complained = false;
    } else if (!serve.complained) {
        warn("%s; waiting for it", what());
        serve.complained = true;
    }
}

int serve_descriptor(void)
{
    return serve.epoll;
}

static bool hand_over(int client)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec iov = { &byte, 1 };
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control, .msg_controllen = sizeof(control),
    };
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &serve.source->page_fd, sizeof(int));
    return sendmsg(client, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/* 0: not one of a process that has enough. */
static pid_t admit(int client)
{
    struct ucred peer = { 0 };
    socklen_t size = sizeof(peer);
    unsigned its = 0;

    if (serve.clients == CLIENTS || client >= CLIENTS + FILES ||
        getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
        return 0;
    }
    /* A process of another namespace has no number here. */
    peer.pid = peer.pid ?: -1;
    for (int i = 0; i < CLIENTS + FILES; i++) {
        its += serve.client[i] == peer.pid;
    }
    return its < CLIENTS_EACH ? peer.pid : 0;
}

static void welcome(void)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP };
    int client = accept4(serve.place.listener, NULL, NULL,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
    pid_t pid;

    if (client < 0) {
        if (is_short()) {
            listen_for(0, EPOLL_CTL_MOD);
            serve.deaf = true;
        }
        return;
    }
    event.data.fd = client;
    pid = admit(client);
    if (!pid || !hand_over(client) ||
        epoll_ctl(serve.epoll, EPOLL_CTL_ADD, client, &event) < 0) {
        close(client);
        return;
    }
    serve.client[client] = pid;
    serve.clients++;
}

/* What a client sends, or that it left, ends its connection. */
void serve_events(void)
{
    struct epoll_event event[16];
    int n = epoll_wait(serve.epoll, event, 16, 0);

    for (int i = 0; i < n; i++) {
        if (event[i].data.fd == serve.place.listener) {
            welcome();
        } else {
            close(event[i].data.fd);
            serve.client[event[i].data.fd] = 0;
            serve.clients--;
        }
    }
}

void serve_close(void)
{
    place_remove(serve.arena, &serve.place);
    leave();
}
