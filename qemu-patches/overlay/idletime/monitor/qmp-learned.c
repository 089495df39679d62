/*
 * Idletime: query-idletime, what the learner knows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/util.h"
#include "qemu/lockable.h"
#include "idletime/monitor/qmp-impl.h"

/* Bins of the histogram in one of those shown. */
#define SHOWN_BINS      (IDLETIME_BIN_SUB / 4)

static IdletimeGapBinList *distribution(const IdletimeHistogram *h)
{
    IdletimeGapBinList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < IDLETIME_BINS; i += SHOWN_BINS) {
        IdletimeGapBin *bin;
        double sum = 0;

        for (unsigned k = i; k < i + SHOWN_BINS; k++) {
            sum += h->bin[k];
        }
        if (sum <= 0) {
            continue;
        }
        bin = g_new0(IdletimeGapBin, 1);
        bin->from_us = idletime_bin_edge(i) / SCALE_US;
        bin->share = sum / h->total;
        QAPI_LIST_APPEND(tail, bin);
    }
    return list;
}

static void windows_add(IdletimeLearned *info, const IdletimeWindows *windows)
{
    IdletimeWindow shown[IDLETIME_WINDOWS_SHOWN];
    IdletimeWindowInfoList **tail = &info->windows;
    unsigned count = idletime_windows_list(windows, shown);

    for (unsigned i = 0; i < count; i++) {
        IdletimeWindowInfo *window = g_new0(IdletimeWindowInfo, 1);

        window->begin_us = shown[i].begin_ns / SCALE_US;
        window->has_end_us = shown[i].end_ns != INT64_MAX;
        window->end_us = window->has_end_us ? shown[i].end_ns / SCALE_US : 0;
        QAPI_LIST_APPEND(tail, window);
    }
    info->service_us = windows->service.mean_ns / SCALE_US;
    info->starts_per_gap = windows->starts;
    info->cost_per_gap_us = windows->delay_ns / SCALE_US;
}

static void set_share(bool *has, double *share, double value)
{
    *has = value >= 0;
    *share = *has ? value : 0;
}

static IdletimeSpareInfo *spare_info(const IdletimeSpare *spare)
{
    IdletimeSpareInfo *info = g_new0(IdletimeSpareInfo, 1);

    set_share(&info->has_second, &info->second, idletime_spare_second(spare));
    set_share(&info->has_minute, &info->minute, idletime_spare_minute(spare));
    set_share(&info->has_hour, &info->hour, idletime_spare_hour(spare));
    set_share(&info->has_forecast, &info->forecast,
              idletime_spare_forecast(spare));
    return info;
}

static void budget_add(IdletimeLearned *info, const IdletimeLearner *l)
{
    const IdletimeBudget *budget = &l->budget;

    info->slowdown_percent = idletime_budget_slowdown(budget) * 100;
    info->delay_factor = idletime_learner_factor(l);
    info->seek_cost_us = l->seek.cost_ns * idletime_cost_factor(&l->cost) /
                         SCALE_US;
    info->credit_us = budget->credit_ns / SCALE_US;
    info->credit_max_us = budget->cap_ns / SCALE_US;
}

void idletime_learned_add(IdletimeResourceInfo *info, IdletimeResource *res)
{
    const IdletimeLearner *l;
    IdletimeLearned *learned;

    QEMU_LOCK_GUARD(&res->lock);
    l = res->learner;
    if (!l) {
        return;
    }
    learned = info->learned = g_new0(IdletimeLearned, 1);
    learned->ready = idletime_learner_ready(l);
    learned->gaps = l->gap_count;
    learned->distribution = distribution(&l->slow);
    learned->changes = l->changes;
    learned->lost = l->gaps.overruns;
    learned->channels = idletime_channels_limit(&l->channels);
    learned->learner_us = res->learner_ns / SCALE_US;
    learned->spare = spare_info(&l->spare);
    budget_add(learned, l);
    learned->cyclic = idletime_cycle_better(&l->cycle);
    if (l->built_gaps) {
        windows_add(learned, learned->cyclic ? &l->cycle.windows :
                                               &l->windows);
        if (info->q_auto) {
            info->interval_us = idletime_learner_interval(l, info->interval_us *
                                                          SCALE_US) / SCALE_US;
        }
    }
}
