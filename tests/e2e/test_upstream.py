"""What `make upstream-tests` says of two trees: no test is run here."""

from __future__ import annotations

import pytest

from tests.upstream.results import FAILED, PASSED, SKIPPED, equal, of_tap, report, unsettled, verdict


@pytest.mark.parametrize("line, found", [
    ("ok 1 /throttle/leak_bucket", {"/throttle/leak_bucket": PASSED}),
    ("ok raw 141 # SKIP", {"141": SKIPPED}),
    ("not ok qcow2 185", {"185": FAILED}),
    ("ok 4 - /x", {"/x": PASSED}),
    ("# ok 5 /not/one", {}),
])
def test_tap(line: str, found: dict[str, str]) -> None:
    """GLib's and the iotests' dialect."""
    assert of_tap(line, 0) == found


def test_death_is_a_failure() -> None:
    """A program that dies between two tests passes no more for a good one; a failed test is no second failure."""
    assert of_tap("ok 1 /a\n", 134) == {"/a": PASSED, "(exit)": FAILED}
    assert of_tap("not ok 1 /a\n", 1) == {"/a": FAILED}


@pytest.mark.parametrize("runs, said", [
    ([PASSED], "passed at first"), ([SKIPPED], "skipped at first"), ([FAILED, PASSED, FAILED], "passed when repeated alone"),
    ([FAILED, FAILED], "failed"), ([None, PASSED], "passed when repeated alone"),
])
def test_verdict(runs: list[str | None], said: str) -> None:
    """Of one test on one tree."""
    assert verdict(runs) == said


@pytest.mark.parametrize("unpatched, patched, same", [
    ([PASSED], [PASSED], True), ([FAILED, PASSED], [PASSED, PASSED], True), ([FAILED, FAILED], [FAILED, FAILED], True),
    ([FAILED, FAILED], [PASSED, PASSED], False), ([PASSED, PASSED], [FAILED, FAILED], False), ([SKIPPED], [PASSED], False),
])
def test_equality(unpatched: list[str | None], patched: list[str | None], same: bool) -> None:
    """Whichever tree is the one that fails."""
    assert equal({"unpatched": unpatched, "patched": patched}) == same


def test_report() -> None:
    """What is not plain is named with every run of it."""
    runs = {"a": {"unpatched": [{"1": PASSED}], "patched": [{"1": PASSED}]},
            "b": {"unpatched": [{"2": FAILED}, {"2": PASSED}], "patched": [{"2": PASSED}, {"2": PASSED}]}}
    text, same = report(runs)
    assert same and "| unpatched | 1 | 1 | 0 | 0 |" in text and "| patched | 2 | 0 | 0 | 0 |" in text
    assert "`b 2`: unpatched: FAILED, passed; patched: passed, passed." in text and "`a 1`" not in text
    assert [name for name, trees in runs.items() if unsettled(trees)] == ["b"]
