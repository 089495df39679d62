"""What each part of the learner brings: the simulator with one part switched off at a time.

    python3 -m tests.bench.ablation [--output docs/results] [--seconds 120] [--only PART ...]

The product has no switches for this: each variant is a copy of the learner's
files below build/ablation, with one line of it changed, and that line has to
be there exactly once. Each is compared with the whole learner on all
workloads of tests.bench.simulate and those below, at three budgets: the
background at equal cost to the foreground, and the worst excess over a budget.
Parts that the output folder has of the same learner are not measured again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.bench.simulate import GUESTS, SEEK, WORKLOADS
from tests.framework import paths

TESTS = paths.ROOT / "tests"
OVERLAY = paths.ROOT / "qemu-patches" / "overlay"
TRACE = str(paths.ROOT / "tests" / "bench" / "eval" / "mailserver.csv")
BUDGETS = (1, 3, 10)
SSD_PART = 0.1
"""Of the virtual time of the others: a solid state disk has that many more requests."""

FAR = ["--path-ms", "0.35"]
"""Behind a network."""

MORE: dict[str, list[str]] = {
    "mail server's trace, guests": ["--trace", TRACE, "--depth", "8", *GUESTS],
    "bursts, 2 at a time, guests": ["--depth", "2", "--quantum-ms", "300", "--jitter", "30", *GUESTS],
    "bursts, 8 at a time, guests": ["--depth", "8", "--quantum-ms", "1000", "--jitter", "30", *GUESTS],
    "bursts, background 2 ms late": ["--jitter", "10", "--bg-think-ms", "2"],
    "bursts that change": ["--change-s", "60", "--after-quantum-ms", "40"],
    "three backgrounds, arm, guests": ["--participants", "3", "--jitter", "30", *SEEK, *GUESTS],
    "pieces of 1 to 13 ms": ["--service-ms", "1", "--transfer-ms", "12", "--quantum-ms", "60", "--intensity", "20", "--exponential"],
    "pieces of 5 to 7 ms (64 MB/s)": ["--transfer-ms", "2", "--jitter", "30"],
    "bursts, gaps exponential, far disk": ["--exponential", *FAR],
    "Poisson arrivals, 30 %, far disk": ["--poisson", "--intensity", "30", *FAR],
    "4 channels, 2 ms, Poisson 30 %": ["--channels", "4", "--service-ms", "2", "--spread", "30", "--bg-think-ms", "0.05",
                                       "--outstanding", "16", "--max-inflight", "64", "--poisson", "--intensity", "30"],
}


@dataclass(frozen=True)
class Part:
    """What is switched off, and how: a file, a piece of its text, what takes its place."""

    name: str
    edits: tuple[tuple[str, str, str], ...]


def _constant(name: str, file: str, line: str, value: str) -> Part:
    """A constant's line, with another value."""
    macro = line.split()[1]
    return Part(name, ((file, line + "\n", f"#define {macro} {value}\n"),))


PARTS = (
    Part("cycle: second clock", (("cycle.c", "return c->built &&", "return false && c->built &&"),)),
    Part("seek: gaps used", (("seek.c", "    if (span->background", "    if (service_ns >= 0) {\n        return;\n    }\n    if (span->background"),)),
    _constant("plan: harmless", "plan.c", "#define HARMLESS            0.1", "0"),
    _constant("plan: exchange", "plan.c", "#define BRINGS              0.1", "0"),
    Part("service: turnaround", (("service.c", "MIN(ns, s->any.mean_ns)", "MIN(ns, 0)"),)),
    _constant("histogram: smoothing", "histogram.c", "#define SMOOTH_GAPS     8", "0"),
    Part("delay: spread of services", (("delay.c", "if (off_ns < d.mean_ns / 16)", "if (off_ns >= 0)"),)),
    Part("cost: idle time between those behind", (("cost.c", "MIN(c->left_ns, MAX(waited_ns / c->done, 0))", "c->left_ns"),)),
    Part("scale: what is really paid", (("scale.c", "s->less = s->met >= PERIODS_MIN &&", "s->less = false && s->met >= PERIODS_MIN &&"),)),
    Part("cost: who sends the next one", (("cost.c", "first || !full(c)", "first || !full(c) || true"),)),
    Part("credit: a part of it a start", (("admission.c", "STAKE * ratio", "ratio"),)),
    Part("cycle: more than chance", (("cycle.c", "ERRORS * ERRORS * c->square", "0"),)),
    Part("service: believed times", (("service.c", "return c->count < KNOWN ?", "return c->count < KNOWN || true ?"),)),
    Part("cost: those behind", (("cost.c", "double lost_ns = MAX(c->waits_ns, c->first_ns);", "double lost_ns = c->first_ns;"),)),
    _constant("learner: change test", "learner.c", "#define DOUBT_MAX           8", "1e9"),
    _constant("delay: unseen gaps", "delay.c", "#define UNSEEN          0.5", "1e-6"),
    Part("channels", (("channels.c", "uint32_t limit = MIN(c->limit, c->ceiling);", "uint32_t limit = 1;"), ("channels.c", "return c->purse_ns >= MIN(", "return false && c->purse_ns >= MIN("))),
    Part("admission: credit", (("admission.c", "l->budget.credit_ns);\n}\n\n/* The first start", "l->budget.credit_ns + 1e18);\n}\n\n/* The first start"),)),
    Part("channels: ceiling", (("channels.c", "if (c->slowdown > share)", "if (c->slowdown > 1e9)"),)),
    Part("channels: away", (("channels.c", "start_measurement(c, c->since_away >= every || c->alone_ns == 0);", "start_measurement(c, every && c->alone_ns == 0);"),)),
    Part("channels: wall forgotten", (("channels.c", "c->level[c->wall].count *= 1 - 1.0 / WALL_MEMORY;", ""),)),
    Part("channels: starts spread", (("admission.c", "service.mean_ns / limit;", "0 * service.mean_ns / limit;"),)),
)


def _edit(name: str, edits: tuple[tuple[str, str, str], ...]) -> Path:
    """A copy of the simulator and what it is made of, with these edits."""
    root = paths.BUILD / "ablation" / "".join(c if c.isalnum() else "-" for c in name)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(OVERLAY / "idletime", root / "overlay" / "idletime")
    shutil.copytree(TESTS / "sim", root / "tests" / "sim")
    shutil.copytree(TESTS / "unit" / "include", root / "tests" / "unit" / "include")
    shutil.copy(TESTS / "rooms.mk", root / "tests")
    for file, old, new in edits:
        path = root / "overlay" / "idletime" / "learner" / file
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(f"ablation: {file}: {text.count(old)} times {old!r}: adapt '{name}'")
        path.write_text(text.replace(old, new))
    return root


def _compile(root: Path) -> Path:
    subprocess.run(["make", "-s", "-C", str(root / "tests" / "sim"), f"OVERLAY={root / 'overlay'}", f"BUILD={root}", "CFLAGS=-O2 -w"],
                   check=True)
    return root / "idletime-sim"


def _run(program: Path, options: list[str], seconds: float, seed: int) -> list[dict[str, float]]:
    """Alone, then each budget."""
    fast = "--channels" in options
    seconds *= SSD_PART if fast else 1
    command = [str(program), *options, "--interval-ms", ",".join(f"auto:{b}" for b in BUDGETS), "--seed", str(seed),
               "--duration-s", str(seconds), "--warm-up-s", str(seconds / 4), "--json", "x"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    alone, *rest = [json.loads(line) for line in lines]
    return [{"budget": b, "cost": 100 * (r["fg_mean_ms"] / alone["fg_mean_ms"] - 1), "p99": r["fg_p99_ms"] / alone["fg_p99_ms"],
             "background": r["bg_bytes"]} for b, r in zip(BUDGETS, rest)]


def _at_cost(points: list[tuple[float, float]], cost: float) -> float:
    """Background at that cost, on the line through the points; the ends go on."""
    points = sorted(points)
    best = 0.0
    for (c0, b0), (c1, b1) in zip([(0.0, 0.0), *points], points):
        b1 = max(b0, b1)
        if cost >= c1:
            best = max(best, b1)
        elif c0 <= cost < c1:
            best = max(best, b0 + (b1 - b0) * (cost - c0) / (c1 - c0))
    return best


def _sources() -> str:
    """What the learner and the simulator are made of, and what is asked of them."""
    digest = hashlib.sha256(repr([(WORKLOADS | MORE), BUDGETS, PARTS]).encode())
    for path in sorted([*(OVERLAY / "idletime").rglob("*.[ch]"), *(TESTS / "sim").glob("*.[ch]")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _measure(name: str, program: Path, seconds: float, seeds: int) -> list[dict]:
    records = []
    for workload, options in {**WORKLOADS, **MORE}.items():
        if "--channels" in options and name != "whole" and not name.startswith("channels"):
            continue  # several servers: the other parts have no say there, and it takes long
        for seed in range(1, seeds + 1):
            records += [{"part": name, "workload": workload, "seed": seed, **row} for row in _run(program, options, seconds, seed)]
    return records


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _points(records: list[dict], part: str, workload: str) -> dict[int, dict[str, float]]:
    """Means over the seeds, by budget."""
    rows = [r for r in records if r["part"] == part and r["workload"] == workload]
    return {b: {k: _mean([r[k] for r in rows if r["budget"] == b]) for k in ("cost", "p99", "background")} for b in BUDGETS}


def report(records: list[dict], length: str) -> str:
    """A line for each part: over all workloads, and where it matters most."""
    lines = [
        "Without this part: background at the same cost to the foreground, by that of the whole learner (mean over all workloads,",
        "and the three workloads that change most, all at a budget of 3 %); points by which a budget is exceeded at worst, at a point",
        "or more, beyond what the whole exceeds it; largest change of the foreground's p99 at 3 %. Simulated; python3 -m tests.bench.ablation",
        f"{length}. By chance alone five seeds differ, in runs of 40 s (300 s), by 6.8 to 14.5 (8.9 to 10.9) op/s for Poisson 10 %, 66.2 to 67.0 (66.1 to 66.4) for a disk of 5 to 15 ms.",
        "",
        f"{'without':32} {'mean':>6}  {'excess':>6}  {'p99':>6}  most",
    ]
    for part in dict.fromkeys(r["part"] for r in records if r["part"] != "whole"):
        change, excess, p99 = {}, {}, {}
        workloads = list(dict.fromkeys(r["workload"] for r in records if r["part"] == part))
        for w in workloads:
            whole, without = _points(records, "whole", w), _points(records, part, w)
            curve = [(max(p["cost"], 0.0), p["background"]) for p in without.values()]
            base = whole[3]["background"]
            change[w] = 100 * (_at_cost(curve, max(whole[3]["cost"], 0.0)) / base - 1) if base else 0.0
            excess[w] = max(without[b]["cost"] - max(b, whole[b]["cost"]) for b in BUDGETS)
            p99[w] = without[3]["p99"] - whole[3]["p99"]
        most = sorted(workloads, key=lambda w: -abs(change[w]))[:3]
        worst, tail = max(workloads, key=lambda w: excess[w]), max(workloads, key=lambda w: abs(p99[w]))
        named = "; ".join(f"{change[w]:+.0f} % {w}" for w in most if abs(change[w]) >= 0.5)
        over = f"{excess[worst]:+.1f}" if excess[worst] >= 0.05 else "-"
        lines.append(f"{part:32} {_mean(list(change.values())):+5.1f}%  {over:>6}  {p99[tail]:+5.2f}x  {named}"
                     + (f" [exceeds: {worst}]" if excess[worst] >= 1 else ""))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compile, run, report."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.ablation", description="What each part of the learner brings.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "ablation")
    parser.add_argument("--seconds", type=float, default=120, help="of virtual time a run (120)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="parts whose name begins so")
    arguments = parser.parse_args()
    parts = [p for p in PARTS if not arguments.only or any(p.name.startswith(o) for o in arguments.only)]
    variants = [("whole", ()), *((p.name, p.edits) for p in parts)]
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = arguments.output / "ablation.jsonl"
    made = {"sources": _sources(), "seconds": arguments.seconds, "seeds": arguments.seeds}
    records = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    # The same command goes on, but not with what another learner did.
    records = [r for r in records if made.items() <= r.items()]
    results.write_text("".join(json.dumps(r) + "\n" for r in records))
    variants = [v for v in variants if v[0] not in {r["part"] for r in records}]
    roots = {name: _edit(name, edits) for name, edits in variants}

    def measure(name: str) -> None:
        batch = [made | r for r in _measure(name, _compile(roots[name]), arguments.seconds, arguments.seeds)]
        with results.open("a") as sink:
            sink.write("".join(json.dumps(r) + "\n" for r in batch))
        records.extend(batch)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(measure, roots))
    text = report(records, f"{arguments.seconds:g} s of virtual time, {arguments.seeds} seed(s) a run")
    (arguments.output / "ablation.txt").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
