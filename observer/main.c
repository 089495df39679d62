/*
 * Idletime observer: shows background VMs the foreground that the kernel sees.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "observer.h"

#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

bool page_open(Source *source, int map_fd, IdletimeObservedKind kind,
               const char *label)
{
    static IdletimeObserved head;
    uint32_t first = 0;

    head.magic = IDLETIME_OBSERVED_MAGIC;
    head.version = IDLETIME_OBSERVED_VERSION;
    head.kind = kind;
    snprintf(head.label, sizeof(head.label), "%s", label);
    /*
     * A descriptor that is open for reading only cannot be mapped; but nobody
     * can write a frozen map, only programs can.
     */
    if (bpf_map_update_elem(map_fd, &first, &head, BPF_ANY) < 0 ||
        bpf_map_freeze(map_fd) < 0) {
        return fail("the map cannot be frozen: %s", strerror(errno));
    }
    source->page = mmap(NULL, IDLETIME_OBSERVED_BYTES, PROT_READ, MAP_SHARED,
                        map_fd, 0);
    if (source->page == MAP_FAILED) {
        return fail("the map cannot be mapped: %s", strerror(errno));
    }
    source->page_fd = map_fd;
    return true;
}

static const char usage[] =
    "Usage: idletime-observer --arena DIR --disk DEVICE [--background-cgroup PATH ...]\n"
    "                         [--background-cgroups FILE] [--idle-class-is-background]\n"
    "       idletime-observer --arena DIR --uplink INTERFACE [--background-interface NAME ...]\n"
    "                         [--background-interfaces FILE]\n"
    "Shows the background VMs of an arena what the kernel sees of the foreground.\n"
    "It prints 'ready' and runs until SIGTERM. See idletime-observer(8).\n";

enum { ARENA = 1, DISK, UPLINK, GROUP, GROUPS, NIC, NICS, IDLE, RAW, HELP };

static const struct option names[] = {
    { "arena", required_argument, NULL, ARENA },
    { "disk", required_argument, NULL, DISK },
    { "uplink", required_argument, NULL, UPLINK },
    { "background-cgroup", required_argument, NULL, GROUP },
    { "background-cgroups", required_argument, NULL, GROUPS },
    { "background-interface", required_argument, NULL, NIC },
    { "background-interfaces", required_argument, NULL, NICS },
    { "idle-class-is-background", no_argument, NULL, IDLE },
    { "old-kernel", no_argument, NULL, RAW },
    { "help", no_argument, NULL, HELP },
    { 0 },
};

static bool take_option(int option, Options *o, bool *disk_only,
                        bool *uplink_only)
{
    *disk_only |= option == GROUP || option == GROUPS || option == IDLE;
    *uplink_only |= option == NIC || option == NICS;
    switch (option) {
    case ARENA:
        o->arena = optarg;
        return true;
    case DISK:
        o->disk = optarg;
        return true;
    case UPLINK:
        o->uplink = optarg;
        return true;
    case GROUP:
    case NIC:
        o->background[o->backgrounds++] = optarg;
        return true;
    case GROUPS:
    case NICS:
        o->list = optarg;
        return true;
    case IDLE:
        return o->idle_class = true;
    case RAW:
        return o->raw = true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, Options *o)
{
    bool disk_only = false, uplink_only = false;
    int option;

    o->background = calloc(argc, sizeof(*o->background));
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (option == HELP) {
            fputs(usage, stdout);
            exit(0);
        }
        if (!take_option(option, o, &disk_only, &uplink_only)) {
            return fail("see --help");
        }
    }
    if (optind < argc) {
        return fail("'%s' is no option: see --help", argv[optind]);
    }
    if (!o->arena || !o->disk == !o->uplink) {
        return fail("give --arena DIR and either --disk DEVICE or "
                    "--uplink INTERFACE");
    }
    if (o->disk ? uplink_only : disk_only) {
        return fail(o->disk ?
                    "--background-interface goes with --uplink; a disk's "
                    "background is told by --background-cgroup" :
                    "--background-cgroup and --idle-class-is-background go "
                    "with --disk; an uplink's background is told by "
                    "--background-interface");
    }
    return true;
}

static int on_libbpf(enum libbpf_print_level level, const char *format,
                     va_list ap)
{
    return getenv("OBSERVER_DEBUG") ? vfprintf(stderr, format, ap) : 0;
}

/* Made before anything else, so that an early SIGTERM is not lost. */
static int signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Until a signal (true), or nothing is left to do (false). */
static bool run(const Source *source, int signal_fd)
{
    struct pollfd fds[] = {
        { .fd = signal_fd, .events = POLLIN },
        { .fd = serve_descriptor(), .events = POLLIN },
    };
    uint64_t next_ns = now_ns();

    for (;;) {
        uint64_t now = now_ns();

        if (now >= next_ns) {
            if (!source->tick()) {
                return false;
            }
            serve_tick();
            next_ns = now + TICK_MS * 1000000ULL;
        }
        poll(fds, 2, (next_ns - now) / 1000000 + 1);
        if (fds[0].revents) {
            return true;
        }
        serve_events();
    }
}

int main(int argc, char **argv)
{
    int signal_fd = signals();
    Options options = { 0 };
    Source source = { 0 };
    bool well;

    libbpf_set_print(on_libbpf);
    if (!parse(argc, argv, &options)) {
        warn("%s", what());
        return 2;
    }
    if (!(options.disk ? disk_open(&options, &source) :
                         uplink_open(&options, &source)) ||
        !serve_open(options.arena, &source) ||
        (source.start && !source.start(&options, &source)) ||
        !rights_drop(source.net_admin)) {
        warn("%s", what());
        serve_close();
        if (source.close) {
            source.close();
        }
        return 1;
    }
    puts("ready");
    fflush(stdout);
    well = run(&source, signal_fd);
    if (!well) {
        warn("%s", what());
    }
    serve_close();
    source.close();
    return well ? 0 : 1;
}
