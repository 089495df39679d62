"""The pages that a stranger reads: short enough, and no link of theirs leads nowhere; no result is left without a page."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.framework import paths

README_LINES = 120
PAGES = ["README.md", *(str(page.relative_to(paths.ROOT)) for page in sorted((paths.ROOT / "docs").rglob("*.md")))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _text(page: str) -> str:
    return (paths.ROOT / page).read_text()


def _anchors(text: str) -> set[str]:
    """Those that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _broken(page: str) -> list[str]:
    """Links to files or headings that there are not."""
    result = []
    for link in LINK.findall(_text(page)):
        name, _, anchor = link.partition("#")
        target = ((paths.ROOT / page).parent / name).resolve() if name else paths.ROOT / page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
            result.append(link)
    return result


def test_the_readme_is_short() -> None:
    """A minute's reading."""
    assert len(_text("README.md").splitlines()) <= README_LINES


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Files and headings."""
    assert _broken(page) == []


def test_no_result_is_without_a_page() -> None:
    """Each file of docs/results is linked from one of its pages: data that nobody tells of is as good as lost."""
    folder = paths.ROOT / "docs" / "results"
    kept = subprocess.run(["git", "ls-files", "."], cwd=folder, capture_output=True, text=True, check=True).stdout.split()
    told = {link.partition("#")[0] for page in folder.glob("*.md") for link in LINK.findall(page.read_text())}
    assert sorted(name for name in kept if name not in told and name != "README.md") == []


def test_make_targets_of_the_pages_exist() -> None:
    """Each `make TARGET` in code is one of the Makefile's."""
    targets = set(re.findall(r"^([a-z0-9-]+):", _text("Makefile"), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"(?:^    |`)make ((?!-)[a-z0-9-]+)", _text(page), re.MULTILINE)}
    assert sorted(named - targets) == []
