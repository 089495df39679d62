/*
 * The simulated background: who may start, and what is learned from it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "sim-impl.h"

int64_t sim_transfer_ns(const Sim *s, uint32_t bytes)
{
    return (double)s->p.transfer_ns * bytes / SIM_PIECE_BYTES;
}

static IdletimeView look(const Sim *s, const Part *self)
{
    const Part *first = self;

    for (int i = 0; i < s->p.participants; i++) {
        const Part *other = &s->part[i];

        if (other->held && other->vtime_ns < first->vtime_ns) {
            first = other;
        }
    }
    return (IdletimeView) {
        .fg_started = s->fg_started, .fg_in_service = s->fg_in_service,
        .fg_last_ns = s->fg_last_ns, .bg_in_service = s->bg_in_service,
        .others_first = first != self,
    };
}

static IdletimeGoal goal_of(const Sim *s)
{
    return (IdletimeGoal) { .share = s->p.policy.budget,
                            .interval_ns = s->p.policy.interval_ns };
}

static void learn(Sim *s, Part *part)
{
    IdletimeGoal goal = goal_of(s);
    IdletimeTotals totals = {
        .fg_done = s->fg_started - s->fg_in_service,
        .fg_in_service = s->fg_in_service,
        .bg_started = s->bg_started, .bg_cost_ns = s->bg_cost_ns,
        .bg_in_service = s->bg_in_service > 0,
        .quiet = !s->fg_in_service && !s->bg_in_service,
        .fg_last_ns = s->fg_last_ns,
    };

    for (int i = 0; i < s->p.foregrounds; i++) {
        const IdletimeFgLine *line = &s->board->line[i];

        totals.fg_request_ns += line->request_ns + line->in_service *
                                (s->fg_last_ns - line->last_ns);
    }
    s->bg_cost_ns += idletime_learner_look(&part->learner, &goal, s->board,
                                           s->p.foregrounds, &totals,
                                           s->now_ns);
}

static void release(Sim *s, Part *part)
{
    uint32_t bytes = s->p.piece_bytes;

    memmove(part->since_ns, part->since_ns + 1,
            --part->held * sizeof(part->since_ns[0]));
    s->bg_started++;
    sim_issue(s, (SimRequest) {
        .owner = part - s->part, .issued_ns = s->now_ns,
        .service_ns = s->bg_service_ns + sim_transfer_ns(s, bytes),
        .bytes = bytes,
        .beside = s->fg_in_service + s->bg_in_service,
        .fg_idle = s->fg_in_service == 0,
    });
    s->bg_in_service++;
    s->bg_service_ns = sim_service_ns(s);
}

/*
 * The dissertation's 7.2.2 leaves open by how much; as TCP: doubled by each
 * collision, and so much shorter with time.
 */
#define AIMD_LEAST_NS   1000000
#define AIMD_MOST_NS    1000000000

static int64_t aimd_interval_ns(Sim *s)
{
    uint64_t collisions = 0;

    for (int i = 0; i < s->p.participants; i++) {
        collisions += s->part[i].core.count[IDLETIME_STATE_BACKGROUND]
                                           [IDLETIME_EVENT_FOREGROUND];
    }
    s->interval_ns -= (s->now_ns - s->interval_at_ns) * s->p.policy.shrink;
    s->interval_ns = MAX(s->interval_ns, 0);
    for (; s->collisions < collisions; s->collisions++) {
        s->interval_ns = MIN(MAX(2 * s->interval_ns, AIMD_LEAST_NS),
                             AIMD_MOST_NS);
    }
    s->interval_at_ns = s->now_ns;
    return s->interval_ns;
}

/*
 * Fig. 5.5: the end of background use with more of it waiting (event b) is an
 * interval in variants 3 and 4, with none waiting (event i) in 2 and 4.
 */
static void variant_done(Sim *s)
{
    bool waits = false;

    for (int i = 0; i < s->p.participants; i++) {
        waits |= s->part[i].held > 0;
    }
    if (s->p.policy.variant == 4 || s->p.policy.variant == (waits ? 3 : 2)) {
        s->bg_last_ns = s->now_ns;
    }
}

static IdletimeVerdict decide(Sim *s, Part *part, IdletimeFee *fee)
{
    IdletimeView view = look(s, part);
    IdletimeRule rule = s->p.rule;

    if (s->p.policy.kind == SIM_UNCONTROLLED ||
        (s->p.policy.kind == SIM_CLAIRVOYANT && sim_foreseen_free(s))) {
        return (IdletimeVerdict) { .kind = IDLETIME_START };
    }
    if (s->p.policy.kind == SIM_CLAIRVOYANT) {
        return (IdletimeVerdict) { .kind = IDLETIME_WAIT_FOREGROUND,
                                   .again_ns = s->now_ns +
                                               s->p.service_ns / 50 };
    }
    rule.interval_ns = s->p.policy.kind == SIM_AIMD ?
                       aimd_interval_ns(s) : s->p.policy.interval_ns;
    view.fg_last_ns = MAX(view.fg_last_ns, s->bg_last_ns);
    if (s->p.policy.kind == SIM_AUTO) {
        IdletimeGoal goal = goal_of(s);
        IdletimeAdmission permit;

        learn(s, part);
        permit = idletime_learner_admit(&part->learner, &goal,
                                         &(IdletimeQuestion) {
            .bytes = s->p.piece_bytes,
            .fg_requests = s->fg_in_service,
            .bg_in_service = s->bg_in_service, .fg_last_ns = s->fg_last_ns,
            .now_ns = s->now_ns,
        });
        rule.interval_ns = permit.interval_ns;
        rule.max_inflight = MIN(rule.max_inflight, permit.max_inflight);
        view.beside = permit.beside;
        view.closed_until_ns = permit.closed_until_ns;
        *fee = permit.fee;
    }
    return idletime_core_ask(&part->core, &rule, &view, s->now_ns,
                             part->since_ns[0]);
}

static void ask(Sim *s, Part *part)
{
    part->timer_ns = INT64_MAX;
    while (part->held) {
        IdletimeFee fee = { .probe = false }, none = fee;
        IdletimeVerdict verdict = decide(s, part, &fee);

        if (verdict.kind > IDLETIME_PROMOTE) {
            part->timer_ns = MAX(verdict.again_ns, s->now_ns + 1);
            if (s->p.policy.kind == SIM_AUTO) {
                part->timer_ns = idletime_learner_again(&part->learner,
                                                        part->timer_ns,
                                                        s->now_ns);
            }
            return;
        }
        s->promoted += verdict.kind == IDLETIME_PROMOTE;
        idletime_core_started(&part->core);
        idletime_learner_started(&part->learner,
                                 verdict.kind == IDLETIME_START ? fee : none,
                                 s->now_ns);
        release(s, part);
    }
}

void sim_background_done(Sim *s, const SimRequest *request)
{
    Part *part = &s->part[request->owner];
    IdletimeView view;
    int stream = 0;

    while (part->back_ns[stream] != INT64_MAX) {
        stream++;
    }
    part->back_ns[stream] = s->now_ns + s->p.bg_think_ns;
    part->vtime_ns += s->now_ns - request->issued_ns;
    s->bg_in_service--;
    s->bg_done += s->now_ns >= s->p.warm_up_ns;
    s->bg_bytes += s->now_ns >= s->p.warm_up_ns ? request->bytes : 0;
    view = look(s, part);
    idletime_core_done(&part->core, &s->p.rule, &view, s->now_ns,
                       part->held > 0);
    if (s->p.policy.kind == SIM_AUTO) {
        learn(s, part);
        idletime_learner_done(&part->learner, &(IdletimeServed) {
            .bytes = request->bytes, .beside = request->beside,
            .fg_idle = request->fg_idle, .since_ns = request->issued_ns,
        }, s->now_ns);
    }
    if (s->p.policy.kind == SIM_VARIANT) {
        variant_done(s);
    }
    for (int i = 0; i < s->p.participants; i++) {
        ask(s, &s->part[i]);
    }
}

void sim_background_step(Sim *s, Part *part)
{
    bool news = part->timer_ns <= s->now_ns;

    for (int i = 0; i < s->p.outstanding; i++) {
        if (part->back_ns[i] <= s->now_ns) {
            part->back_ns[i] = INT64_MAX;
            part->since_ns[part->held++] = s->now_ns;
            news = true;
        }
    }
    if (news) {
        ask(s, part);
    }
}
