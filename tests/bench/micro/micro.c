/*
 * One JSON line per measurement; asserts no time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "micro.h"
#include <sys/stat.h>

int64_t micro_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * SEC + ts.tv_nsec;
}

void micro_must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "idletime-micro: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts. */
double micro_median(double *value, size_t count)
{
    qsort(value, count, sizeof(*value), by_value);
    return value[count / 2];
}

IdletimeSlot micro_claim(IdletimeBoard *board)
{
    IdletimeError err = { "" };
    IdletimeSlot slot;

    micro_must(idletime_slot_claim(board, &slot, "micro", &err), err.text);
    return slot;
}

static void begin(Bench *bench)
{
    IdletimeError err = { "" };

    strcpy(bench->dir, access("/dev/shm", W_OK) ? "/tmp/idletime-XXXXXX" :
                                                  "/dev/shm/idletime-XXXXXX");
    micro_must(mkdtemp(bench->dir), bench->dir);
    micro_must(idletime_arena_open(&bench->arena, bench->dir, &err), err.text);
    micro_must(idletime_board_open(&bench->fg, &bench->arena,
                                   IDLETIME_BOARD_FOREGROUND, true, &err) &&
               idletime_board_open(&bench->fg_read, &bench->arena,
                                   IDLETIME_BOARD_FOREGROUND, false, &err) &&
               idletime_board_open(&bench->bg, &bench->arena,
                                   IDLETIME_BOARD_BACKGROUND, true, &err),
               err.text);
    bench->self = micro_claim(&bench->bg);
    bench->scan = (IdletimeScan) { .fg = &bench->fg_read, .bg = &bench->bg,
                                   .self = bench->self.index };
}

static void end(Bench *bench)
{
    static const char *const files[] = {
        "foreground", "foreground.lock", "foreground.alive",
        "background", "background.lock", "background.alive",
    };
    char path[128];

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", bench->dir, files[i]);
        unlink(path);
    }
    micro_must(rmdir(bench->dir) == 0, bench->dir);
    idletime_slot_release(&bench->bg, &bench->self);
    idletime_board_close(&bench->fg);
    idletime_board_close(&bench->fg_read);
    idletime_board_close(&bench->bg);
    idletime_arena_close(&bench->arena);
}

int main(void)
{
    Bench bench;

    begin(&bench);
    printf("{\"what\": \"arena\", \"slots\": %d, \"foreground_bytes\": %zu, "
           "\"background_bytes\": %zu, \"bytes\": %zu}\n", IDLETIME_SLOTS,
           sizeof(IdletimeFgBoard), sizeof(IdletimeBgBoard),
           sizeof(IdletimeFgBoard) + sizeof(IdletimeBgBoard));
    micro_foreground(&bench);
    micro_background(&bench);
    micro_learner();
    micro_packet(&bench);
    end(&bench);
    return 0;
}
