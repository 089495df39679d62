/*
 * Idletime migration: the stream of an outgoing migration, sent when the
 * uplink is idle.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The gate is the main loop's, as are those of jobs; the migration thread has
 * no event loop.  The two take turns:
 *
 *   REST --thread: a chunk is wanted--> WANT --loop: it may start--> GRANTED
 *    ^ ^                                  ^                           | |
 *    | |                                  +--thread: the next may not-+ |
 *    | +--thread: switchover, detached----------------------------------+
 *    +----loop: the migration has ended
 *
 * What belongs to one of them is touched only while it is its turn.  The gate
 * is lent to the thread while it is GRANTED: chunk after chunk it asks for
 * itself, so that the loop need not wake for each of them.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "migration/migration.h"
#include "migration/migration-stats.h"
#include "migration/misc.h"
#include "migration/options.h"
#include "qemu/main-loop.h"
#include "qemu/units.h"
#include "exec/target_page.h"
#include "idletime/work/divergence.h"
#include "idletime/work/migration.h"
#include "idletime/work/stream.h"
#include "idletime/work/work.h"
#include "trace.h"

/* For people and the monitor: there is one at a time. */
#define MIGRATION_ID    "outgoing"

/*
 * What a foreground packet that comes meanwhile waits for, and as much again
 * in the uplink's queue: at 100 Mbit/s the time of four full packets.
 */
#define CHUNK_NS        (500 * 1000LL)
#define CHUNK_MIN       (4 * KiB)
/* Expected while none has been seen, bytes a second. */
#define RATE_UNSEEN     MiB
/* Chunks over which the rate is a mean; memory. */
#define MEMORY          32

typedef enum Turn {
    REST,
    WANT,
    GRANTED,
} Turn;

bool idletime_migration_on;

static struct {
    int turn;                   /* Turn, qatomic */
    bool attached;              /* qatomic, written under the BQL */
    bool running;               /* qatomic, there is a migration thread */
    QemuSemaphore granted;

    /* The main loop. */
    IdletimeWork *work;
    IdletimeChunk *chunk;       /* in service; the thread's while GRANTED */
    QEMUBH *attend_bh;          /* it is the main loop's turn */

    /* The thread's, but the main loop's while a chunk is WANTed. */
    uint64_t bytes;             /* of the chunk, at most */
    uint64_t sent;              /* of the last one */

    /* The thread. */
    bool marked;                /* its sockets */
    bool exempt;                /* not held: no sockets, or switched over */
    bool begun;                 /* the chunk that was granted */
    uint64_t begun_at;          /* bytes of the migration, then */
    uint64_t begun_pages;       /* of it that were not empty, then */
    uint64_t pages;             /* tried since */
    int64_t begun_ns;
    double sum_bytes, sum_ns;   /* of late chunks */
    uint64_t rate;              /* bytes a second; qatomic */
} m;

static Turn turn(void)
{
    return qatomic_load_acquire(&m.turn);
}

/* As the resource is set.  Context: whose turn it is, while there is work. */
static uint64_t bounded(uint64_t bytes)
{
    return MIN(bytes, idletime_resource_get(m.work->res,
                                            IDLETIME_MAX_REQUEST_BYTES));
}

/* ---- the main loop */

/*
 * The thread does not use the gate any more, or not yet.  It returns it only
 * where it wants another chunk: at rest it need not have seen that it had it.
 */
static void give_back(void)
{
    IdletimeChunk *chunk = m.chunk;

    m.chunk = NULL;
    if (chunk) {
        idletime_chunk_return(chunk);
        idletime_chunk_resize(chunk, m.sent);
        idletime_chunk_unref(chunk);    /* and pumps */
    }
}

/* The gate is its thread's again, before the chunk is. */
static void return_gate(void)
{
    if (m.chunk) {
        idletime_chunk_return(m.chunk);
    }
}

static bool migration_waits(const IdletimeWork *work)
{
    return turn() == WANT;
}

/* Unless the thread does not want it any more. */
static void grant(void)
{
    if (m.chunk) {
        idletime_chunk_lend(m.chunk);
    }
    if (qatomic_cmpxchg(&m.turn, WANT, GRANTED) == WANT) {
        qemu_sem_post(&m.granted);
    } else {
        give_back();
    }
}

static void migration_wake(IdletimeWork *work)
{
    int64_t now_ns = idletime_now_ns();
    int64_t since_ns = work->held_since_ns ?: now_ns;

    work->held_since_ns = since_ns;
    idletime_work_held(work, 1);
    if (m.chunk) {
        give_back();
        return;                         /* it has been called again */
    }
    m.bytes = bounded(m.bytes);
    if (!idletime_work_ask(work, since_ns, m.bytes, &m.chunk)) {
        return;
    }
    if (m.chunk) {
        idletime_gate_note_hold(work->gate, now_ns - since_ns);
    }
    idletime_work_rest(work);
    grant();
}

static void migration_left(IdletimeWork *work)
{
    m.work = NULL;
    if (!qatomic_read(&m.running)) {
        qatomic_set(&idletime_migration_on, false);
    }
}

static const IdletimeWorkOps migration_ops = {
    .kind = IDLETIME_WORK_MIGRATION,
    .waits = migration_waits,
    .wake = migration_wake,
    .left = migration_left,
};

static void attend(void *opaque)
{
    idletime_divergence_tell();
    if (turn() == REST) {
        give_back();
    } else if (m.work) {
        idletime_gate_pump(m.work->gate);
    } else if (turn() == WANT) {
        grant();
    }
}

void idletime_migration_ended(void)
{
    GLOBAL_STATE_CODE();
    qatomic_set(&m.running, false);
    qatomic_set(&m.turn, REST);
    m.marked = m.exempt = false;
    m.sum_bytes = m.sum_ns = 0;         /* the next goes another way */
    qatomic_set(&m.rate, 0);
    idletime_divergence_reset();
    if (m.work) {
        m.sent = 0;                     /* nobody knows of the last one */
        give_back();
        idletime_work_rest(m.work);
    } else {
        qatomic_set(&idletime_migration_on, false);
    }
}

/* ---- the migration thread */

void idletime_migration_begun(void)
{
    qatomic_set(&m.running, true);
}

static void hand_over(Turn next)
{
    qatomic_store_release(&m.turn, next);
    qemu_bh_schedule(m.attend_bh);
}

/*
 * What has been written to the sockets, and what will be: pages wait in a
 * buffer of the stream, or for a thread that sends them.  Which of the latter
 * are empty only the thread finds out.
 */
static uint64_t bytes_begun(void)
{
    uint64_t sent = migration_transferred_bytes() - m.begun_at;
    uint64_t pages = migrate_multifd() ? m.pages :
                     stat64_get(&mig_stats.normal_pages) - m.begun_pages;

    return MAX(sent, pages * qemu_target_page_size());
}

static bool postcopy_is_wanted(void)
{
    return qatomic_read(&migrate_get_current()->start_postcopy);
}

static void let_go(QEMUFile *f)
{
    if (m.marked) {
        idletime_stream_unmark(f);
        m.marked = false;
    }
    if (turn() != REST) {
        m.sent = m.begun ? bytes_begun() : 0;
        hand_over(REST);
    }
}

static void begin(void)
{
    m.begun = true;
    m.begun_at = migration_transferred_bytes();
    m.begun_pages = stat64_get(&mig_stats.normal_pages);
    m.begun_ns = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
    m.pages = 0;
}

/* @pages: tried since the last call */
static bool exceeded(unsigned pages)
{
    if (!qatomic_read(&m.running) || !migration_thread_is_self()) {
        return false;                   /* a snapshot */
    }
    if (unlikely(!qatomic_load_acquire(&m.attached))) {
        let_go(migrate_get_current()->to_dst_file);
        qatomic_set(&idletime_migration_on, false);
        /* Attached again meanwhile?  Pairs with idletime_migration_attach(). */
        smp_mb();
        qatomic_set(&idletime_migration_on, qatomic_read(&m.attached));
        return false;
    }
    if (m.exempt || postcopy_is_wanted()) {
        return false;
    }
    if (turn() != GRANTED) {
        return true;
    }
    if (!m.begun) {
        begin();
    }
    m.pages += pages;
    return bytes_begun() >= m.bytes;
}

bool idletime_migration_exceeded_slow(void)
{
    return exceeded(1);
}

bool idletime_migration_interrupts_slow(void)
{
    return exceeded(0);
}

/*
 * The next chunk.  After one that is sent the gate is the thread's still, and
 * the loop's where it has something to tell.  Returns true if it may start.
 */
static bool want(bool sent)
{
    bool news = idletime_divergence_note();

    m.begun = false;
    m.bytes = MAX(m.rate * CHUNK_NS / NANOSECONDS_PER_SECOND, CHUNK_MIN);
    if (sent && m.chunk) {
        m.bytes = bounded(m.bytes);
        if (!news && idletime_chunk_renew(m.chunk, m.sent, m.bytes)) {
            return true;
        }
        idletime_chunk_return(m.chunk);
    }
    hand_over(WANT);
    return false;
}

static void note_rate(void)
{
    int64_t took_ns = qemu_clock_get_ns(QEMU_CLOCK_REALTIME) - m.begun_ns;
    double keep = 1 - 1.0 / MEMORY;

    trace_idletime_migration_chunk(m.sent, took_ns);
    m.sum_bytes = m.sum_bytes * keep + m.sent;
    m.sum_ns = m.sum_ns * keep + MAX(took_ns, 1);
    qatomic_set(&m.rate, m.sum_bytes * NANOSECONDS_PER_SECOND / m.sum_ns);
}

bool idletime_migration_wait_slow(QEMUFile *f, int ms)
{
    int64_t until_ns = qemu_clock_get_ns(QEMU_CLOCK_REALTIME) + ms * SCALE_MS;

    if (!qatomic_load_acquire(&m.attached) || m.exempt ||
        postcopy_is_wanted()) {
        return false;
    }
    if (!m.marked) {
        m.marked = idletime_stream_mark(f);
        if (!m.marked) {
            m.exempt = true;
            return false;
        }
    }
    if (turn() == GRANTED) {
        if (!m.begun) {
            return true;                /* it has come just now */
        }
        if (bytes_begun() < m.bytes) {
            /* A limit of stock's, whose wait is no service. */
            m.sent = bytes_begun();
            m.begun = false;
            /* The loop may be asked for the next before it sees REST. */
            return_gate();
            hand_over(REST);
            return false;
        }
        if (!idletime_stream_drain(f, until_ns)) {
            /* That may take long: the gate is not to wait for the network. */
            return_gate();
            return true;
        }
        m.sent = bytes_begun();
        note_rate();
        if (want(true)) {
            return true;
        }
    } else if (turn() == REST) {
        want(false);
    }
    qemu_sem_timedwait(&m.granted, MAX(ms, 1));
    return true;
}

uint32_t idletime_migration_pages_slow(uint32_t pages)
{
    return m.exempt || !m.bytes ? pages :
           MIN(pages, MAX(m.bytes / qemu_target_page_size(), 1));
}

void idletime_migration_switchover(QEMUFile *f)
{
    m.exempt = true;
    let_go(f);
}

/*
 * Before the first chunk not none: QEMU that expects to send nothing within the
 * downtime switches over at the end of a pass without a look at what the guest
 * has written meanwhile.
 */
uint64_t idletime_migration_bandwidth_slow(void)
{
    uint64_t rate = m.rate ?: RATE_UNSEEN;

    return qatomic_read(&m.attached) && !m.exempt ? rate : 0;
}

/* ---- attach and detach */

bool idletime_migration_attach(const char *resource, Error **errp)
{
    GLOBAL_STATE_CODE();
    if (!idletime_work_check_none(m.work, errp)) {
        return false;
    }
    if (!m.attend_bh) {
        qemu_sem_init(&m.granted, 0);
        m.attend_bh = qemu_bh_new(attend, NULL);
    }
    m.work = idletime_work_new(resource, MIGRATION_ID, qemu_get_aio_context(),
                               &m, &migration_ops, errp);
    if (!m.work) {
        return false;
    }
    qatomic_store_release(&m.attached, true);
    /* Pairs with idletime_migration_exceeded_slow(). */
    smp_mb();
    qatomic_set(&idletime_migration_on, true);
    return true;
}

bool idletime_migration_detach(Error **errp)
{
    GLOBAL_STATE_CODE();
    if (!m.work) {
        error_setg(errp, "migration is attached to no idletime-resource; "
                   "query-idletime lists what is");
        return false;
    }
    qatomic_store_release(&m.attached, false);
    idletime_work_detach(m.work);
    return true;
}

uint64_t idletime_migration_rate(void)
{
    GLOBAL_STATE_CODE();
    return qatomic_read(&m.rate);
}
