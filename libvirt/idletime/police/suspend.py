# SPDX-License-Identifier: GPL-2.0-or-later
"""When a whole background VM is stopped and goes on (paper 004). Pure.

    sample     every 0.25 s: processor seconds and device accesses of the foreground and of each background VM
    contention a share of the background is below its threshold over the last 1.25 s
    EII        stopped for 1 s, runs for one interval as a probe; contention again: 2, 4, 8, 16 s
    IPD        stopped until the foreground is seen to be idle; never probes

Worked number (EII, steady contention, one background VM): it runs 1.25 of 17.25 s, 7.2 %, and the foreground loses half of
that to it: 3.8 %. Of the times below all are seconds of one monotonic clock, all shares are from 0 to 1.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

SLACK_S = 1e-6
"""Sums of sample times are compared with intervals; this is far below both."""


@dataclass(frozen=True)
class Use:
    """Accesses of one device (004, 4.1: requests of a disk, packets sent by an interface), by the foreground and each VM."""

    foreground: float = 0.0
    background: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """BGShare (004, equation 1), 0 to 1; None: nobody used it. The host's own services are not in it (4.2)."""
        ours = sum(self.background.values())
        return ours / (ours + self.foreground) if ours + self.foreground > 0 else None


@dataclass(frozen=True)
class Sample:
    """What was used in the `seconds` before `at_s`. cpu: processor seconds. idle_s: of all `cpus` together. devices: by kind
    and name, "disk sda"."""

    at_s: float
    seconds: float
    cpus: int
    idle_s: float
    cpu: Use = Use()
    devices: Mapping[str, Use] = field(default_factory=dict)


class Rule(str, enum.Enum):
    """How a stopped VM comes back (004, 5.2)."""

    EII = "eii"
    IPD = "ipd"


@dataclass(frozen=True)
class Thresholds:
    """cpu, device: contention where the share is below (004, 4.4.2). cpu_idle: processors count only where less than this is
    idle (4.3.1). resume_idle: IPD takes the host for idle from here on (5.2.2)."""

    cpu: float = 0.85     # 80 to 90 % in the paper
    device: float = 0.98  # "just below 100 %"
    cpu_idle: float = 0.25
    resume_idle: float = 0.62


@dataclass(frozen=True)
class Settings:
    """Times in seconds. wake_after_s, wake_s: of IPD, for TCP peers (004, 7.3, where it is proposed and not built): 0.25 of
    30.25 s costs the foreground less than 0.7 % beside four VMs, and peers that give up after 40 or 60 s do not."""

    rule: Rule = Rule.EII
    thresholds: Thresholds = Thresholds()
    aggregation_s: float = 1.25
    multiprocessor_s: float = 0.25  # 004, 4.3.2: what is judged of the processors where there are several
    first_s: float = 1.0
    longest_s: float = 16.0
    wake_after_s: float = 30.0
    wake_s: float = 0.25


class Mode(str, enum.Enum):
    RUNNING = "running"
    STOPPED = "stopped"
    PROBING = "probing"  # EII runs it to see whether there is contention still
    WAKING = "waking"    # IPD lets it answer its TCP peers


@dataclass(frozen=True)
class State:
    """One VM. since_s: when the mode began. length_s: how long this suspension, or the next one, lasts (EII)."""

    mode: Mode = Mode.RUNNING
    since_s: float = -math.inf
    length_s: float = 0.0


class Act(str, enum.Enum):
    """What to do by QMP; never a signal: a stopped process that holds a token keeps it until its lease ends."""

    NOTHING = "nothing"
    STOP = "stop"
    CONT = "cont"


@dataclass(frozen=True)
class Decision:
    """What to do with one VM, and why in words; why is empty where nothing is done. cause: the same in one of CAUSES."""

    state: State
    act: Act = Act.NOTHING
    why: str = ""
    cause: str = ""


CAUSES = ("processor", "disk", "uplink", "resource", "probe", "idle", "peers")


# ---- the window

def add(window: Sequence[Sample], sample: Sample, keep_s: float) -> tuple[Sample, ...]:
    """The window with one more sample, and none that ended keep_s seconds or more before it. At most 1000 samples."""
    return tuple(one for one in (*window, sample)[-1000:] if one.at_s > sample.at_s - keep_s + SLACK_S)


def total(samples: Iterable[Sample]) -> Sample | None:
    """Samples as one; None where there are none. The number of processors is that of the last."""
    samples = tuple(samples)
    if not samples:
        return None
    names = {name for one in samples for name in one.devices}
    return Sample(samples[-1].at_s, sum(one.seconds for one in samples), samples[-1].cpus, sum(one.idle_s for one in samples),
                  _sum(one.cpu for one in samples),
                  {name: _sum(one.devices.get(name, Use()) for one in samples) for name in names})


def _sum(uses: Iterable[Use]) -> Use:
    background: dict[str, float] = {}
    foreground = 0.0
    for use in uses:
        foreground += use.foreground
        for name, amount in use.background.items():
            background[name] = background.get(name, 0.0) + amount
    return Use(foreground, background)


def _last(window: Sequence[Sample], since_s: float, seconds: float) -> Sample | None:
    """The last samples that are `seconds` together, or a little more; None where these began before since_s, or are too few."""
    for number in range(1, len(window) + 1):
        seen = total(window[-number:])
        if seen and seen.seconds >= seconds - SLACK_S:
            return seen if window[-number].at_s - window[-number].seconds >= since_s - SLACK_S else None
    return None


# ---- contention

@dataclass(frozen=True)
class Contention:
    """What a VM contends with the foreground for. cause: one of CAUSES."""

    cause: str
    why: str


def contention(name: str, seen: Sample, thresholds: Thresholds) -> Contention | None:
    """What this VM contends with the foreground for (004, 4.4.2); None: nothing. A device counts only for VMs that used it
    (4.3.2); a share of zero is none (4.4.2: then nothing was taken from the foreground)."""
    return _device_contention(name, seen, thresholds) or _cpu_contention(name, seen, thresholds)


def _device_contention(name: str, seen: Sample, thresholds: Thresholds) -> Contention | None:
    for device, use in sorted(seen.devices.items()):
        share = use.share
        if use.background.get(name, 0.0) > 0 and share is not None and share < thresholds.device:
            return Contention(device.partition(" ")[0],
                              f"{device}: background {share:.0%} of its accesses, below {thresholds.device:.0%}")
    return None


def _cpu_contention(name: str, seen: Sample, thresholds: Thresholds) -> Contention | None:
    share, capacity = seen.cpu.share, seen.cpus * seen.seconds
    if seen.cpu.background.get(name, 0.0) <= 0 or share is None or share >= thresholds.cpu or capacity <= 0:
        return None
    if seen.cpus > 1:
        idle = seen.idle_s / seen.seconds
        why = f"processors: {idle:.2f} of {seen.cpus} idle, less than one" if idle < 1 else ""
    else:
        idle = seen.idle_s / capacity
        why = (f"processor: background {share:.0%}, below {thresholds.cpu:.0%}, and {idle:.0%} idle, below "
               f"{thresholds.cpu_idle:.0%}") if idle < thresholds.cpu_idle else ""
    return Contention("processor", why) if why else None


def idle(seen: Sample, thresholds: Thresholds) -> bool:
    """No foreground disk or network access, and idle processors (IPD, 004, 5.2.2). On several processors one that is free is
    enough (4.3.2). What background VMs that still run take is not the foreground's: it counts as idle."""
    if any(use.foreground > 0 for use in seen.devices.values()) or seen.seconds <= 0:
        return False
    free = seen.idle_s + sum(seen.cpu.background.values())
    return free / seen.seconds >= 1 if seen.cpus > 1 else free / seen.seconds >= thresholds.resume_idle


# ---- one VM

def decide(name: str, state: State, window: Sequence[Sample], now_s: float, settings: Settings) -> Decision:
    """One VM, looked at every 0.25 s (004, 5.2). window: samples up to now_s. Without samples a running VM runs on."""
    return _BY_MODE[state.mode](name, state, window, now_s, settings)


def _found(name: str, state: State, window: Sequence[Sample], settings: Settings) -> Contention | None:
    """Contention since the mode began. Processors of a multiprocessor are judged over their own, shorter interval."""
    whole = _last(window, state.since_s, settings.aggregation_s)
    found = contention(name, whole, settings.thresholds) if whole else None
    if found or not window or window[-1].cpus < 2:
        return found
    short = _last(window, state.since_s, settings.multiprocessor_s)
    return _cpu_contention(name, short, settings.thresholds) if short else None


def _running(name: str, state: State, window: Sequence[Sample], now_s: float, settings: Settings) -> Decision:
    found = _found(name, state, window, settings)
    if not found:
        return Decision(state)
    return Decision(State(Mode.STOPPED, now_s, settings.first_s), Act.STOP, found.why, found.cause)


def _stopped(name: str, state: State, window: Sequence[Sample], now_s: float, settings: Settings) -> Decision:
    age = now_s - state.since_s + SLACK_S
    if settings.rule is Rule.EII:
        if age < state.length_s:
            return Decision(state)
        return Decision(replace(state, mode=Mode.PROBING, since_s=now_s), Act.CONT,
                        f"stopped for {state.length_s:g} s: a probe of {settings.aggregation_s:g} s", "probe")
    seen = _last(window, state.since_s, settings.aggregation_s)
    if seen and idle(seen, settings.thresholds):
        return Decision(State(Mode.RUNNING, now_s), Act.CONT, f"no foreground for {seen.seconds:g} s", "idle")
    if age >= settings.wake_after_s:
        return Decision(State(Mode.WAKING, now_s), Act.CONT,
                        f"stopped for {settings.wake_after_s:g} s: {settings.wake_s:g} s for its TCP peers", "peers")
    return Decision(state)


def _probing(name: str, state: State, window: Sequence[Sample], now_s: float, settings: Settings) -> Decision:
    found = _found(name, state, window, settings)
    if found:
        longer = min(max(state.length_s, settings.first_s) * 2, settings.longest_s)
        return Decision(State(Mode.STOPPED, now_s, longer), Act.STOP, f"{found.why}; for {longer:g} s", found.cause)
    if _last(window, state.since_s, settings.aggregation_s) is None:
        return Decision(state)
    return Decision(State(Mode.RUNNING, state.since_s))


def _waking(name: str, state: State, window: Sequence[Sample], now_s: float, settings: Settings) -> Decision:
    if now_s - state.since_s + SLACK_S < settings.wake_s:
        return Decision(state)
    return Decision(State(Mode.STOPPED, now_s), Act.STOP, "it was let answer its TCP peers", "peers")


_BY_MODE = {Mode.RUNNING: _running, Mode.STOPPED: _stopped, Mode.PROBING: _probing, Mode.WAKING: _waking}


# ---- several processors

def free_cpus(cpus: int, foreground_s: float, seconds: float) -> int:
    """Processors that background threads may have (004, 4.3.2): those that the foreground leaves, less one."""
    if seconds <= 0:
        return 0
    return max(0, cpus - math.ceil(foreground_s / seconds - 0.05) - 1)  # 5 % of one is the host's own noise


def placed(free: int, threads: Mapping[str, int], running: Iterable[str]) -> tuple[str, ...]:
    """Which VMs may run on `free` processors, by their runnable threads: those that run first, so that none is exchanged for
    another without need; then in the order given."""
    there = set(running)
    chosen: list[str] = []
    for name in sorted(threads, key=lambda one: one not in there):
        if threads[name] <= free:
            chosen.append(name)
            free -= threads[name]
    return tuple(chosen)


# ---- calibration

def accuracy(contended: Sequence[float], clear: Sequence[float], threshold: float) -> float:
    """Rate of hits times rate of correct rejections (004, 4.4.1), 0 to 1, of a threshold over shares that were measured with
    contention and without. A share of zero is none."""
    if not contended or not clear:
        return 0.0
    hits = sum(0 < share < threshold for share in contended) / len(contended)
    return hits * sum(not 0 < share < threshold for share in clear) / len(clear)


def calibrated(contended: Sequence[float], clear: Sequence[float], otherwise: float) -> float:
    """The highest threshold, in whole percent, of the best accuracy (004, 4.4.2 takes the high end, for the foreground's
    sake); `otherwise` where the best is below 80 %, or nothing was measured."""
    best = max(range(1, 101), key=lambda percent: (accuracy(contended, clear, percent / 100), percent)) / 100
    return best if accuracy(contended, clear, best) >= 0.8 else otherwise
