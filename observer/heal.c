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
 * What was lost stays lost: it is the least excess of all looks of some ticks,
 * and what the foreground has lost of it is no more than its own least.
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
    uint32_t foreground;        /* all that is in service */
} Excess;

static struct {
    char directory[64];         /* of the device, in sysfs */
    Excess least[TICKS];
    unsigned ticks;             /* that are in it */
} heal;

static bool is_off(const char *directory, char path[128])
{
    char line[8];

    snprintf(path, 128, "%s/queue/iostats", directory);
    return read_line(path, line, sizeof(line)) && line[0] == '0';
}

bool heal_is_counted(void)
{
    char path[128];

    return !is_off(heal.directory, path);
}

bool heal_open(const char *leaf)
{
    char path[128];

    snprintf(heal.directory, sizeof(heal.directory), "/sys/block/%s", leaf);
    for (char *c = heal.directory + strlen("/sys/block/"); *c; c++) {
        *c = *c == '/' ? '!' : *c;  /* sysfs cannot have a / in a name */
    }
    return !is_off(heal.directory, path) ||
           fail("%s is 0: requests do not know when they were made, and the "
                "kernel counts none: write 1 into it", path);
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
    char path[128], line[64];
    glob_t parts;

    snprintf(path, sizeof(path), "%s/inflight", heal.directory);
    if (!read_line(path, line, sizeof(line)) ||
        sscanf(line, "%u %u", &reads, &writes) != 2) {
        return false;
    }
    snprintf(path, sizeof(path), "%s/stat", heal.directory);
    sum = in_stat(path);
    snprintf(path, sizeof(path), "%s/*/stat", heal.directory);
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
static uint32_t positive(const uint32_t *count)
{
    uint32_t value = __atomic_load_n(count, __ATOMIC_SEQ_CST);

    return value <= INT32_MAX ? value : 0;
}

static uint64_t begun(const IdletimeObserved *page, const uint64_t *background)
{
    return __atomic_load_n(&page->started, __ATOMIC_SEQ_CST) +
           __atomic_load_n(background, __ATOMIC_SEQ_CST);
}

static void keep_least(Excess *least, uint32_t all, uint32_t foreground)
{
    least->all = all < least->all ? all : least->all;
    least->foreground = foreground < least->foreground ? foreground :
                                                         least->foreground;
}

/* Without effect where something began meanwhile. */
static bool look(const IdletimeObserved *page, const uint64_t *background,
                 Excess *least, unsigned *told)
{
    uint64_t before = begun(page, background);
    uint32_t kernel, all, foreground;

    if (!count_kernel(&kernel)) {
        return access(heal.directory, F_OK) == 0;   /* no descriptor left? */
    }
    all = positive(&page->all_in_service);
    foreground = positive(&page->in_service);
    if (begun(page, background) == before) {
        keep_least(least, all > kernel ? all - kernel : 0, foreground);
        (*told)++;
    }
    return true;
}

/* The least of the last ticks; what is found begins the search anew. */
static struct correction least_of_ticks(Excess least)
{
    memmove(heal.least + 1, heal.least,
            sizeof(heal.least) - sizeof(*heal.least));
    heal.least[0] = least;
    if (heal.ticks < TICKS && ++heal.ticks < TICKS) {
        return (struct correction) { 0 };
    }
    for (unsigned i = 1; i < TICKS; i++) {
        keep_least(&least, heal.least[i].all, heal.least[i].foreground);
    }
    if (least.all) {
        heal_forget();
    }
    return (struct correction) {
        .lost = least.all,
        .lost_foreground = least.all < least.foreground ? least.all :
                                                          least.foreground,
    };
}

bool heal_look(const IdletimeObserved *page, const uint64_t *background,
               struct correction *correction)
{
    struct timespec pause = { .tv_nsec = LOOK_NS };
    Excess least = { UINT32_MAX, UINT32_MAX };
    unsigned told = 0;

    *correction = (struct correction) { 0 };
    for (int i = 0; i < LOOKS && least.all; i++) {
        if (i) {
            nanosleep(&pause, NULL);
        }
        if (!look(page, background, &least, &told)) {
            return false;
        }
    }
    if (told) {
        *correction = least_of_ticks(least);
    }
    return true;
}
