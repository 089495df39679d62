/*
 * Idletime arena: the shared memory through which the participants of one
 * resource see each other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A directory with two files of fixed size.  The foreground board is written
 * by foreground participants, each in its own slot, and only read by the
 * others.  The background board belongs to the background participants.
 *
 * Linux only (open-file-description locks, futex).  Pure C with system calls:
 * the same file is compiled into QEMU, the unit tests and the fuzzers.
 */
#ifndef IDLETIME_ARENA_H
#define IDLETIME_ARENA_H

#include "idletime/core/core.h"

#define IDLETIME_ARENA_MAGIC    0x656d6974656c6469ULL   /* "idletime" */
#define IDLETIME_ARENA_ABI      2

/* 1,000 participants is the design's scale; a power of two above it. */
#define IDLETIME_SLOTS          1024
/* More than a disk with native command queueing takes (32), doubled. */
#define IDLETIME_TOKENS         64
/* Transitions kept a slot: 128 bursts, 12 s of the dissertation's load. */
#define IDLETIME_RING           256
#define IDLETIME_LABEL_BYTES    64
#define IDLETIME_PAGE_BYTES     4096
#define IDLETIME_LINE_BYTES     64

/*
 * First page of either board.  Fields are naturally aligned and of the
 * machine's endianness, which the magic makes part of the ABI.
 */
typedef struct IdletimeBoardHeader {
    uint64_t magic;
    uint32_t abi;
    uint32_t kind;              /* IdletimeBoardKind */
    uint32_t slots;
    uint32_t slots_high;        /* slots ever claimed: scans end here */
    uint64_t size_bytes;        /* of the file */
    uint64_t clock;             /* background: virtual time of the last start */
    int64_t uplink_free_ns;       /* background: the link clock (link.c) */
} IdletimeBoardHeader;

/*
 * What a scan reads of a foreground slot: one cache line, single writer.
 * in_service is stored last (release) and read first (acquire).
 */
typedef struct IdletimeFgLine {
    uint32_t in_service;
    uint32_t pid;               /* for people; liveness is the lock */
    int64_t last_ns;            /* CLOCK_MONOTONIC of the last event */
    uint64_t started;           /* requests */
    uint64_t bytes;
    uint64_t ring_head;         /* transitions ever written */
    uint64_t request_ns;        /* sum of the requests' times in service */
} __attribute__((aligned(IDLETIME_LINE_BYTES))) IdletimeFgLine;

/* The rest of a foreground slot: a page of its own. */
typedef struct IdletimeFgPage {
    char label[IDLETIME_LABEL_BYTES];
    uint64_t ring[IDLETIME_RING];   /* time_ns << 1 | busy */
} __attribute__((aligned(IDLETIME_PAGE_BYTES))) IdletimeFgPage;

/* A background slot; written by its owner, wake also by others. */
typedef struct IdletimeBgLine {
    uint32_t waiting;           /* holds requests and wants to start one */
    uint32_t wake;              /* futex: bumped to wake the owner */
    uint32_t weight;
    uint32_t in_service;
    uint64_t vtime_ns;          /* service time received * 100 / weight */
    int64_t interval_ns;        /* the owner's preemption interval */
    uint64_t started;           /* requests */
    int64_t due_ns;             /* deadline of the first that waits */
    uint32_t pid;
    uint64_t cost_ns;           /* foreground waited so long for our requests */
} __attribute__((aligned(IDLETIME_LINE_BYTES))) IdletimeBgLine;

_Static_assert(sizeof(IdletimeFgLine) == IDLETIME_LINE_BYTES &&
               sizeof(IdletimeBgLine) == IDLETIME_LINE_BYTES,
               "a scan reads one cache line a slot");

/*
 * A token is the right to have one background request in service: 0 is free,
 * else (slot + 1) << 48 | milliseconds of CLOCK_MONOTONIC when it was taken.
 * One word, so that taking it over from a dead owner is one compare-and-swap.
 */
typedef uint64_t IdletimeToken;
#define IDLETIME_TOKEN_SHIFT    48

typedef struct IdletimeFgBoard {
    union {
        IdletimeBoardHeader header;
        uint8_t header_page[IDLETIME_PAGE_BYTES];
    };
    IdletimeFgLine line[IDLETIME_SLOTS];
    IdletimeFgPage page[IDLETIME_SLOTS];
} IdletimeFgBoard;

typedef struct IdletimeBgBoard {
    union {
        IdletimeBoardHeader header;
        uint8_t header_page[IDLETIME_PAGE_BYTES];
    };
    union {
        IdletimeToken token[IDLETIME_TOKENS];
        uint8_t token_page[IDLETIME_PAGE_BYTES];
    };
    IdletimeBgLine line[IDLETIME_SLOTS];
} IdletimeBgBoard;

typedef enum IdletimeBoardKind {
    IDLETIME_BOARD_FOREGROUND = 1,
    IDLETIME_BOARD_BACKGROUND = 2,
} IdletimeBoardKind;

/* A mapped board.  Zero-initialise; idletime_board_open() fills it. */
typedef struct IdletimeBoard {
    IdletimeBoardKind kind;
    char *path;                 /* of the file */
    int fd;
    bool writable;
    void *map;
    size_t size;
    uint64_t inode;
    uint64_t device;
    int guard;                  /* index in the SIGBUS guard; -1: none */
} IdletimeBoard;

/* A claimed slot: its lock lives as long as fd, in this process only. */
typedef struct IdletimeSlot {
    int fd;                     /* -1: not claimed */
    uint32_t index;
} IdletimeSlot;

/* A reason in words: what, which file, which value, what to do. */
typedef struct IdletimeError {
    char text[512];
} IdletimeError;

/**
 * idletime_arena_create: make the directory and both boards where absent.
 * Boards appear complete or not at all, so that any number of processes may
 * call this at once.  Returns false with @err set.
 */
bool idletime_arena_create(const char *dir, IdletimeError *err);

/**
 * idletime_board_open: map a board of the arena in @dir.
 * @writable: needed to claim a slot
 * Size, magic, ABI version and kind are checked.  Returns false with @err set.
 */
bool idletime_board_open(IdletimeBoard *board, const char *dir,
                         IdletimeBoardKind kind, bool writable,
                         IdletimeError *err);
void idletime_board_close(IdletimeBoard *board);

/**
 * idletime_board_intact: is this still the board that others see?
 * Checks magic, version, size, and (@deep, two system calls) that the file is
 * still the one at its path.  A false answer is final for this mapping.
 */
bool idletime_board_intact(const IdletimeBoard *board, bool deep);

/**
 * idletime_slot_claim: take a free slot; it is zeroed.
 * @label: for people, e.g. the VM's name and device; cut to fit
 * The kernel gives the slot back when the process dies.
 * Returns false with @err set when all slots are taken.
 */
bool idletime_slot_claim(IdletimeBoard *board, IdletimeSlot *slot,
                         const char *label, IdletimeError *err);
void idletime_slot_release(IdletimeBoard *board, IdletimeSlot *slot);

/**
 * idletime_slot_alive: does a living process own slot @index?
 * One system call.  Context: any thread; no claim of our own is needed.
 */
bool idletime_slot_alive(const IdletimeBoard *board, uint32_t index);

/**
 * idletime_arena_sigbus: for the process's SIGBUS handler.
 * Returns true if @addr lies in a board (whose file was truncated under us);
 * the board is then private zeroed memory: writers write into the void,
 * readers find no magic.  Async-signal-safe.
 */
bool idletime_arena_sigbus(void *addr);

/* ---- foreground: the hot path; no call, lock or shared read-modify-write */

typedef struct IdletimeFgWriter {
    IdletimeFgLine *line;
    IdletimeFgPage *page;
    /* Our truth; the board only gets copies, so scribbles there heal. */
    uint32_t in_service;
    uint64_t started;
    uint64_t bytes;
    uint64_t ring_head;
    uint64_t request_ns;
    int64_t last_ns;
} IdletimeFgWriter;

void idletime_fg_attach(IdletimeFgWriter *w, IdletimeBoard *board,
                        const IdletimeSlot *slot);

/**
 * idletime_fg_move: go on in another slot, of another arena perhaps.
 * The new slot shows at once what is in service.  Context: the slot's thread.
 */
void idletime_fg_move(IdletimeFgWriter *w, IdletimeBoard *board,
                      const IdletimeSlot *slot, int64_t now_ns);

static inline void idletime_fg_transition(IdletimeFgWriter *w, int64_t now_ns,
                                          bool busy)
{
    uint64_t entry = (uint64_t)now_ns << 1 | busy;

    __atomic_store_n(&w->page->ring[w->ring_head % IDLETIME_RING], entry,
                     __ATOMIC_RELAXED);
    __atomic_store_n(&w->line->ring_head, ++w->ring_head, __ATOMIC_RELEASE);
}

/*
 * The sum over all requests of the time each was in service, kept without a
 * time stamp for each: as many as there are, for as long as there are.
 */
static inline void idletime_fg_account(IdletimeFgWriter *w, int64_t now_ns)
{
    w->request_ns += (uint64_t)(now_ns - w->last_ns) * w->in_service;
    w->last_ns = now_ns;
    __atomic_store_n(&w->line->request_ns, w->request_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&w->line->last_ns, now_ns, __ATOMIC_RELAXED);
}

/**
 * idletime_fg_begin: a foreground request is being issued.
 * @now_ns: CLOCK_MONOTONIC, as read by block accounting
 * Context: the one thread that owns the slot.
 */
static inline void idletime_fg_begin(IdletimeFgWriter *w, int64_t now_ns,
                                     uint64_t bytes)
{
    IdletimeFgLine *line = w->line;

    w->bytes += bytes;
    idletime_fg_account(w, now_ns);
    __atomic_store_n(&line->started, ++w->started, __ATOMIC_RELAXED);
    __atomic_store_n(&line->bytes, w->bytes, __ATOMIC_RELAXED);
    if (w->in_service++ == 0) {
        idletime_fg_transition(w, now_ns, true);
    }
    __atomic_store_n(&line->in_service, w->in_service, __ATOMIC_RELEASE);
}

/** idletime_fg_end: it completed.  Context: as idletime_fg_begin(). */
static inline void idletime_fg_end(IdletimeFgWriter *w, int64_t now_ns)
{
    IdletimeFgLine *line = w->line;

    idletime_fg_account(w, now_ns);
    if (--w->in_service == 0) {
        idletime_fg_transition(w, now_ns, false);
    }
    __atomic_store_n(&line->in_service, w->in_service, __ATOMIC_RELEASE);
}

/* ---- background */

typedef struct IdletimeScan IdletimeScan;

/* A slot that had its turn and let it pass. */
typedef struct IdletimeSkip {
    uint64_t started;           /* its requests then */
    int64_t until_ns;
    uint32_t times;             /* in a row; 0: never */
} IdletimeSkip;

/* What a look remembers from the one before. */
struct IdletimeScan {
    const IdletimeBoard *fg;    /* read-only is enough */
    const IdletimeBoard *bg;    /* writable */
    uint32_t self;              /* our background slot */
    uint32_t fg_high;           /* slots to scan; only grows, so that a */
    uint32_t bg_high;           /* scribbled header cannot hide one */
    IdletimeSkip skip[IDLETIME_SLOTS];
};

/**
 * idletime_scan: look at both boards.
 * @rule: interval (for turns), max_inflight, lease (max_hold)
 * @now_ns: CLOCK_MONOTONIC
 * Context: background only.  About 10 ns a slot; a system call for each slot
 * that seems to block us, to ask whether its owner lives.
 */
IdletimeView idletime_scan(IdletimeScan *scan, const IdletimeRule *rule,
                           int64_t now_ns);

/* Sums over the background slots; they shrink when one leaves. */
typedef struct IdletimeBgTotals {
    uint64_t started;           /* requests */
    uint64_t cost_ns;           /* foreground waited so long for them */
} IdletimeBgTotals;

/** idletime_scan_background: what all background participants did. */
IdletimeBgTotals idletime_scan_background(IdletimeScan *scan);

/**
 * idletime_scan_next: the background slot that is first, or -1.
 * The one that is past its deadline for longest; if none is, it is the turn of
 * the smallest virtual time of those that wait and whose interval is over.
 */
int idletime_scan_next(const IdletimeScan *scan, int64_t fg_last_ns,
                       int64_t now_ns);

/**
 * idletime_scan_skip: @index had its turn and let it pass.
 * It is skipped for 20 ms, twice as long each further time up to 1.28 s,
 * but only until it starts a request; a dead one is cleared.  So one that is
 * slow to wake loses little, and one that is stopped costs the others little.
 */
void idletime_scan_skip(IdletimeScan *scan, uint32_t index, int64_t now_ns);

/* A token in hand. */
typedef struct IdletimeGrant {
    IdletimeToken value;        /* as written into the board */
    uint32_t index;
} IdletimeGrant;

/**
 * idletime_token_take: the right to one more background request in service.
 * Returns false if the cap is reached.  Tokens of dead owners, and of owners
 * that sit on one for longer than the lease, become free in idletime_scan(): a
 * stopped process must not stop the others for ever.
 */
bool idletime_token_take(const IdletimeScan *scan, const IdletimeRule *rule,
                         int64_t now_ns, IdletimeGrant *grant);

/** idletime_token_give: hand it back; one that was taken over stays taken. */
void idletime_token_give(const IdletimeScan *scan, IdletimeGrant grant);

/**
 * idletime_lease_ns: how long the token of a living owner is respected: the
 * deadline of held requests, at least 5 s.
 */
int64_t idletime_lease_ns(const IdletimeRule *rule);

/**
 * idletime_bg_enter: we begin to wait, or a rule of ours changed.
 * @due_ns: deadline of our first; INT64_MAX: none
 * Time that we did not want is not saved up, but for IDLETIME_CREDIT_NS.
 */
void idletime_bg_enter(const IdletimeScan *scan, int64_t interval_ns,
                       int64_t due_ns, uint32_t weight);
/** idletime_bg_leave: nothing is held any more. */
void idletime_bg_leave(const IdletimeScan *scan);

/** idletime_bg_started: we issue a request. */
void idletime_bg_started(const IdletimeScan *scan);
/** idletime_bg_done: it took @service_ns, charged at our weight. */
void idletime_bg_done(const IdletimeScan *scan, int64_t service_ns);

/** idletime_bg_cost: foreground has waited @cost_ns for a request of ours. */
void idletime_bg_cost(const IdletimeScan *scan, uint64_t cost_ns);

/** idletime_bg_wake: wake the owner of @index out of idletime_bg_wait(). */
void idletime_bg_wake(const IdletimeScan *scan, uint32_t index);

/**
 * idletime_bg_wait: sleep until woken.
 * @seen: the wake count that was handled last; returns the present one
 * @timeout_ms: returns @seen then.  Context: a thread of its own.
 */
uint32_t idletime_bg_wait(const IdletimeScan *scan, uint32_t seen,
                          int timeout_ms);

static inline IdletimeFgBoard *idletime_fg_board(const IdletimeBoard *b)
{
    return b->map;
}

static inline IdletimeBgBoard *idletime_bg_board(const IdletimeBoard *b)
{
    return b->map;
}

#endif
