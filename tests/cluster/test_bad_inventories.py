"""A wrong inventory stops the site before anything is changed, with host, variable and remedy in the message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.conftest import on_node, run_play

TENANT = {"name": "mail", "host": "node1", "class": "foreground"}

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown class": (
        {"tenant_domains": [{**TENANT, "class": "backgroud"}]},
        ["node1", "tenant_domains[0] (mail).class is 'backgroud'", "use foreground, background, guest"]),
    "interval without unit": (
        {"host_resources": [{"name": "disk0", "interval": "20"}]},
        ["node1", "host_resources[0].interval is '20'", "write a number with a unit"]),
    "unknown class in a rule": (
        {"host_rules": [{"name": "x-*", "class": "backgroud"}]},
        ["node1", "host_rules[0].class is 'backgroud'", "use foreground, background, guest, none"]),
    "missing disk": (
        {"tenant_domains": [{**TENANT, "disks": [{"target": "vda", "file": "/srv/nowhere.img"}]}]},
        ["node1", "tenant_domains", "/srv/nowhere.img does not exist", "make it, correct the path"]),
    "no KVM": (
        {"host_allow_tcg": False},
        ["node1", "host_allow_tcg is false", "set host_allow_tcg to true"]),
    "no repository": (
        {"repository_source": "/srv/nowhere"},
        ["node1", "/srv/nowhere/idletime.gpg does not exist", "make the packages for", "with `make packages`"]),
    "a repository without a key": (
        {"repository_source": "https://packages.test/idletime"},
        ["node1", "repository_source is https://packages.test/idletime and repository_key is empty", "set it to the key"]),
    "a variable of another type": (
        {"host_resources": "sda"},
        ["host_resources", "dictionary requested"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_inventory_changes_nothing(raised: None, case: str) -> None:
    """The site stops at its checks; they change nothing, so nothing is changed."""
    variables, expected = CASES[case]
    play = run_play("site", "--limit", "node1", variables=variables)
    assert play.status != 0, "the site did not stop"
    message = play.failures.get("node1", play.text)
    assert [text for text in expected if text not in message] == [], message
    assert play.changed == []
    assert on_node("node1", "ls -d /var/lib/idletime* /etc/idletime /etc/apt/sources.list.d/idletime.sources 2>/dev/null || true") == ""
