/*
 * Fuzz target: arbitrary bytes on both boards under a background participant.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Input: a Head, then patches of the boards (a PatchHead and bytes each) and
 * steps.  A living tenant in slot 0 of the foreground board is put back in
 * service when the head says so: then nothing on the boards may start us.
 */
#include "qemu/osdep.h"
#include "idletime/arena/foreground.h"
#include "idletime/arena/guard.h"
#include "idletime/arena/look.h"
#include "idletime/arena/tokens.h"
#include "idletime/arena/turns.h"
#include "idletime/arena/wake.h"
#include <sys/stat.h>

#define CHECK(condition) do { if (!(condition)) { \
    fprintf(stderr, "broken: %s\n", #condition); abort(); } } while (0)

/* Pages of the boards that a background participant reads. */
#define REACH (IDLETIME_PAGE_BYTES + IDLETIME_SLOTS * sizeof(IdletimeFgLine))

typedef struct __attribute__((packed)) Head {
    uint8_t flags, max_inflight;
    uint32_t interval_us, max_hold_us;
    int64_t now_ns;
} Head;

enum { KEEP_HEADER = 1, TENANT = 2, SANE_TIME = 4 };

typedef struct __attribute__((packed)) PatchHead {
    uint8_t what;               /* bit 0: board; 1..3: step; 4..7: repeat */
    uint16_t at;                /* in units of 8 bytes */
    uint8_t size;
} PatchHead;

static IdletimeArena arena;
static IdletimeBoard fg, bg, fg_read;
static IdletimeSlot tenant, self;
static uint8_t *clean_fg, *clean_bg;

static void *copy_of(const IdletimeBoard *board, size_t size)
{
    return memcpy(malloc(size), board->map, size);
}

static void must(bool ok, const IdletimeError *err)
{
    if (!ok) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const files[] = {
        "foreground", "foreground.lock", "foreground.alive",
        "background", "background.lock", "background.alive",
    };
    char dir[] = "/tmp/idletime-fuzz-XXXXXX", path[64];
    IdletimeError err;
    IdletimeFgWriter writer;

    (void)argc, (void)argv;
    CHECK(mkdtemp(dir));
    must(idletime_arena_open(&arena, dir, &err), &err);
    must(idletime_board_open(&fg, &arena, IDLETIME_BOARD_FOREGROUND, true,
                             &err) &&
         idletime_board_open(&fg_read, &arena, IDLETIME_BOARD_FOREGROUND,
                             false, &err) &&
         idletime_board_open(&bg, &arena, IDLETIME_BOARD_BACKGROUND, true,
                             &err) &&
         idletime_slot_claim(&fg, &tenant, "tenant", &err) &&
         idletime_slot_claim(&bg, &self, "self", &err), &err);
    idletime_fg_attach(&writer, &fg, &tenant);
    clean_fg = copy_of(&fg, REACH);
    clean_bg = copy_of(&bg, bg.size);
    /* The files stay as long as they are mapped. */
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        unlink(path);
    }
    CHECK(rmdir(dir) == 0);
    return 0;
}

/* ---- what the input does */

typedef struct Run {
    IdletimeScan scan;
    IdletimeRule rule;
    IdletimeCore core;
    IdletimeGrant grant;
    bool granted;
    int64_t now_ns;
    uint8_t flags;
} Run;

static void patch(const Run *run, PatchHead head, const uint8_t *bytes,
                  size_t size)
{
    const IdletimeBoard *board = head.what & 1 ? &bg : &fg;
    size_t reach = MIN(board->size, REACH);
    size_t at = head.at * 8 % reach;

    for (unsigned n = 0; n <= head.what >> 4 && size; n++) {
        memcpy((uint8_t *)board->map + at, bytes, MIN(size, reach - at));
        /* The same on the next lines, to fill many slots from few bytes. */
        at = (at + IDLETIME_LINE_BYTES) % reach;
    }
    if (run->flags & KEEP_HEADER) {
        memcpy(fg.map, clean_fg, offsetof(IdletimeBoardHeader, kind));
        memcpy(bg.map, clean_bg, offsetof(IdletimeBoardHeader, kind));
    }
    if (run->flags & TENANT) {
        IdletimeFgLine *line = &idletime_fg_board(&fg)->line[tenant.index];

        line->in_service = 1;
        ((IdletimeBoardHeader *)fg.map)->slots_high = 1;
    }
}

static bool header_ok(const IdletimeBoard *board)
{
    const IdletimeBoardHeader *h = board->map;

    return h->magic == IDLETIME_ARENA_MAGIC && h->abi == IDLETIME_ARENA_ABI;
}

static void look(Run *run)
{
    IdletimeView view = idletime_scan(&run->scan, &run->rule, run->now_ns);
    IdletimeVerdict verdict =
        idletime_core_ask(&run->core, &run->rule, &view, run->now_ns,
                          run->now_ns);
    int next;

    CHECK(view.blind == !(header_ok(&fg) && header_ok(&bg)));
    CHECK(view.fg_in_service <= IDLETIME_SLOTS);
    CHECK(view.bg_in_service <= MIN(run->rule.max_inflight, IDLETIME_TOKENS));
    CHECK(verdict.kind != IDLETIME_START || !view.blind);
    if (run->flags & TENANT && !view.blind) {
        CHECK(view.fg_in_service && verdict.kind != IDLETIME_START);
    }
    next = idletime_scan_next(&run->scan, view.fg_last_ns, run->now_ns);
    CHECK(next >= -1 && next < IDLETIME_SLOTS);
    CHECK(!view.others_first || (uint32_t)next != self.index);
    CHECK(!view.overdue_first || view.others_first);
    if (next >= 0) {
        idletime_scan_skip(&run->scan, next, run->now_ns);
        /* At the end of time there is no later to skip it until. */
        CHECK(run->now_ns == INT64_MAX ||
              idletime_scan_next(&run->scan, view.fg_last_ns, run->now_ns) !=
                  next);
    }
}

static void take(Run *run)
{
    if (run->granted) {
        idletime_token_give(&run->scan, run->grant);
    }
    run->granted = idletime_token_take(&run->scan, &run->rule, run->now_ns,
                                       &run->grant);
    CHECK(!run->granted || run->grant.index < run->rule.max_inflight);
    CHECK(!run->granted || run->grant.index < IDLETIME_TOKENS);
}

static void step(Run *run, PatchHead head)
{
    switch (head.what >> 1 & 7) {
    case 0: look(run); break;
    case 1: take(run); break;
    case 2:
        idletime_bg_enter(&run->scan, run->rule.interval_ns,
                          idletime_core_due_ns(&run->rule, run->now_ns),
                          head.at);
        break;
    case 3: idletime_bg_started(&run->scan); break;
    case 4: idletime_bg_done(&run->scan, (int64_t)head.at << 47); break;
    case 5: idletime_bg_wake(run->scan.bg, head.at); break;
    case 6: idletime_scan_skip(&run->scan, head.at, run->now_ns); break;
    case 7: idletime_bg_leave(&run->scan); break;
    }
}

static Run begin(Head head)
{
    Run run = {
        .scan = { .fg = &fg_read, .bg = &bg, .self = self.index },
        .rule = { head.interval_us * 1000LL, head.max_hold_us * 1000LL,
                  MAX(head.max_inflight, 1) },
        .now_ns = head.flags & SANE_TIME ? head.now_ns & 0xffffffffff :
                                           head.now_ns,
        .flags = head.flags,
    };
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };

    memcpy(fg.map, clean_fg, REACH);
    memcpy(bg.map, clean_bg, bg.size);
    idletime_core_init(&run.core, &nothing);
    patch(&run, (PatchHead) { 0 }, NULL, 0);
    return run;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    PatchHead patch_head;
    Head head;
    Run run;

    if (size < sizeof(head)) {
        return 0;
    }
    memcpy(&head, data, sizeof(head));
    run = begin(head);
    data += sizeof(head);
    size -= sizeof(head);
    while (size >= sizeof(patch_head)) {
        memcpy(&patch_head, data, sizeof(patch_head));
        data += sizeof(patch_head);
        size -= sizeof(patch_head);
        patch_head.size = MIN(patch_head.size, size);
        patch(&run, patch_head, data, patch_head.size);
        step(&run, patch_head);
        data += patch_head.size;
        size -= patch_head.size;
    }
    look(&run);
    return 0;
}
