/*
 * Idletime arena: the layout of the memory through which the participants of
 * one resource see each other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * An arena is a directory with two boards: files of fixed size that every
 * participant maps.  The foreground board is written by foreground
 * participants, each in its own slot, and only read by the others.  The
 * background board belongs to the background participants.
 *
 *   directory.h    makes (create.c) and opens the files of an arena
 *   generation.h   which files, where builds with other layouts have some
 *   board.h        maps a board, and tells whether it is still the right one
 *   guard.h        survives a board that is truncated while it is mapped
 *   slot.h         gives each participant a slot of its own; who lives?
 *   foreground.h   writes a foreground slot: the hot path
 *   scan.h         what a background participant looks with; its own slot
 *   observer.h     the foreground that the kernel sees (observed.h)
 *   look.h         reads both boards and that: the facts of a decision
 *   tokens.h       the in-flight cap, over all processes
 *   turns.h        who of those that wait is first
 *   wake.h         wakes a participant in another process
 *
 * Linux only (open-file-description locks, futex).  The same files are
 * compiled into QEMU, the unit tests and the fuzzers.
 */
#ifndef IDLETIME_ARENA_H
#define IDLETIME_ARENA_H

#define IDLETIME_ARENA_MAGIC    0x656d6974656c6469ULL   /* "idletime" */
/* Tests build another one (-DIDLETIME_ARENA_ABI=4) to run beside this. */
#ifndef IDLETIME_ARENA_ABI
#define IDLETIME_ARENA_ABI      3
#endif

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
    int64_t uplink_free_ns;     /* background: the uplink clock */
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
    uint64_t request_ns;        /* times in service, all; as of last_ns */
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
    uint64_t vtime_ns;          /* service time received * 100 / weight */
    int64_t interval_ns;        /* the owner's preemption interval */
    uint64_t started;           /* requests */
    int64_t due_ns;             /* deadline of the first that waits */
    uint64_t cost_ns;           /* foreground waited so long for our requests */
    uint32_t weight;
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

#endif
