/*
 * The state machine once more, written from the design (its picture, not its
 * code): eleven arcs in text, everything else stays where it is.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_REFERENCE_H
#define IDLETIME_REFERENCE_H

#include <string.h>

/* Letters in the order of IdletimeState and IdletimeEvent. */
#define REFERENCE_STATES "IFPB"
#define REFERENCE_EVENTS "fbti"

typedef struct Reference {
    char state;
    unsigned long long seen[128][128];      /* [state][event] */
} Reference;

static inline void reference_init(Reference *r)
{
    memset(r, 0, sizeof(*r));
    r->state = 'I';
}

static inline char reference_next(char state, char event)
{
    static const char *const arcs[] = {
        "I-f->F", "I-b->B", "I-i->I",
        "F-f->F", "F-b->P", "F-i->P",
        "P-f->F", "P-t->I",
        "B-f->F", "B-b->B", "B-i->I",
    };

    for (unsigned i = 0; i < sizeof(arcs) / sizeof(arcs[0]); i++) {
        if (arcs[i][0] == state && arcs[i][2] == event) {
            return arcs[i][5];
        }
    }
    return state;
}

static inline void reference_event(Reference *r, char event)
{
    r->seen[(int)r->state][(int)event]++;
    r->state = reference_next(r->state, event);
}

/* Does @core stand where the reference stands, with the same counters? */
static inline bool reference_same(const Reference *r, const IdletimeCore *core)
{
    for (int s = 0; s < IDLETIME_STATE__MAX; s++) {
        for (int e = 0; e < IDLETIME_EVENT__MAX; e++) {
            if (core->count[s][e] != r->seen[(int)REFERENCE_STATES[s]]
                                            [(int)REFERENCE_EVENTS[e]]) {
                return false;
            }
        }
    }
    return r->state == REFERENCE_STATES[core->state];
}

/*
 * A walk enters and leaves each state equally often, but for its two ends.
 * @start: the state in which the counters were zero
 */
static inline bool reference_degrees(const IdletimeCore *core,
                                     IdletimeState start)
{
    long long net[128] = { 0 };

    for (int s = 0; s < IDLETIME_STATE__MAX; s++) {
        for (int e = 0; e < IDLETIME_EVENT__MAX; e++) {
            char from = REFERENCE_STATES[s];

            net[(int)from] -= core->count[s][e];
            net[(int)reference_next(from, REFERENCE_EVENTS[e])] +=
                core->count[s][e];
        }
    }
    net[(int)REFERENCE_STATES[start]]++;
    net[(int)REFERENCE_STATES[core->state]]--;
    return !net['I'] && !net['F'] && !net['P'] && !net['B'];
}

#endif
