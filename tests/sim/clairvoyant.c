/*
 * The simulated clairvoyant: knows each foreground request that will come.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim-impl.h"

bool sim_foreseen_free(const Sim *s)
{
    int64_t end_ns = s->now_ns + s->bg_service_ns +
                     sim_transfer_ns(s, s->p.piece_bytes);
    int index[SIM_FOREGROUNDS_MAX] = { 0 };
    int coming = 0;

    if (s->fg_in_service + s->bg_in_service >= (uint32_t)s->device.channels) {
        return false;
    }
    for (;;) {
        int64_t at_ns = INT64_MAX;
        int who = 0, busy = 0;

        for (int i = 0; i < s->p.foregrounds; i++) {
            int64_t next_ns = sim_load_ahead(&s->fg[i], &s->p, index[i]);

            if (next_ns < at_ns) {
                at_ns = next_ns;
                who = i;
            }
        }
        if (at_ns >= end_ns) {
            return true;
        }
        for (int i = 0; i < s->device.busy; i++) {
            busy += s->device.serving[i].done_ns > at_ns;
        }
        if (busy + coming + 1 >= s->device.channels) {
            return false;
        }
        coming++;
        index[who]++;
    }
}
