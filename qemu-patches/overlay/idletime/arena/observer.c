/*
 * Idletime arena: the observer in the kernel, as one more foreground source.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/arena/guard.h"
#include "idletime/arena/observer.h"
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>

/* Looks at a connection that brings nothing, a second each. */
#define PATIENCE 3
/* linux/magic.h; a BPF map is such a file, and no file that has a size is. */
#define ANONYMOUS_FS 0x09041934

/* ---- the page */

static bool map_page(IdletimeObserver *o, int flags, int fd)
{
    return mmap((void *)o->page, IDLETIME_OBSERVED_BYTES, PROT_READ,
                flags | MAP_FIXED, fd, 0) != MAP_FAILED;
}

static void hide_page(IdletimeObserver *o)
{
    map_page(o, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static bool reserve_page(IdletimeObserver *o, IdletimeError *err)
{
    void *page = mmap(NULL, IDLETIME_OBSERVED_BYTES, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) {
        return idletime_fail(err, "cannot map a page for an observer: %s",
                             strerror(errno));
    }
    o->page = page;
    o->guard = idletime_guard_add(page, IDLETIME_OBSERVED_BYTES);
    return o->guard >= 0 ||
           idletime_fail(err, "more than %d arena boards and observers in one "
                         "process", IDLETIME_GUARDS);
}

/* Mapped elsewhere first: where that fails, nothing is at the page's place. */
static bool can_be_mapped(int fd)
{
    void *probe = mmap(NULL, IDLETIME_OBSERVED_BYTES, PROT_READ, MAP_SHARED,
                       fd, 0);

    if (probe == MAP_FAILED) {
        return false;
    }
    munmap(probe, IDLETIME_OBSERVED_BYTES);
    return true;
}

static bool is_kernel_object(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == ANONYMOUS_FS;
}

static bool show_page(IdletimeObserver *o, int fd)
{
    if (!o->any_file && !is_kernel_object(fd)) {
        return idletime_fail(&o->why, "what it sent is a file and no BPF map");
    }
    __atomic_store_n(&o->before, UINT64_MAX, __ATOMIC_RELAXED);
    if (!can_be_mapped(fd) || !map_page(o, MAP_SHARED, fd)) {
        idletime_fail(&o->why, "what it sent cannot be mapped for reading: %s",
                      strerror(errno));
        hide_page(o);
        return false;
    }
    if (!idletime_observer_intact(o)) {
        idletime_fail(&o->why, "its page has magic %" PRIx64 " and version %"
                      PRIu32 ", must have %llx and %d: use idletime-observer "
                      "of the version of this QEMU", o->page->magic,
                      o->page->version, IDLETIME_OBSERVED_MAGIC,
                      IDLETIME_OBSERVED_VERSION);
        hide_page(o);
        return false;
    }
    __atomic_store_n(&o->before,
                     __atomic_load_n(&o->page->started, __ATOMIC_RELAXED),
                     __ATOMIC_RELAXED);
    return true;
}

/* ---- the connection */

static void close_greeting(IdletimeObserver *o)
{
    if (o->greeting >= 0) {
        close(o->greeting);
        o->greeting = -1;
    }
}

static IdletimeObserverNews refuse(IdletimeObserver *o)
{
    close_greeting(o);
    o->refused++;
    return IDLETIME_OBSERVER_REFUSED;
}

static bool name_of(const IdletimeObserver *o, const char *file, char *name)
{
    return snprintf(name, PATH_MAX, "%s/%s", o->base, file) < PATH_MAX;
}

/*
 * By the root directory that the arena was opened under: the process may have
 * another one now.  A socket cannot be connected by a descriptor, so /proc
 * names it; where there is none, the path may do.
 */
static int connect_socket(const IdletimeObserver *o, int s)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char name[PATH_MAX];
    int place, result;

    if (!name_of(o, IDLETIME_OBSERVED_SOCKET, name)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    place = openat(o->root, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (place < 0) {
        return -1;
    }
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d",
             place);
    result = connect(s, (struct sockaddr *)&address, sizeof(address));
    if (result < 0 && errno == ENOENT &&
        strlen(name) + 1 < sizeof(address.sun_path)) {
        snprintf(address.sun_path, sizeof(address.sun_path), "/%.*s",
                 (int)sizeof(address.sun_path) - 2, name);
        result = connect(s, (struct sockaddr *)&address, sizeof(address));
    }
    close(place);
    return result;
}

/* Nobody there, left by one that died, or so busy that it is asked again. */
static bool is_absence(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ECONNREFUSED ||
           error == EAGAIN;
}

/*
 * Before anything is received: what a stranger sends may block who closes it.
 * All QEMUs of libvirt run as one user, so that this user is no reason to
 * trust; a test's observer has the test's user.
 */
static bool check_peer(IdletimeObserver *o, int s)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return idletime_fail(&o->why, "cannot tell who it is: %s",
                             strerror(errno));
    }
    return peer.uid == 0 || (o->any_file && peer.uid == geteuid()) ||
           idletime_fail(&o->why, "it runs as user %u and must be root",
                         (unsigned)peer.uid);
}

static IdletimeObserverNews begin_greeting(IdletimeObserver *o)
{
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error;

    if (s >= 0 && connect_socket(o, s) == 0) {
        o->greeting = s;
        if (!check_peer(o, s)) {
            return refuse(o);
        }
        o->patience = PATIENCE;
        return IDLETIME_OBSERVER_NO_NEWS;
    }
    error = errno;
    if (s >= 0) {
        close(s);
    }
    if (is_absence(error)) {
        return IDLETIME_OBSERVER_NO_NEWS;
    }
    idletime_fail(&o->why, "cannot connect to '/%s/%s': %s", o->base,
                  IDLETIME_OBSERVED_SOCKET, strerror(error));
    return refuse(o);
}

/* The one descriptor of @msg; -1: there is none. */
static int descriptor_of(struct msghdr *msg)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    int fd = -1;

    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(fd))) {
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    }
    return fd;
}

/*
 * Room for one descriptor: the kernel closes what more is sent.
 * Returns what recvmsg() does.
 */
static ssize_t receive(IdletimeObserver *o, int *fd)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec iov = { &byte, 1 };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int)),
    };
    ssize_t n = recvmsg(o->greeting, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *fd = n > 0 ? descriptor_of(&msg) : -1;
    return n;
}

/*
 * The connection before the page: until the page is there, who looks may see
 * what the one before left in service, and has to believe it for a moment.
 */
static bool keep_link(IdletimeObserver *o)
{
    if (o->link < 0) {
        __atomic_store_n(&o->link, o->greeting, __ATOMIC_RELEASE);
    } else if (dup3(o->greeting, o->link, O_CLOEXEC) < 0) {
        return idletime_fail(&o->why, "cannot keep its connection: %s",
                             strerror(errno));
    } else {
        close(o->greeting);
    }
    o->greeting = -1;
    return true;
}

/* Not alive any more, whatever the other side does. */
static void cut_link(IdletimeObserver *o)
{
    shutdown(o->link, SHUT_RDWR);
}

static IdletimeObserverNews accept_page(IdletimeObserver *o, int fd)
{
    bool ok = keep_link(o);

    if (ok && !show_page(o, fd)) {
        cut_link(o);
        ok = false;
    }
    close(fd);
    if (!ok) {
        return refuse(o);
    }
    o->linked = true;
    o->came++;
    return IDLETIME_OBSERVER_CAME;
}

static IdletimeObserverNews hear_greeting(IdletimeObserver *o)
{
    int fd;
    ssize_t n = receive(o, &fd);

    if (n < 0 && (errno == EAGAIN || errno == EINTR) && --o->patience) {
        return IDLETIME_OBSERVER_NO_NEWS;
    }
    if (n == 0) {
        /* It ended, or has too many of us. */
        close_greeting(o);
        return IDLETIME_OBSERVER_NO_NEWS;
    }
    if (fd < 0) {
        idletime_fail(&o->why, n < 0 ? "it sends nothing" :
                               "it sent no descriptor");
        return refuse(o);
    }
    return accept_page(o, fd);
}

/* ---- watching */

/* Where one may not ask any more, the answer stays. */
static void look_for_declaration(IdletimeObserver *o)
{
    char name[PATH_MAX];
    struct stat st;
    bool there;

    if (name_of(o, IDLETIME_OBSERVED_DECLARED, name)) {
        there = fstatat(o->root, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there || errno == ENOENT || errno == ENOTDIR) {
            __atomic_store_n(&o->declared, there, __ATOMIC_RELAXED);
        }
    }
}

static IdletimeObserverNews note_death(IdletimeObserver *o)
{
    cut_link(o);
    hide_page(o);
    o->linked = false;
    o->died++;
    return IDLETIME_OBSERVER_DIED;
}

IdletimeObserverNews idletime_observer_watch(IdletimeObserver *o)
{
    IdletimeObserverNews news = IDLETIME_OBSERVER_NO_NEWS;

    look_for_declaration(o);
    if (o->linked) {
        if (idletime_observer_intact(o) && idletime_observer_alive(o)) {
            return news;
        }
        /* The next one is looked for at the next look, and the death told. */
        return note_death(o);
    }
    if (o->greeting < 0) {
        news = begin_greeting(o);
    }
    return o->greeting >= 0 ? hear_greeting(o) : news;
}

/* ---- asking */

bool idletime_observer_alive(const IdletimeObserver *o)
{
    struct pollfd link = {
        .fd = __atomic_load_n(&o->link, __ATOMIC_ACQUIRE),
        .events = POLLRDHUP,
    };

    /* Interrupted or without memory: the careful answer. */
    return link.fd >= 0 && poll(&link, 1, 0) <= 0;
}

IdletimeObserverState idletime_observer_state(const IdletimeObserver *o)
{
    if (idletime_observer_intact(o) && idletime_observer_alive(o)) {
        return IDLETIME_OBSERVER_SEEN;
    }
    return __atomic_load_n(&o->declared, __ATOMIC_RELAXED) ?
           IDLETIME_OBSERVER_LOST : IDLETIME_OBSERVER_ABSENT;
}

/* ---- life */

bool idletime_observer_open(IdletimeObserver *o, const IdletimeArena *arena,
                            IdletimeError *err)
{
    *o = (IdletimeObserver) {
        .guard = -1, .link = -1, .greeting = -1,
        .root = fcntl(arena->root, F_DUPFD_CLOEXEC, 0),
        .base = strdup(arena->base),
    };
    if (o->root < 0 || !o->base) {
        idletime_fail(err, "cannot look for an observer of arena '%s': %s",
                      arena->path, strerror(errno));
    } else if (reserve_page(o, err)) {
        /* Now: the process may lose its root directory or its rights. */
        idletime_observer_watch(o);
        return true;
    }
    idletime_observer_close(o);
    return false;
}

void idletime_observer_close(IdletimeObserver *o)
{
    if (!o->base && !o->page) {
        return;     /* never opened: its zeros are no descriptors */
    }
    idletime_guard_remove(o->guard);
    if (o->page) {
        munmap((void *)o->page, IDLETIME_OBSERVED_BYTES);
    }
    close_greeting(o);
    if (o->link >= 0) {
        close(o->link);
    }
    if (o->root >= 0) {
        close(o->root);
    }
    free(o->base);
    *o = (IdletimeObserver) { 0 };
}
