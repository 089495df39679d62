/*
 * The simulated path: what lies between a participant and the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A host is not only a disk: a request needs a moment until it is there, and
 * its completion until it is seen.  Meanwhile the device serves others.
 */
#include "sim.h"

void sim_path_send(SimPath *p, SimRequest request, int64_t arrival_ns)
{
    if (p->moving == SIM_MOVING) {
        fprintf(stderr, "idletime-sim: the path is full: less load\n");
        exit(1);
    }
    p->arrival_ns[p->moving] = arrival_ns;
    p->request[p->moving++] = request;
}

static int first(const SimPath *p)
{
    int best = 0;

    for (int i = 1; i < p->moving; i++) {
        if (p->arrival_ns[i] < p->arrival_ns[best]) {
            best = i;
        }
    }
    return best;
}

int64_t sim_path_next_ns(const SimPath *p)
{
    return p->moving ? p->arrival_ns[first(p)] : INT64_MAX;
}

bool sim_path_arrived(SimPath *p, int64_t now_ns, SimRequest *request)
{
    int next = first(p);

    if (!p->moving || p->arrival_ns[next] > now_ns) {
        return false;
    }
    *request = p->request[next];
    p->request[next] = p->request[--p->moving];
    p->arrival_ns[next] = p->arrival_ns[p->moving];
    return true;
}
