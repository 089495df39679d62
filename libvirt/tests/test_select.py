# SPDX-License-Identifier: GPL-2.0-or-later
"""Names, UUIDs, ids, globs; and what is said where none fits."""

from __future__ import annotations

import pytest

from idletime.errors import Exit
from idletime.select import Named, NoSuchDomain, select

THERE = [
    Named("ci-2", "22222222-0000-0000-0000-000000000000"),
    Named("ci-1", "11111111-0000-0000-0000-00000000000a", 7),
    Named("web", "33333333-0000-0000-0000-000000000000", 1),
    Named("7", "77777777-0000-0000-0000-000000000000"),
    Named("ci-[12]", "44444444-0000-0000-0000-000000000000"),
]


def names(*words, **options):
    return [one.name for one in select(THERE, words, **options)]


@pytest.mark.parametrize(
    "words, found",
    [
        (["web"], ["web"]),
        (["11111111-0000-0000-0000-00000000000A"], ["ci-1"]),
        (["1"], ["web"]),
        (["7"], ["7"]),  # a name comes before an id
        (["ci-*"], ["ci-1", "ci-2", "ci-[12]"]),
        (["ci-[12]"], ["ci-[12]"]),  # what is a name is no glob
        (["ci-?", "ci-1"], ["ci-1", "ci-2"]),  # each once
        (["3333*"], ["web"]),
    ],
)
def test_words(words, found):
    assert names(*words) == found


def test_all_and_except():
    assert names(everything=True) == ["7", "ci-1", "ci-2", "ci-[12]", "web"]
    assert names(everything=True, excepted=["ci-*", "7"]) == ["web"]
    assert names("ci-*", excepted=["ci-2"]) == ["ci-1", "ci-[12]"]


@pytest.mark.parametrize(
    "word, remedy",
    [
        ("wbe", "there is no domain 'wbe'; remedy: use one of web and 4 more"),
        ("CI-1x", "there is no domain 'CI-1x'; remedy: use one of ci-1, ci-[12], ci-2 and 2 more"),
        ("vm*", "no domain fits 'vm*'; remedy: use one of 7, ci-1, ci-2, ci-[12], web ('virt-idletime list --all'"),
        ("zzz", "there is no domain 'zzz'; remedy: use one of 7, ci-1, ci-2, ci-[12], web ("),
    ],
)
def test_none_fits(word, remedy):
    with pytest.raises(NoSuchDomain) as raised:
        names("web", word)
    assert str(raised.value).startswith(remedy) and raised.value.code == Exit.NO_DOMAIN
    with pytest.raises(NoSuchDomain):  # a slip among those excepted would change one too many
        names(everything=True, excepted=[word])


def test_no_domain_at_all():
    with pytest.raises(NoSuchDomain, match="this host has none"):
        select([], ["web"])
    assert select([], [], everything=True) == []
