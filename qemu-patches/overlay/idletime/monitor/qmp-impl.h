/*
 * Idletime: query-idletime, what its files share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef IDLETIME_QMP_IMPL_H
#define IDLETIME_QMP_IMPL_H

#include "idletime/resource/resource.h"
#include "qapi/qapi-types-idletime.h"

/**
 * idletime_learned_add: what the learner knows, and the interval in force.
 * Context: BQL.
 */
void idletime_learned_add(IdletimeResourceInfo *info, IdletimeResource *res);

/** idletime_observer_info: as of now.  Context: BQL. */
IdletimeObserverInfo *idletime_observer_info(IdletimeResource *res);

#endif
