/*
 * Idletime window: at which ages of an idle gap background may start.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime/learner/window.h"

double idletime_windows_ratio(const IdletimeWindows *w, IdletimeService service,
                              double age_ns)
{
    return idletime_delay_expected(&w->delays, service, age_ns) /
           service.mean_ns;
}

int64_t idletime_windows_next(const IdletimeWindows *w, int64_t age_ns,
                              bool used)
{
    unsigned here = idletime_bin_of(age_ns);
    unsigned next = used ? w->next[here] : w->first[here];

    return next == here ? age_ns :
           next < IDLETIME_BINS ? idletime_bin_edge(next) : INT64_MAX;
}

unsigned idletime_windows_list(const IdletimeWindows *w,
                               IdletimeWindow list[IDLETIME_WINDOWS_SHOWN])
{
    unsigned bin = 0, n = 0;

    while (n < IDLETIME_WINDOWS_SHOWN && bin < IDLETIME_BINS &&
           w->next[bin] < IDLETIME_BINS) {
        list[n].begin_ns = idletime_bin_edge(w->next[bin]);
        bin = w->next[bin];
        while (bin < IDLETIME_BINS && w->next[bin] == bin) {
            bin++;
        }
        list[n++].end_ns = bin < IDLETIME_BINS ? idletime_bin_edge(bin) :
                           INT64_MAX;
    }
    return n;
}
