/*
 * Idletime gaps: the idle gaps of all foreground participants together.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 *   slot 0   ####....####........####
 *   slot 1   ..###.......##......####
 *   union    #####...######......####      gaps: ...  ......
 *
 * A slot is single-writer and lock-free: an entry is valid if the ring's head
 * has not come round to it while we read.  A slot that wrote more than its
 * ring holds since the last look has an overrun: its history is lost, and so
 * is every gap that began before the first entry we still have.  A look takes
 * no more than BATCH entries of all slots together.  Where that is less than
 * they have, each slot has the same share of it, and one that has more is
 * treated as an overrun: so all slots are known as of now, and none keeps the
 * others from being read.
 *
 * The ring of an observer in the kernel has many writers, which take places in
 * it before they write them: entries come late, and in another order than
 * that of their times.  So a look stops at an entry that is not written yet,
 * and sorts what it has before it takes it.
 *
 * The writers may be hostile.  An entry counts only if it changes the state of
 * its slot and lies between the slot's last entry and now, so that a slot is
 * at most once busy, whatever its ring says.  One that was written while we
 * look waits for the next look, and so does what follows it.
 */
#include "qemu/osdep.h"
#include "idletime/learner/gaps.h"

#define BUSY_BIT 1ULL

_Static_assert(IDLETIME_OBSERVED_RING == IDLETIME_RING, "read by one rule");

/* Between taking a place in the observer's ring and writing it. */
#define LATE_NS (1000 * 1000)
/* Processors that can be at that at a time, doubled; else it was lost. */
#define LATE_WRITERS 64

void idletime_gaps_init(IdletimeGaps *gaps, int64_t since_ns)
{
    memset(gaps, 0, sizeof(*gaps));
    gaps->whole_from_ns = since_ns;
    gaps->now_ns = INT64_MIN;
    gaps->busy_since_ns = INT64_MAX;
    /* The gap that is under way at our first look is not whole. */
    gaps->idle_since_ns = INT64_MAX;
}

/* ---- the union */

/*
 * A slot that is busy for less than a nanosecond ends, in the sorted batch,
 * before it begins: the count is then -1 for a moment, and nothing happened.
 */
static void union_busy(IdletimeGaps *gaps, int64_t at_ns)
{
    if (gaps->busy++ != 0) {
        return;
    }
    gaps->busy_since_ns = at_ns;
    if (gaps->idle_since_ns >= at_ns || gaps->now_ns == INT64_MIN) {
        return;
    }
    gaps->idle_ns += at_ns - gaps->idle_since_ns;
    if (gaps->idle_since_ns >= gaps->whole_from_ns) {
        gaps->gap[gaps->count++] = (IdletimeGap) {
            .begin_ns = gaps->idle_since_ns, .end_ns = at_ns,
        };
    }
}

static void union_idle(IdletimeGaps *gaps, int64_t at_ns)
{
    if (--gaps->busy == 0) {
        gaps->idle_since_ns = at_ns;
        gaps->busy_ns += MAX(at_ns - gaps->busy_since_ns, 0);
    }
}

/* Late entries (a writer was preempted) count as of the last one merged. */
static void merge(IdletimeGaps *gaps, uint64_t entry)
{
    int64_t at_ns = MAX((int64_t)(entry >> 1), gaps->now_ns);

    if (entry & BUSY_BIT) {
        union_busy(gaps, at_ns);
    } else {
        union_idle(gaps, at_ns);
    }
    gaps->now_ns = at_ns;
}

/* ---- one slot */

static bool plausible(const IdletimeTrack *track, uint64_t entry,
                      int64_t now_ns)
{
    int64_t at_ns = entry >> 1;

    return (entry & BUSY_BIT) != track->busy && at_ns >= track->last_ns &&
           at_ns <= now_ns;
}

static void take(IdletimeGaps *gaps, IdletimeTrack *track, uint64_t entry,
                 int64_t now_ns)
{
    if (!plausible(track, entry, now_ns)) {
        gaps->refused++;
        return;
    }
    track->busy = entry & BUSY_BIT;
    track->last_ns = entry >> 1;
    gaps->batch[gaps->length++] = entry;
}

/*
 * What it did before entry @read of its ring is lost.  An entry of a time to
 * come is a lie, and must not outlast this look.
 */
static void resume_at(IdletimeGaps *gaps, IdletimeTrack *track,
                      const uint64_t *ring, uint64_t read, int64_t now_ns)
{
    uint64_t entry = __atomic_load_n(&ring[read % IDLETIME_RING],
                                     __ATOMIC_RELAXED);
    int64_t at_ns = MIN((int64_t)(entry >> 1), now_ns);
    bool was_busy = !(entry & BUSY_BIT);

    track->read = read;
    if (track->busy != was_busy) {
        track->busy = was_busy;
        if (was_busy) {
            if (gaps->busy++ == 0) {
                gaps->busy_since_ns = at_ns;
            }
        } else {
            union_idle(gaps, gaps->now_ns);
        }
    }
    gaps->whole_from_ns = MAX(gaps->whole_from_ns, at_ns);
}

/* The slot was given to somebody else, or is zero after damage. */
static void start_again(IdletimeGaps *gaps, IdletimeTrack *track)
{
    if (track->busy) {
        union_idle(gaps, gaps->now_ns);
        gaps->whole_from_ns = gaps->now_ns + 1;
    }
    *track = (IdletimeTrack) { .last_ns = INT64_MIN };
}

/* Catch up where needed.  Returns up to where the ring is read this time. */
static uint64_t read_until(IdletimeGaps *gaps, IdletimeTrack *track,
                           const uint64_t *ring_head, const uint64_t *ring,
                           uint32_t share, int64_t now_ns)
{
    /* One less: the writer may be at work on the oldest. */
    const uint64_t safe = MIN(IDLETIME_RING - 1, share);
    uint64_t head = __atomic_load_n(ring_head, __ATOMIC_ACQUIRE);

    if (head < track->read) {
        start_again(gaps, track);
    }
    if (head - track->read > safe) {
        gaps->overruns += track->read != 0;
        /* A quarter of the ring as room to read in peace. */
        resume_at(gaps, track, ring, head - (safe * 3 + 3) / 4, now_ns);
    }
    return track->read + MIN(head - track->read, safe);
}

/* Returns false where it was overrun meanwhile: seen at the next look. */
static bool read_entry(const IdletimeTrack *track, const uint64_t *ring_head,
                       const uint64_t *ring, uint64_t *entry)
{
    *entry = __atomic_load_n(&ring[track->read % IDLETIME_RING],
                             __ATOMIC_ACQUIRE);
    return __atomic_load_n(ring_head, __ATOMIC_RELAXED) - track->read <=
           IDLETIME_RING - 1;
}

/* Of after this look; one that is further ahead is a lie. */
static bool is_ahead(uint64_t entry, int64_t now_ns)
{
    int64_t at_ns = entry >> 1;

    return at_ns > now_ns && at_ns - now_ns <= IDLETIME_GAPS_AHEAD_NS;
}

static void read_slot(IdletimeGaps *gaps, IdletimeTrack *track,
                      const IdletimeFgLine *line, const IdletimeFgPage *page,
                      uint32_t share, int64_t now_ns)
{
    uint64_t entry, end = read_until(gaps, track, &line->ring_head, page->ring,
                                     share, now_ns);

    while (track->read < end && gaps->length < IDLETIME_GAPS_BATCH &&
           read_entry(track, &line->ring_head, page->ring, &entry) &&
           !is_ahead(entry, now_ns)) {
        track->read++;
        take(gaps, track, entry, now_ns);
    }
}

/* Shell sort: small or nearly sorted as a rule, and no allocation. */
static void sort(uint64_t *value, uint32_t n)
{
    static const uint32_t step[] = { 301, 132, 57, 23, 10, 4, 1 };

    for (unsigned k = 0; k < sizeof(step) / sizeof(step[0]); k++) {
        for (uint32_t i = step[k]; i < n; i++) {
            uint64_t v = value[i];
            uint32_t j = i;

            for (; j >= step[k] && value[j - step[k]] > v; j -= step[k]) {
                value[j] = value[j - step[k]];
            }
            value[j] = v;
        }
    }
}

/* Not written yet: empty, or of the round before; or of after this look. */
static bool is_unsettled(const IdletimeTrack *track, uint64_t entry,
                         int64_t now_ns)
{
    int64_t at_ns = entry >> 1;
    int64_t late_ns = MAX(track->last_ns, LATE_NS) - LATE_NS;

    return at_ns == 0 || at_ns < late_ns || at_ns > now_ns;
}

/* What was read since @from, by time. */
static void take_sorted(IdletimeGaps *gaps, IdletimeTrack *track,
                        uint32_t from, int64_t now_ns)
{
    uint32_t end = gaps->length;

    sort(gaps->batch + from, end - from);
    gaps->length = from;
    for (uint32_t i = from; i < end; i++) {
        take(gaps, track, gaps->batch[i], now_ns);
    }
}

static void read_observed(IdletimeGaps *gaps, const IdletimeObserved *page,
                          uint32_t share, int64_t now_ns)
{
    IdletimeTrack *track = &gaps->track[IDLETIME_GAPS_OBSERVER];
    uint64_t entry, end = read_until(gaps, track, &page->ring_head, page->ring,
                                     share, now_ns);
    uint32_t from = gaps->length;

    while (track->read < end && gaps->length < IDLETIME_GAPS_BATCH &&
           read_entry(track, &page->ring_head, page->ring, &entry) &&
           (end - track->read > LATE_WRITERS ||
            !is_unsettled(track, entry, now_ns))) {
        track->read++;
        gaps->batch[gaps->length++] = entry;
    }
    take_sorted(gaps, track, from, now_ns);
}

/* Of the batch, for each slot that has news: all of them fit. */
static uint32_t share_of(const IdletimeGaps *gaps, const IdletimeFgBoard *fg,
                         uint32_t slots)
{
    uint32_t news = gaps->observed &&
                    __atomic_load_n(&gaps->observed->ring_head,
                                    __ATOMIC_RELAXED) !=
                    gaps->track[IDLETIME_GAPS_OBSERVER].read;

    for (uint32_t i = 0; i < slots; i++) {
        news += __atomic_load_n(&fg->line[i].ring_head, __ATOMIC_RELAXED) !=
                gaps->track[i].read;
    }
    return MAX(IDLETIME_GAPS_BATCH / MAX(news, 1), 1);
}

void idletime_gaps_look(IdletimeGaps *gaps, const IdletimeFgBoard *fg,
                        uint32_t slots, int64_t now_ns)
{
    uint32_t share;

    gaps->count = 0;
    gaps->length = 0;
    slots = MIN(slots, IDLETIME_SLOTS);
    share = share_of(gaps, fg, slots);
    for (uint32_t i = 0; i < slots; i++) {
        read_slot(gaps, &gaps->track[i], &fg->line[i], &fg->page[i], share,
                  now_ns);
    }
    if (gaps->observed) {
        read_observed(gaps, gaps->observed, share, now_ns);
    }
    sort(gaps->batch, gaps->length);
    for (uint32_t i = 0; i < gaps->length; i++) {
        merge(gaps, gaps->batch[i]);
    }
}

void idletime_gaps_dead(IdletimeGaps *gaps, uint32_t index)
{
    IdletimeTrack *track = &gaps->track[index == IDLETIME_GAPS_OBSERVER ?
                                        index : index % IDLETIME_SLOTS];

    if (track->busy) {
        track->busy = false;
        union_idle(gaps, gaps->now_ns);
        gaps->whole_from_ns = gaps->now_ns + 1;
    }
}

int64_t idletime_gaps_idle(const IdletimeGaps *gaps, int64_t now_ns)
{
    bool open = !gaps->busy && gaps->idle_since_ns <= now_ns;

    return gaps->idle_ns + (open ? now_ns - gaps->idle_since_ns : 0);
}

int64_t idletime_gaps_busy(const IdletimeGaps *gaps, int64_t until_ns)
{
    bool open = gaps->busy && gaps->busy_since_ns <= until_ns;

    return gaps->busy_ns + (open ? until_ns - gaps->busy_since_ns : 0);
}
