/*
 * Idletime tests: an observer that sees what the test says.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime-observer.h"
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Of a client that was told to connect; a loaded machine takes its time. */
#define ACCEPT_MS 10000

static void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

static void make_page(TestObserver *o)
{
    void *page;

    o->file = memfd_create("observed", MFD_CLOEXEC);
    must(o->file >= 0 && ftruncate(o->file, sizeof(*o->page)) == 0, "memfd");
    page = mmap(NULL, sizeof(*o->page), PROT_READ | PROT_WRITE, MAP_SHARED,
                o->file, 0);
    must(page != MAP_FAILED, "mmap");
    o->page = page;
    o->page->magic = IDLETIME_OBSERVED_MAGIC;
    o->page->version = IDLETIME_OBSERVED_VERSION;
    o->page->kind = IDLETIME_OBSERVED_DISK;
    strcpy(o->page->label, "disk");
}

void observer_start(TestObserver *o, const char *dir)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    make_page(o);
    o->client = -1;
    snprintf(o->path, sizeof(o->path), "%s/%s", dir, IDLETIME_OBSERVED_SOCKET);
    memcpy(address.sun_path, o->path, sizeof(o->path));
    unlink(o->path);
    o->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(o->listener >= 0 &&
         bind(o->listener, (struct sockaddr *)&address,
              sizeof(address)) == 0 &&
         listen(o->listener, 8) == 0, o->path);
}

static void hang_up(TestObserver *o)
{
    if (o->client >= 0) {
        close(o->client);
        o->client = -1;
    }
}

void observer_accept(TestObserver *o)
{
    struct pollfd p = { .fd = o->listener, .events = POLLIN };

    hang_up(o);
    must(poll(&p, 1, ACCEPT_MS) == 1, "nobody connects to the observer");
    o->client = accept4(o->listener, NULL, NULL, SOCK_CLOEXEC);
    must(o->client >= 0, "accept");
}

void observer_send(TestObserver *o, const void *bytes, size_t size, int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { .header = {
        .cmsg_len = CMSG_LEN(sizeof(int)),
        .cmsg_level = SOL_SOCKET,
        .cmsg_type = SCM_RIGHTS,
    } };
    struct iovec iov = { (void *)bytes, size };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (fd >= 0) {
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
    }
    must(sendmsg(o->client, &msg, MSG_NOSIGNAL) == (ssize_t)size, "sendmsg");
}

void observer_greet(TestObserver *o)
{
    char path[64];
    int fd;

    observer_accept(o);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", o->file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0, path);
    observer_send(o, "", 1, fd);
    close(fd);
}

size_t observer_flood(TestObserver *o)
{
    static const char rubbish[4096] = "rubbish";
    size_t sum = 0;
    ssize_t n;

    do {
        n = send(o->client, rubbish, sizeof(rubbish),
                 MSG_DONTWAIT | MSG_NOSIGNAL);
        sum += n > 0 ? n : 0;
    } while (n > 0);
    return sum;
}

void observer_die(TestObserver *o)
{
    hang_up(o);
    close(o->listener);
    close(o->file);
    munmap(o->page, sizeof(*o->page));
}

void observer_end(TestObserver *o)
{
    unlink(o->path);
    observer_die(o);
}

static void transition(IdletimeObserved *page, int64_t now_ns, bool busy)
{
    page->ring[page->ring_head % IDLETIME_OBSERVED_RING] =
        (uint64_t)now_ns << 1 | busy;
    page->ring_head++;
}

void observer_begin(TestObserver *o, int64_t now_ns, uint64_t bytes)
{
    o->page->last_ns = now_ns;
    o->page->started++;
    o->page->bytes += bytes;
    o->page->service_ns -= now_ns;
    if (o->page->in_service++ == 0) {
        transition(o->page, now_ns, true);
    }
}

void observer_finish(TestObserver *o, int64_t now_ns)
{
    o->page->last_ns = now_ns;
    o->page->service_ns += now_ns;
    if (--o->page->in_service == 0) {
        transition(o->page, now_ns, false);
    }
}
