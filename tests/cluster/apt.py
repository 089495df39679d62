"""What this machine's apt is set to: the only place that the cluster takes packages from."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tests.cluster.place import ClusterError, run

FORMAT = "$(REPO_URI)|$(CODENAME)|$(COMPONENT)|$(ORIGIN)|$(SIGNED_BY)"


@dataclass(frozen=True)
class Source:
    """A Debian archive that apt reads: where, which release."""

    uri: str
    suite: str


def suite() -> str:
    """The release that this machine runs, and that the nodes have, too."""
    return run(["sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME"]).strip()


def main_source() -> Source:
    """The archive of the running release itself: not its updates, not another vendor's."""
    release = suite()
    lines = run(["apt-get", "indextargets", "--format", FORMAT, "Created-By: Packages"]).splitlines()
    for uri, codename, component, origin, _ in (line.split("|") for line in lines):
        if (codename, component, origin) == (release, "main", "Debian"):
            return Source(uri, release)
    raise ClusterError(f"apt has no source for Debian {release} main: add one, run `apt-get update`, and try again")


def environment() -> dict[str, str]:
    """The environment for programs that do not read apt's configuration: apt's proxy, if it has one."""
    values = dict(os.environ)
    for scheme in ("http", "https"):
        proxy = run(["apt-config", "shell", "proxy", f"Acquire::{scheme}::Proxy"])
        if proxy.startswith("proxy='"):
            values[f"{scheme}_proxy"] = proxy[len("proxy='"):].rstrip("'\n")
    return values
