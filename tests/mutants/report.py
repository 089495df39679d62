"""The report: how many of the mutants were killed, and the ones that were not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Sequence

from tests.mutants.accepted import Accepted
from tests.mutants.campaign import OVERLAY, Campaign
from tests.mutants.record import GOLDEN, JUDGED, KILLED, SURVIVED, Record
from tests.mutants.source import Mutant, flatten


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:5.1f} %" if whole else "    - "


def _known(mutant: Mutant, accepted: Sequence[Accepted]) -> Accepted | None:
    return next((entry for entry in accepted if entry.matches(mutant)), None)


def _stale(campaign: Campaign, accepted: Sequence[Accepted]) -> list[Accepted]:
    """Entries whose statement is no more in its file."""
    lines = {file: {" ".join(line.split()) for line in flatten(text)} for file, text in campaign.text.items()}
    return [e for e in accepted if not (OVERLAY / e.file).exists() or (e.file in lines and e.before not in lines[e.file])]


def _table(judged: Sequence[tuple[Mutant, Record]]) -> list[str]:
    lines = [f"{'killed':>8} {'counted':>8} {'golden':>7} {'survived':>9}  file"]
    for file in [*dict.fromkeys(mutant.file for mutant, _ in judged), "all"]:
        count = Counter(found.outcome for mutant, found in judged if file in (mutant.file, "all"))
        lines.append(f"{_percent(count[KILLED], count.total()):>8} {count.total():8} {count[GOLDEN]:7} {count[SURVIVED]:9}  {file}")
    return lines


def _block(mutant: Mutant, found: Record, entry: Accepted | None) -> list[str]:
    lines = [f"{mutant.file}:{mutant.line}" + (f"  ({found.by})" if found.by else "")]
    lines += [f"- {mutant.before.strip()}", f"+ {mutant.after.strip()}"]
    return [*lines, *([f"= {entry.reason}"] if entry else []), ""]


def text(campaign: Campaign, accepted: Sequence[Accepted]) -> str:
    """The whole report."""
    entries = {mutant: _known(mutant, accepted) for mutant in campaign.result}
    equivalent = {m for m, entry in entries.items() if entry and entry.equivalent and campaign.result[m].outcome != KILLED}
    judged = [(m, found) for m, found in campaign.result.items() if found.outcome in JUDGED and m not in equivalent]
    judged.sort(key=lambda pair: (pair[0].file, pair[0].line))
    how = "all mutants" if campaign.sample is None else f"a sample of {campaign.sample}, seed {campaign.seed}"
    stages = Counter(found.by.split()[0] for _, found in judged if found.outcome == KILLED)
    lines = [f"Mutants of {len(campaign.files)} files: {how}"]
    if campaign.ended_early:
        lines.append(f"The run was ended early: {len(campaign.result) - len(judged) - len(equivalent)} are not judged.")
    lines += ["Killed by: " + ", ".join(f"{stage} {n}" for stage, n in stages.most_common())]
    lines += ["Not counted: " + ", ".join(f"{n} {what}" for what, n in campaign.left_out.most_common()) +
              f"; {len(equivalent)} listed as equivalent", "", *_table(judged), ""]
    for title, outcome in (("Survived", SURVIVED), ("Only the golden files noticed", GOLDEN)):
        some = [(m, found) for m, found in judged if found.outcome == outcome]
        lines += [f"{title}: {len(some)}", "", *(line for m, found in some for line in _block(m, found, entries[m]))]
    for entry in _stale(campaign, accepted):
        lines.append(f"stale in tests/mutants/accepted: {entry.file}: {entry.before}")
    for mutant, entry in entries.items():
        if entry and campaign.result[mutant].outcome == KILLED:
            lines.append(f"killed, though in tests/mutants/accepted: {mutant.file}:{mutant.line}: {entry.after}")
    return "\n".join(lines) + "\n"


def write(path: Path, campaign: Campaign, accepted: Sequence[Accepted]) -> str:
    """Write the report; returns it."""
    result = text(campaign, accepted)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(result)
    return result
