/*
 * Idletime chunk: a part of a piece of work in service.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The block layer's files call the inline functions here and those of job.h;
 * where nothing is attached each is one test of a pointer.
 * Context: the thread in which the work runs.
 */
#ifndef IDLETIME_CHUNK_H
#define IDLETIME_CHUNK_H

typedef struct IdletimeWork IdletimeWork;
typedef struct IdletimeChunk IdletimeChunk;

/**
 * idletime_chunk_lend: @chunk's gate is another thread's from now on, of one
 * that has no event loop.  Context: the thread of its work.
 */
void idletime_chunk_lend(IdletimeChunk *chunk);
/**
 * idletime_chunk_renew: it is done, of @bytes; may the next of @next_bytes
 * start?  Then it is that one.  Never, once its gate has been returned.
 * Context: the thread to which that was lent.
 */
bool idletime_chunk_renew(IdletimeChunk *chunk, uint64_t bytes,
                          uint64_t next_bytes);
/**
 * idletime_chunk_return: the gate is the work's again, if it is not yet; its
 * pump is called, for what it has missed.  Context: either thread, once the
 * other does not use the gate.
 */
void idletime_chunk_return(IdletimeChunk *chunk);

/* Slow paths; use the inline functions below. */
IdletimeChunk *idletime_chunk_ref_slow(IdletimeChunk *chunk);
void idletime_chunk_unref_slow(IdletimeChunk *chunk);
void idletime_chunk_resize_slow(IdletimeChunk *chunk, uint64_t bytes);

/** idletime_chunk_ref: one more request belongs to @chunk.  Returns it. */
static inline IdletimeChunk *idletime_chunk_ref(IdletimeChunk *chunk)
{
    return unlikely(chunk) ? idletime_chunk_ref_slow(chunk) : NULL;
}

/** idletime_chunk_unref: that request, or its issuer, has done its part. */
static inline void idletime_chunk_unref(IdletimeChunk *chunk)
{
    if (unlikely(chunk)) {
        idletime_chunk_unref_slow(chunk);
    }
}

/** idletime_chunk_resize: it turned out to be of @bytes; for the books. */
static inline void idletime_chunk_resize(IdletimeChunk *chunk, uint64_t bytes)
{
    if (unlikely(chunk)) {
        idletime_chunk_resize_slow(chunk, bytes);
    }
}

#endif
