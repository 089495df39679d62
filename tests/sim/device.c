/*
 * The simulated device: some channels behind one queue.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim.h"

static void serve(SimDevice *d, SimRequest request, int64_t now_ns)
{
    bool background = request.owner >= 0;

    request.done_ns = now_ns + request.service_ns +
                      (background != d->at_background) * d->switch_ns;
    d->at_background = background;
    d->serving[d->busy++] = request;
}

void sim_device_issue(SimDevice *d, SimRequest request, int64_t now_ns)
{
    if (d->busy < d->channels) {
        serve(d, request, now_ns);
    } else if (d->length < SIM_QUEUE) {
        d->queue[(d->head + d->length++) % SIM_QUEUE] = request;
    } else {
        fprintf(stderr, "idletime-sim: the queue is full: less load\n");
        exit(1);
    }
}

static int first(const SimDevice *d)
{
    int best = 0;

    for (int i = 1; i < d->busy; i++) {
        if (d->serving[i].done_ns < d->serving[best].done_ns) {
            best = i;
        }
    }
    return best;
}

int64_t sim_device_next_ns(const SimDevice *d)
{
    return d->busy ? d->serving[first(d)].done_ns : INT64_MAX;
}

bool sim_device_done(SimDevice *d, int64_t now_ns, SimRequest *request)
{
    int done = first(d);

    if (!d->busy || d->serving[done].done_ns > now_ns) {
        return false;
    }
    *request = d->serving[done];
    d->serving[done] = d->serving[--d->busy];
    if (d->length) {
        SimRequest next = d->queue[d->head];

        d->head = (d->head + 1) % SIM_QUEUE;
        d->length--;
        serve(d, next, now_ns);
    }
    return true;
}
