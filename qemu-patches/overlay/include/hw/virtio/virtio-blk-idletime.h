/*
 * virtio-blk: hold background requests in the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * virtio-blk.c calls the inline functions here; in a device that is attached
 * to no resource each is one test of a pointer or a byte.
 */
#ifndef VIRTIO_BLK_IDLETIME_H
#define VIRTIO_BLK_IDLETIME_H

#include "idletime/hold/hold.h"

struct VirtIOBlock;
struct VirtIOBlockReq;

/*
 * Slow paths; use the inline functions below.
 * Context: the thread that serves the request's queue unless said otherwise.
 */
bool idletime_blk_hold_slow(struct VirtIOBlockReq *req);
void idletime_blk_begin_slow(struct VirtIOBlockReq *req, uint64_t bytes,
                             int64_t now_ns);
void idletime_blk_end_slow(struct VirtIOBlockReq *req, int64_t now_ns);
bool idletime_blk_split_slow(struct VirtIOBlockReq *req, bool is_write);

/** idletime_blk_class_init: the methods of TYPE_IDLETIME_ATTACHABLE. */
void idletime_blk_class_init(ObjectClass *klass);
/** idletime_blk_unrealize: drop what is held, leave.  Context: BQL. */
void idletime_blk_unrealize(struct VirtIOBlock *s);

/**
 * idletime_blk_park: stop releasing; held requests join s->rq, as if they had
 * failed with werror=stop, so that the migration stream stays the stock one.
 * Requests that come later join at once.  Context: BQL.
 */
void idletime_blk_park(struct VirtIOBlock *s);
/**
 * idletime_blk_unpark: hold and release again; what is on s->rq is the
 * caller's to restart, and nothing joins any more.  Context: BQL.
 */
void idletime_blk_unpark(struct VirtIOBlock *s);

/**
 * idletime_blk_set_status: with the driver gone, or without the right to
 * access memory (PCI bus mastering), what is held is dropped, as
 * virtio_blk_reset() drops s->rq.  Context: BQL, before the status changes.
 */
void idletime_blk_set_status(struct VirtIOBlock *s, uint8_t status);
/** idletime_blk_reset: drop what is held and on its way.  Context: BQL. */
void idletime_blk_reset(struct VirtIOBlock *s);

/** idletime_blk_drain: no releases between true and false.  Context: BQL. */
void idletime_blk_drain(struct VirtIOBlock *s, bool drained);

/**
 * idletime_blk_serve: who serves the queues from now on.
 * @ioeventfd: the threads of vq_aio_context; false: host notifiers could not
 * be started, so it is the holder of the BQL
 * Waits for what is in service.  Context: BQL.
 */
void idletime_blk_serve(struct VirtIOBlock *s, bool ioeventfd);
/** idletime_blk_context: of the thread that serves @queue.  Context: BQL. */
AioContext *idletime_blk_context(struct VirtIOBlock *s, unsigned queue);

/*
 * The inline hooks are macros because they are used below the definition of
 * struct VirtIOBlockReq only.
 */

/* Popped from the ring; true: it is held and will be issued later. */
#define idletime_blk_hold(_req)                                             \
    (unlikely(qatomic_read(&(_req)->dev->idletime)) &&                      \
     idletime_blk_hold_slow(_req))

/* Accounted and about to be issued. */
#define idletime_blk_begin(_req)                                            \
    do {                                                                    \
        if (unlikely(qatomic_read(&(_req)->dev->idletime))) {               \
            idletime_blk_begin_slow((_req), (_req)->acct.bytes,             \
                                    (_req)->acct.start_time_ns);            \
        }                                                                   \
    } while (0)

/* The same for a request that block accounting does not know. */
#define idletime_blk_begin_unaccounted(_req, _bytes)                        \
    do {                                                                    \
        if (unlikely(qatomic_read(&(_req)->dev->idletime))) {               \
            idletime_blk_begin_slow((_req), (_bytes), idletime_now_ns());   \
        }                                                                   \
    } while (0)

/* No longer in service, for whatever reason.  Idempotent. */
#define idletime_blk_end(_req)                                              \
    do {                                                                    \
        if (unlikely((_req)->idletime.state != IDLETIME_REQ_NONE)) {        \
            idletime_blk_end_slow((_req), idletime_now_ns());               \
        }                                                                   \
    } while (0)

/* The same right behind block_acct_done(), which has read the clock. */
#define idletime_blk_end_accounted(_req)                                    \
    do {                                                                    \
        if (unlikely((_req)->idletime.state != IDLETIME_REQ_NONE)) {        \
            idletime_blk_end_slow((_req), blk_get_stats((_req)->dev->blk)-> \
                                          last_access_time_ns);             \
        }                                                                   \
    } while (0)

/* As idletime_blk_end(), for background only: before accounting is done. */
#define idletime_blk_end_background(_req)                                   \
    do {                                                                    \
        if (unlikely((_req)->idletime.state == IDLETIME_REQ_BACKGROUND)) {  \
            idletime_blk_end_slow((_req), 0);                               \
        }                                                                   \
    } while (0)

/* Parsed; true: it is large background and is issued in pieces. */
#define idletime_blk_split(_req, _is_write)                                 \
    (unlikely((_req)->idletime.state == IDLETIME_REQ_BACKGROUND) &&         \
     idletime_blk_split_slow((_req), (_is_write)))

/* Where requests of a queue that were stopped are processed. */
#define idletime_blk_restart_context(_s, _queue)                            \
    ((_s)->idletime ? idletime_blk_context((_s), (_queue)) :                \
                      (_s)->vq_aio_context[_queue])

#endif
