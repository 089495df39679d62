"""The service times of the disk with seeks (model.h), where nothing of them is random: pure."""

from __future__ import annotations

import numpy as np

from tests.testbed.disk import Model

TRACK_BYTES, HALF_TURN_NS = 1 << 20, 8_333_333 // 2
OVERHEAD_US, SEEK_MIN_US, SEEK_MAX_US, RATE = 100, 800, 16_000, 150_000_000
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def services_ns(model: Model, requests: np.ndarray) -> np.ndarray:
    """How long each of these requests would be in service if the disk served no others; times in the log are with the others.

    A disk without seeks takes as long in any company. ValueError for one whose rotation is random.
    """
    if model.model != "seek" or not len(requests):
        return np.asarray(requests["finish_ns"] - requests["start_ns"])
    if model.rotation != "half" or model.rate is not None:
        raise ValueError(f"{model}: only with rotation=half and the default rate can services without the others be told")
    at = requests["offset"].astype(np.int64)
    ahead = at - np.concatenate([[0], (at + requests["bytes"])[:-1]])
    low = _given(model.seek_min_us, SEEK_MIN_US)
    span_us = _given(model.seek_max_us, SEEK_MAX_US) - low
    arm = 1000 * (low + span_us * np.sqrt(np.abs(ahead) / (int(model.size[:-1]) * UNITS[model.size[-1]])))
    near = (ahead >= 0) & (ahead <= TRACK_BYTES)
    position = np.where(near, ahead / RATE * 1e9, arm + HALF_TURN_NS)
    return np.asarray(_given(model.overhead_us, OVERHEAD_US) * 1000 + position + requests["bytes"] / RATE * 1e9).astype(np.int64)
