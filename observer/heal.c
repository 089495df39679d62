/*
 * Idletime observer: finds begins whose end was not told.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What the programs count over all classes is held against what the kernel
 * counts itself.  Both move while one looks, so:
 *
 *   inflight       leaves out a request between its completion and its end,
 *                  which waits for ksoftirqd: much longer than some ms where
 *                  there is more to do than processors.
 *   stat, field 9  since Linux 6.16 from a request's making to after its end,
 *                  before as inflight.  Those of the partitions may or may not
 *                  be in the disk's: they are added, so it is never too low.
 *
 * What was lost stays lost, so it is the least excess of all looks of some
 * ticks.  Whose it was is known from what else was least:
 *
 *   lost of a class  <=  least that was counted in service of that class
 *
 * so what exceeds the least of the one class is the other's.  For example 3
 * lost beside at least 2 of the background: 1 at least is the foreground's.
 * And of the foreground alone no more can be in service than the kernel has of
 * all, whatever the sum is: an end that was taken for the other class's shows
 * by that alone.
 *
 * What may be either's is the foreground's if it had no event for some ticks:
 * what is in service for so long is more likely lost.  Else it is left until
 * one of the two is idle at a look: until then the foreground is in service
 * anyway.
 */
#include "observer.h"

#include <glob.h>
#include <time.h>
#include <unistd.h>

#include "share.h"

#define LOOKS       8
#define LOOK_NS     2000000
/* One tick's looks may all be between completions and ends; three seldom are. */
#define TICKS       3

typedef struct Excess {
    uint32_t all;               /* more than the kernel has */
    uint32_t over;              /* the same, of the foreground alone */
    uint32_t foreground;        /* all that is in service, of each class */
    uint32_t background;
    int64_t last_ns;            /* of the foreground's events, at first */
} Excess;

static struct {
    char directory[PATH_MAX];   /* of the device, in sysfs */
    Excess least[TICKS];
    unsigned ticks;             /* that are in it */
} heal;

static void in_directory(char path[PATH_MAX + 32], const char *name)
{
    snprintf(path, PATH_MAX + 32, "%s/%s", heal.directory, name);
}

bool heal_is_counted(void)
{
    char path[PATH_MAX + 32], line[8];

    in_directory(path, "queue/iostats");
    return !read_line(path, line, sizeof(line)) || line[0] != '0';
}

bool heal_open(const char *leaf)
{
    const char *sys = getenv("OBSERVER_SYS") ?: "/sys";
    size_t before = strlen(sys) + strlen("/block/");

    heal_forget();
    snprintf(heal.directory, sizeof(heal.directory), "%s/block/%s", sys, leaf);
    for (size_t i = before; heal.directory[i]; i++) {
        if (heal.directory[i] == '/') {
            heal.directory[i] = '!';    /* sysfs cannot have a / in a name */
        }
    }
    return heal_is_counted() ||
           fail("%s/queue/iostats is 0: requests do not know when they were "
                "made, and the kernel counts none: write 1 into it",
                heal.directory);
}

void heal_forget(void)
{
    heal.ticks = 0;
}

/* Field 9 of a stat file. */
static unsigned in_stat(const char *path)
{
    char line[256];
    unsigned count;

    return read_line(path, line, sizeof(line)) &&
           sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %*s %u", &count) == 1 ?
           count : 0;
}

/* The kernel's own count; false when the device is gone. */
static bool count_kernel(uint32_t *count)
{
    unsigned reads, writes, sum;
    char path[PATH_MAX + 32], line[64];
    glob_t parts;

    in_directory(path, "inflight");
    if (!read_line(path, line, sizeof(line)) ||
        sscanf(line, "%u %u", &reads, &writes) != 2) {
        return false;
    }
    in_directory(path, "stat");
    sum = in_stat(path);
    in_directory(path, "*/stat");
    if (glob(path, GLOB_NOSORT, NULL, &parts) == 0) {
        for (size_t i = 0; i < parts.gl_pathc; i++) {
            sum += in_stat(parts.gl_pathv[i]);
        }
        globfree(&parts);
    }
    *count = reads + writes > sum ? reads + writes : sum;
    return true;
}

/* Too many ends show as a negative number for a moment. */
static uint32_t positive(uint32_t value)
{
    return value <= INT32_MAX ? value : 0;
}

/* What is counted in service: both numbers at one moment. */
static Excess counted(const IdletimeObserved *page)
{
    uint64_t both = __atomic_load_n((const uint64_t *)&page->in_service,
                                    __ATOMIC_SEQ_CST);
    uint32_t all = both >> 32, foreground = both;

    return (Excess) { .all = positive(all), .foreground = positive(foreground),
                      .background = positive(all - foreground) };
}

static uint64_t begun(const IdletimeObserved *page, const uint64_t *background)
{
    return __atomic_load_n(&page->started, __ATOMIC_SEQ_CST) +
           __atomic_load_n(background, __ATOMIC_SEQ_CST);
}

static uint32_t lesser(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

static uint32_t greater(uint32_t one, uint32_t other)
{
    return one > other ? one : other;
}

/* 0 where there is less. */
static uint32_t above(uint32_t one, uint32_t other)
{
    return one > other ? one - other : 0;
}

static void keep_least(Excess *least, Excess one)
{
    least->all = lesser(least->all, one.all);
    least->over = lesser(least->over, one.over);
    least->foreground = lesser(least->foreground, one.foreground);
    least->background = lesser(least->background, one.background);
}

/* Without effect where something began meanwhile. */
static bool look(const IdletimeObserved *page, const uint64_t *background,
                 Excess *least, unsigned *told)
{
    uint64_t before = begun(page, background);
    uint32_t kernel;
    Excess now;

    if (!count_kernel(&kernel)) {
        return access(heal.directory, F_OK) == 0;   /* no descriptor left? */
    }
    now = counted(page);
    if (begun(page, background) == before) {
        now.all = above(now.all, kernel);
        now.over = above(now.foreground, kernel);
        keep_least(least, now);
        (*told)++;
    }
    return true;
}

/* What each class lost: see above.  @still: no event of the foreground. */
static Excess lost_of(Excess least, bool still)
{
    uint32_t over = lesser(least.over, least.foreground);
    uint32_t foreground = still ? least.all :
                                  above(least.all, least.background);
    Excess lost = {
        .foreground = lesser(greater(foreground, lesser(over, least.all)),
                             least.foreground),
        .background = lesser(above(least.all, least.foreground),
                             least.background),
    };

    lost.all = lost.foreground + lost.background;
    lost.foreground = greater(lost.foreground, over);
    return lost;
}

/* As if it had never been counted, so that the ticks that were seen stay. */
static void take_from_ticks(Excess lost)
{
    for (unsigned i = 0; i < TICKS; i++) {
        heal.least[i].all -= lost.all;
        heal.least[i].over = above(heal.least[i].over, lost.foreground);
        heal.least[i].foreground -= lost.foreground;
        heal.least[i].background -= lost.background;
    }
}

/* Of the last ticks. */
static struct correction lost_in_ticks(Excess least)
{
    Excess lost;
    bool still;

    memmove(heal.least + 1, heal.least,
            sizeof(heal.least) - sizeof(*heal.least));
    heal.least[0] = least;
    if (heal.ticks < TICKS && ++heal.ticks < TICKS) {
        return (struct correction) { 0 };
    }
    for (unsigned i = 1; i < TICKS; i++) {
        keep_least(&least, heal.least[i]);
    }
    still = heal.least[TICKS - 1].last_ns == least.last_ns;
    lost = lost_of(least, still);
    take_from_ticks(lost);
    return (struct correction) {
        .lost = lost.all, .lost_foreground = lost.foreground,
    };
}

bool heal_look(const IdletimeObserved *page, const uint64_t *background,
               struct correction *correction)
{
    struct timespec pause = { .tv_nsec = LOOK_NS };
    Excess least = {
        UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
        __atomic_load_n(&page->last_ns, __ATOMIC_SEQ_CST),
    };
    unsigned told = 0;

    *correction = (struct correction) { 0 };
    for (int i = 0; i < LOOKS && (least.all || least.over); i++) {
        if (i) {
            nanosleep(&pause, NULL);
        }
        if (!look(page, background, &least, &told)) {
            return false;
        }
    }
    if (told) {
        *correction = lost_in_ticks(least);
    }
    return true;
}
