"""What the network benchmark runs: the cases, grouped by the link that they need, and in which order."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Iterator

from tests.report.netresults import AUTO, FIRST, IDLE, SHARED, WAYS, Interval, circumstances, control_text
from tests.testbed.link import Model

PROTOCOLS = ("tcp", "udp")
INTENSITIES = (100, 30, 10)
INTERVALS: tuple[Interval, ...] = (AUTO, 0, 1000, 5000, 20000)
DEMO_INTERVALS: tuple[Interval, ...] = (AUTO, 5000, 20000)
SWEEP_INTERVALS: tuple[Interval, ...] = (AUTO, 500, 1000, 2000, 5000)
DELAY_INTERVALS: tuple[Interval, ...] = (AUTO, 0, 1000, 5000, 10000, 20000, 30000)
DEMO_DELAY_INTERVALS: tuple[Interval, ...] = (AUTO, 5000, 10000, 20000)
HEADLINE: Interval = AUTO
"""The interval of the series that do not vary it."""

QUEUE_BYTES_LEAST = 30_000

LINK = Model()
DELAYED = Model(delay_us=10_000)


@dataclass(frozen=True)
class Case:
    """One situation. `interval_us` None: nothing holds the background back, unless `auto`: the interval is learned.

    A role's load: "tcp" or "udp" (netload send), "ask" (request and response,
    the foreground only), or "" for none. `elsewhere`: the background's packets take an uplink of their own, so that
    the guests share the processors only. `processors`: whose these are. `deadline`: a held packet has one.
    """

    foreground: str = ""
    background: str = ""
    intensity: int = 100
    interval_us: int | None = None
    br_netfilter: bool = False
    auto: bool = False
    elsewhere: bool = False
    processors: str = SHARED
    deadline: bool = True

    @property
    def control(self) -> str:
        """What holds the background back, for people."""
        return control_text(AUTO if self.auto else self.interval_us)

    @property
    def name(self) -> str:
        """A short name, unique on its link; also that of files."""
        parts = [self.foreground or "none", str(self.intensity), self.background or "none"]
        if self.foreground and self.background:
            parts.append("auto" if self.auto else "uncontrolled" if self.interval_us is None else f"{self.interval_us}us")
        parts += [word for word, said in (("netfilter", self.br_netfilter), ("elsewhere", self.elsewhere),
                                          (self.processors, self.processors != SHARED), ("forever", not self.deadline)) if said]
        return "-".join(parts)

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        roles = [f"{role} {load.upper()}" for role, load in
                 (("foreground", self.foreground), ("background", self.background)) if load]
        if self.foreground in PROTOCOLS and self.intensity < 100:
            roles[0] += f" {self.intensity} %"
        control = self.control if len(roles) == 2 else "alone"
        return ", ".join([*roles, control, *circumstances(asdict(self))])

    def parameters(self) -> dict[str, Any]:
        """For the data."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class Series:
    """Cases on one link."""

    name: str
    link: Model
    cases: list[Case]


def _held(case: Case, interval: Interval) -> Case:
    return replace(case, auto=True) if isinstance(interval, str) else replace(case, interval_us=interval)


def _controls(case: Case, intervals: tuple[Interval, ...]) -> list[Case]:
    return [case, *(_held(case, interval) for interval in intervals)]


def _alone(foregrounds: tuple[str, ...], intensities: tuple[int, ...]) -> list[Case]:
    """Each foreground without background, and each background without foreground."""
    result = [Case(each, "", intensity) for each in foregrounds for intensity in intensities]
    return result + [Case("", each) for each in PROTOCOLS]


def _pairs(intensities: tuple[int, ...], intervals: tuple[Interval, ...]) -> list[Case]:
    result = _alone(PROTOCOLS, intensities)
    for intensity in intensities:
        for foreground in PROTOCOLS:
            for background in PROTOCOLS:
                result += _controls(Case(foreground, background, intensity), intervals)
    return result


def _probe(intervals: tuple[Interval, ...]) -> list[Case]:
    result = [Case("ask")]
    for background in PROTOCOLS:
        result += _controls(Case("ask", background), intervals)
    return result


def _aims() -> list[Case]:
    """All pairs at all intensities."""
    return _without_uncontrolled(_pairs(INTENSITIES, (HEADLINE,)))


def _netfilter(cases: list[Case]) -> Series:
    """These with br_netfilter on."""
    return Series("netfilter", LINK, [replace(case, br_netfilter=True) for case in cases])


def _sweep() -> list[Case]:
    """Which interval? All pairs at all intensities."""
    return _without_uncontrolled(_pairs(INTENSITIES, SWEEP_INTERVALS))


def _delay(intervals: tuple[Interval, ...], intensities: tuple[int, ...]) -> list[Case]:
    """TCP foreground; acknowledgements come one round trip after the packets."""
    result = _alone(("tcp",), intensities)
    for intensity in intensities:
        for background in PROTOCOLS:
            result += _controls(Case("tcp", background, intensity), intervals)
    return result


def _clock() -> list[Case]:
    """What keeps a background TCP going behind a delay, and what it costs: a short interval, and the deadline."""
    loads = [Case("tcp", intensity=100), Case("tcp", intensity=30), Case("ask")]
    held = [_held(replace(each, background="tcp"), interval) for each in loads for interval in (AUTO, 20000)]
    return [*loads, *(case for each in held for case in (each, replace(each, deadline=False)))]


def _headline() -> list[Series]:
    """What the aims are about, and no more: four minutes at two seconds a run."""
    pairs = [Case(foreground, background, intensity)
             for intensity in INTENSITIES for foreground in PROTOCOLS for background in PROTOCOLS]
    uncontrolled = [case for case in pairs if case.intensity == 100]
    held = [_held(case, HEADLINE) for case in pairs]
    delayed = [case for case in _delay(DELAY_INTERVALS, (30,)) if case.background != "udp"]
    return [Series("pairs", LINK, _alone(PROTOCOLS, INTENSITIES) + uncontrolled + held + _probe((HEADLINE,))),
            _netfilter(_aims()),
            Series("delay", DELAYED, _without_uncontrolled(delayed))]


def _latency() -> list[Case]:
    """The probe, by whose the processors are; and with the background on another uplink, which tells them from the link.

    Of the uncontrolled ones only the worse: its run has to be long for a p99 that means something.
    """
    held = [_held(Case("ask", background), HEADLINE) for background in PROTOCOLS]
    cases = [replace(case, processors=way) for way in WAYS for case in (Case("ask"), *held)]
    return [*cases, *(replace(case, elsewhere=True) for case in held), Case("ask", "udp")]


def _apart() -> list[Case]:
    """A light foreground at each interval; and with the background on another uplink, so that they share the processors only."""
    held = [_held(Case("tcp", "tcp", 10), interval) for interval in (AUTO, 0, 5000, 10000, 20000)]
    return [Case("tcp", intensity=10), Case("", "tcp"), *held, *(replace(case, elsewhere=True) for case in (held[1], held[-1]))]


def _apart_idle() -> list[Case]:
    """The same with the background's processors idle: what it has of them the foreground does not want."""
    light = Case("tcp", intensity=10, processors=IDLE)
    return [light, *(_held(replace(light, background="tcp"), interval) for interval in (0, 20000))]


def _without_uncontrolled(cases: list[Case]) -> list[Case]:
    return [case for case in cases if case.control != "uncontrolled" or not (case.foreground and case.background)]


def possible(cases: list[Case], patched: bool) -> list[Case]:
    """Without our patches only what needs none."""
    return [case for case in cases if patched or case.control == "uncontrolled"]


def _series() -> dict[str, list[Series]]:
    pairs = Series("pairs", LINK, _pairs(INTENSITIES, INTERVALS))
    probe = Series("probe", LINK, _probe(INTERVALS))
    netfilter = _netfilter(_aims())
    delay = Series("delay", DELAYED, _delay(DELAY_INTERVALS, (100, 30)))
    # All ratios are to "alone": measured at both ends, as it is what a drift of the host would hurt most.
    short = _pairs((100, 30), DEMO_INTERVALS) + _probe((HEADLINE,)) + _alone(PROTOCOLS, (100, 30))
    demo = [Series("pairs", LINK, short), netfilter,
            Series("delay", DELAYED, _delay(DEMO_DELAY_INTERVALS, (30,)) + _alone(("tcp",), (30,)))]
    quick = _pairs((100,), (HEADLINE,))
    return {
        "pairs": [pairs], "probe": [probe], "netfilter": [netfilter], "delay": [delay],
        "thirty": [Series("pairs", LINK, _pairs((30,), (1000, HEADLINE)))],
        "light": [Series("pairs", LINK, _pairs((10,), (1000, HEADLINE)))],
        "interval": [Series("pairs", LINK, _sweep())],
        "interval-netfilter": [_netfilter(_sweep())],
        "apart": [Series("pairs", LINK, _apart())],
        "apart-idle": [Series("pairs", LINK, _apart_idle())],
        "clock": [Series("delay", DELAYED, _clock())],
        "demo": demo, "headline": _headline(),
        "aims": [Series("pairs", LINK, _aims())], "aims-netfilter": [_netfilter(_aims())],
        "latency": [Series("pairs", LINK, _latency())],
        "latency-first": [Series("pairs", LINK, [case for case in _latency() if case.processors == FIRST])],
        "quick": [Series("pairs", LINK, quick)],
        "short": [Series("pairs", LINK, quick + [each for each in _probe((HEADLINE,)) if each.background != "tcp"])],
        "uncontrolled": [Series("pairs", LINK, possible(pairs.cases + probe.cases, False))],
        "all": [Series("pairs", LINK, pairs.cases + probe.cases), netfilter, delay],
    }


SERIES = _series()
"""What can be asked for, by name."""


def at_rate(link: Model, rate_mbit: int) -> Model:
    """The same link at another rate; its queue holds as much time, but never less than twenty packets."""
    queue_bytes = max(link.queue_bytes * rate_mbit // link.rate_mbit, QUEUE_BYTES_LEAST)
    return replace(link, rate_mbit=rate_mbit, queue_bytes=queue_bytes)


def schedule(series: Series, patched: bool, repeats: int) -> Iterator[tuple[int, Case]]:
    """(repeat, case); every other repeat runs backwards, so that a drift of the host hits all cases alike."""
    for repeat in range(repeats):
        order = possible(series.cases, patched)
        for case in order if repeat % 2 == 0 else reversed(order):
            yield repeat, case
