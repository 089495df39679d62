"""In which part of its way the probe's time went: on the uplink, at the far end, back, or in its own guest and QEMU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib import recfunctions

from tests.testbed.passage import STAGES, Passage

GUEST = "guest"
"""The stage that is not seen from outside: guest and QEMU, both ways."""

SLOWEST = 0.01
"""The share of requests that the p99 is about."""


def joined(samples: np.ndarray, passage: Passage) -> np.ndarray:
    """The load's samples, each with its stages in microseconds."""
    outside = passage.stages_us(len(samples))
    inside = samples["latency_us"] - outside.sum(axis=1)
    columns = [column.astype("<f4") for column in (*outside.T, inside)]
    return recfunctions.append_fields(samples, [f"{name}_us" for name in (*STAGES, GUEST)], columns, usemask=False)


def summary(samples: np.ndarray) -> dict[str, Any]:
    """Of each stage the median, the 99th percentile, and its mean among the slowest requests, in microseconds."""
    whole = samples[~np.isnan(samples[f"{GUEST}_us"])]
    if not len(whole):
        return {}
    slow = whole[whole["latency_us"] >= np.quantile(whole["latency_us"], 1 - SLOWEST)]
    return {name: {"p50_us": round(float(np.median(whole[f"{name}_us"])), 1),
                   "p99_us": round(float(np.quantile(whole[f"{name}_us"], 1 - SLOWEST)), 1),
                   "slowest_us": round(float(slow[f"{name}_us"].mean()), 1)} for name in (*STAGES, GUEST)}
