/*
 * Idletime divergence: does the guest write more than the migration sends?
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/qapi-events-idletime.h"
#include "migration/migration.h"
#include "migration/migration-stats.h"
#include "migration/misc.h"
#include "qemu/main-loop.h"
#include "exec/target_page.h"
#include "idletime/work/divergence.h"
#include "trace.h"

static struct {
    /* The migration thread. */
    uint64_t passes;            /* that had begun at the last look */
    uint64_t pass_at;           /* pages that were not empty, then */
    int64_t pass_ns;
    uint64_t written, left;     /* bytes a second; read after diverges */
    bool diverges;              /* qatomic */

    /* The main loop. */
    bool told;
} d;

bool idletime_divergence_note(void)
{
    uint64_t passes = stat64_get(&mig_stats.dirty_sync_count);
    uint64_t pages = ram_get_total_transferred_pages() -
                     stat64_get(&mig_stats.zero_pages);
    int64_t now_ns = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
    int64_t took_ns = now_ns - d.pass_ns;
    bool was = d.diverges, diverges = was;

    if (passes == d.passes || (d.passes && took_ns < NANOSECONDS_PER_SECOND)) {
        return false;
    }
    if (d.passes) {
        d.written = stat64_get(&mig_stats.dirty_pages_rate) *
                    qemu_target_page_size();
        d.left = (pages - d.pass_at) * qemu_target_page_size() *
                 (double)NANOSECONDS_PER_SECOND / took_ns;
        diverges = d.written > d.left;
        trace_idletime_migration_pass(passes, d.written, d.left);
        qatomic_store_release(&d.diverges, diverges);
    }
    d.passes = passes;
    d.pass_at = pages;
    d.pass_ns = now_ns;
    return diverges != was;
}

void idletime_divergence_tell(void)
{
    bool diverges = qatomic_load_acquire(&d.diverges);

    GLOBAL_STATE_CODE();
    if (diverges && !d.told) {
        qapi_event_send_idletime_migration_diverges(d.written, d.left);
    }
    d.told = diverges;
}

void idletime_divergence_reset(void)
{
    GLOBAL_STATE_CODE();
    d.passes = 0;
    d.told = false;
    qatomic_set(&d.diverges, false);
}

bool idletime_divergence_now(void)
{
    GLOBAL_STATE_CODE();
    return qatomic_read(&d.diverges);
}
