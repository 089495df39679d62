/*
 * Idletime chunk: a part of a piece of work, asked for, in service, done.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/work/work.h"

struct IdletimeChunk {
    IdletimeWork *work;
    IdletimeChunk *also;        /* of another work of the same job */
    IdletimeLease lease;
    bool over;                  /* there is no lease, or no more */
    unsigned refs;
};

/* ---- asking */

static IdletimeChunk *chunk_new(IdletimeWork *work)
{
    IdletimeChunk *chunk = g_new0(IdletimeChunk, 1);

    chunk->work = work;
    chunk->refs = 1;
    work->chunks++;
    return chunk;
}

typedef bool Asking(IdletimeGate *gate, int64_t held_since_ns, uint64_t bytes,
                    IdletimeLease *lease);

static bool ask(IdletimeWork *work, int64_t since_ns, uint64_t bytes,
                IdletimeChunk **chunk, Asking *asking)
{
    IdletimeLease lease;

    IO_CODE();
    *chunk = NULL;
    if (qatomic_load_acquire(&work->leaving)) {
        return true;
    }
    /* serve() kicks the gate when it has followed. */
    if (!idletime_work_is_here(work) ||
        !asking(work->gate, since_ns, bytes, &lease)) {
        return false;
    }
    *chunk = chunk_new(work);
    (*chunk)->lease = lease;
    return true;
}

bool idletime_work_ask(IdletimeWork *work, int64_t since_ns, uint64_t bytes,
                       IdletimeChunk **chunk)
{
    if (!ask(work, since_ns, bytes, chunk, idletime_gate_ask)) {
        return false;
    }
    if (*chunk) {
        idletime_gate_rest(work->gate);
    }
    return true;
}

bool idletime_work_reserve(IdletimeWork *work, int64_t since_ns,
                           uint64_t bytes, IdletimeChunk **chunk)
{
    IdletimeChunk *own;

    if (!ask(work, since_ns, bytes, &own, idletime_gate_reserve)) {
        return false;
    }
    if (own) {
        own->also = *chunk;
        *chunk = own;
    }
    return true;
}

/* A copy over an uplink takes the time of its disks, too. */
void idletime_work_issue(IdletimeChunk *chunk, int64_t since_ns)
{
    bool several = chunk && chunk->also;

    for (; chunk; chunk = chunk->also) {
        IdletimeGate *gate = chunk->work->gate;

        chunk->lease.mixed = several || idletime_resource_is_uplink(gate->res);
        idletime_gate_issue(gate, &chunk->lease, since_ns);
        idletime_gate_note_hold(gate, chunk->lease.since_ns - since_ns);
    }
}

static void take_back(IdletimeChunk *chunk,
                      void (*fn)(IdletimeGate *, const IdletimeLease *))
{
    while (chunk) {
        IdletimeChunk *also = chunk->also;

        chunk->work->chunks--;
        fn(chunk->work->gate, &chunk->lease);
        g_free(chunk);
        chunk = also;
    }
}

void idletime_work_withdraw(IdletimeChunk *chunk)
{
    take_back(chunk, idletime_gate_withdraw);
}

void idletime_work_keep(IdletimeChunk *chunk)
{
    take_back(chunk, idletime_gate_keep);
}

bool idletime_work_is_taken(const IdletimeWork *work)
{
    IO_CODE();
    return idletime_work_is_here(work) &&
           work->gate->verdict == IDLETIME_WAIT_INFLIGHT;
}

IdletimeChunk *idletime_work_expel(IdletimeWork *work)
{
    IdletimeChunk *chunk = chunk_new(work);

    IO_CODE();
    chunk->over = true;
    idletime_gate_note_promotion(work->gate, IDLETIME_PROMOTION_CLASS_CHANGE);
    return chunk;
}

/* ---- in service */

IdletimeChunk *idletime_chunk_ref_slow(IdletimeChunk *chunk)
{
    chunk->refs++;
    return chunk;
}

void idletime_chunk_resize_slow(IdletimeChunk *chunk, uint64_t bytes)
{
    for (; chunk; chunk = chunk->also) {
        if (!chunk->over) {
            idletime_stat_add(&chunk->work->gate->stats.bg_bytes,
                              (int64_t)bytes - chunk->lease.bytes);
            chunk->lease.bytes = MIN(bytes, UINT32_MAX);
        }
    }
}

static void chunk_done(IdletimeChunk *chunk, bool more)
{
    if (!chunk->over) {
        chunk->over = true;
        idletime_gate_done(chunk->work->gate, &chunk->lease, more);
    }
}

void idletime_chunk_unref_slow(IdletimeChunk *chunk)
{
    IdletimeChunk *one;

    if (--chunk->refs) {
        return;
    }
    for (one = chunk; one; one = one->also) {
        one->work->chunks--;
        chunk_done(one, qatomic_read(&one->work->gate->stats.held) != 0);
    }
    while (chunk) {
        one = chunk;
        chunk = one->also;
        one->work->gate->pump(one->work);
        g_free(one);
    }
}

/* ---- chunks of a thread without an event loop */

void idletime_chunk_lend(IdletimeChunk *chunk)
{
    idletime_gate_code(chunk->work->gate);
    qatomic_store_release(&chunk->work->gate->lent, true);
}

void idletime_chunk_return(IdletimeChunk *chunk)
{
    IdletimeGate *gate = chunk->work->gate;

    if (qatomic_read(&gate->lent)) {
        qatomic_store_release(&gate->lent, false);
        idletime_gate_kick(gate);
    }
}

/* Where its gate is to move, or the work is to leave, it is the work's turn. */
bool idletime_chunk_renew(IdletimeChunk *chunk, uint64_t bytes,
                          uint64_t next_bytes)
{
    IdletimeWork *work = chunk->work;
    IdletimeGate *gate = work->gate;
    bool leaving = qatomic_load_acquire(&work->leaving);

    if (!qatomic_read(&gate->lent)) {
        return false;
    }
    idletime_gate_code(gate);
    idletime_chunk_resize_slow(chunk, bytes);
    chunk_done(chunk, !leaving);
    if (leaving || qatomic_load_acquire(&gate->move) ||
        !idletime_gate_ask(gate, idletime_now_ns(), next_bytes,
                           &chunk->lease)) {
        return false;
    }
    chunk->over = false;
    idletime_gate_rest(gate);
    idletime_gate_note_hold(gate, 0);
    return true;
}
