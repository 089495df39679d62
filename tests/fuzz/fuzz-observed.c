/*
 * Fuzz target: arbitrary bytes on the page of an observer.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Input: steps, each a Step and bytes that are written over the page; then a
 * background participant looks and the learner reads.  The observer lives, so
 * what the page says is in service holds it back.
 */
#include "qemu/osdep.h"
#include "idletime/arena/guard.h"
#include "idletime/arena/look.h"
#include "idletime/arena/slot.h"
#include "idletime/learner/learner.h"
#include <sys/mman.h>
#include <sys/socket.h>

#define CHECK(condition) do { if (!(condition)) { \
    fprintf(stderr, "broken: %s\n", #condition); abort(); } } while (0)

typedef struct __attribute__((packed)) Step {
    uint16_t at;
    uint8_t size;
    uint8_t flags;              /* bit 0: magic and version are right */
    uint32_t later_us;
} Step;

static IdletimeArena arena;
static IdletimeBoard fg, bg;
static IdletimeSlot self;
static IdletimeObserver observer;
static uint8_t *page;
static IdletimeLearner learner;

static void must(bool ok, const IdletimeError *err)
{
    if (!ok) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char dir[] = "/tmp/idletime-fuzz-XXXXXX", command[64];
    IdletimeError err;
    int pair[2];

    (void)argc, (void)argv;
    CHECK(mkdtemp(dir));
    must(idletime_arena_open(&arena, dir, &err), &err);
    must(idletime_board_open(&fg, &arena, IDLETIME_BOARD_FOREGROUND, false,
                             &err) &&
         idletime_board_open(&bg, &arena, IDLETIME_BOARD_BACKGROUND, true,
                             &err) &&
         idletime_slot_claim(&bg, &self, "self", &err) &&
         idletime_observer_open(&observer, &arena, &err), &err);
    /* The files stay as long as they are mapped. */
    snprintf(command, sizeof(command), "rm -r %s", dir);
    CHECK(system(command) == 0);
    /* A peer that lives, and a page that we write. */
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    observer.link = pair[0];
    page = (uint8_t *)observer.page;
    CHECK(mprotect(page, IDLETIME_OBSERVED_BYTES, PROT_READ | PROT_WRITE) == 0);
    return 0;
}

static void write_page(const Step *step, const uint8_t *bytes)
{
    IdletimeObserved *observed = (IdletimeObserved *)page;
    size_t at = step->at % IDLETIME_OBSERVED_BYTES;

    memcpy(page + at, bytes, MIN(step->size, IDLETIME_OBSERVED_BYTES - at));
    if (step->flags & 1) {
        observed->magic = IDLETIME_OBSERVED_MAGIC;
        observed->version = IDLETIME_OBSERVED_VERSION;
    }
}

static void check_gaps(const IdletimeGaps *gaps, int64_t now_ns)
{
    int64_t last_ns = INT64_MIN;

    CHECK(gaps->busy == 0 || gaps->busy == 1);
    CHECK(gaps->count <= IDLETIME_GAPS_BATCH);
    for (uint32_t i = 0; i < gaps->count; i++) {
        CHECK(gaps->gap[i].begin_ns >= last_ns);
        CHECK(gaps->gap[i].end_ns >= gaps->gap[i].begin_ns);
        last_ns = gaps->gap[i].end_ns;
    }
    CHECK(last_ns <= now_ns);
}

static void look(IdletimeScan *scan, IdletimeCore *core, int64_t now_ns)
{
    const IdletimeRule rule = { 20000000, 5000000000, 1 };
    const IdletimeGoal goal = { 0.03, 20000000 };
    const IdletimeTotals totals = { .quiet = true };
    IdletimeView view = idletime_scan(scan, &rule, now_ns);
    IdletimeVerdict verdict = idletime_core_ask(core, &rule, &view, now_ns,
                                                now_ns);
    uint64_t before = learner.observed.total_ns;
    bool intact = idletime_observer_intact(&observer);
    bool busy = idletime_observed_in_service(observer.page) > 0;

    CHECK(!view.blind && !view.unseen);
    CHECK(view.fg_in_service == (intact && busy));
    CHECK(intact || !view.observed.started);
    CHECK(!view.fg_in_service || verdict.kind != IDLETIME_START);
    learner.gaps.observed = observer.page;
    idletime_learner_look(&learner, &goal, idletime_fg_board(&fg), 0, &totals,
                          now_ns);
    check_gaps(&learner.gaps, now_ns);
    CHECK(idletime_observed_time(&learner.observed, &view.observed, now_ns) >=
          before);
    CHECK(idletime_observer_state(&observer) ==
          (intact ? IDLETIME_OBSERVER_SEEN : IDLETIME_OBSERVER_ABSENT));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    IdletimeScan scan = {
        .fg = &fg, .bg = &bg, .observer = &observer, .self = self.index,
    };
    IdletimeView nothing = { .fg_last_ns = INT64_MIN };
    int64_t now_ns = 1000000000;
    IdletimeCore core;
    Step step;

    memset(page, 0, IDLETIME_OBSERVED_BYTES);
    idletime_core_init(&core, &nothing);
    idletime_learner_init(&learner, INT64_MIN);
    while (size >= sizeof(step)) {
        memcpy(&step, data, sizeof(step));
        data += sizeof(step);
        size -= sizeof(step);
        step.size = MIN(step.size, size);
        write_page(&step, data);
        data += step.size;
        size -= step.size;
        now_ns += step.later_us * 1000LL;
        look(&scan, &core, now_ns);
    }
    return 0;
}
