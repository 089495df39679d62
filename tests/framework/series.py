"""Guest kernels of a series: Debian 12 has two, 6.1 and, in its backports, 6.12; unpacked below build/, never installed."""

from __future__ import annotations

import getpass
import re
import shutil

from tests.framework import paths
from tests.framework.kernel import META_PACKAGE, Kernel, describe, run_tool, get_kernel

SUITES = {"6.1": "bookworm", "6.12": "bookworm-backports"}
"""Where each series comes from, on whatever release the tests run."""

MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
REMEDY = "it needs the network; is Debian's archive to be reached?"


class _Apt:
    """apt with a sources list and state of its own: the system's configuration is not touched."""

    def __init__(self, series: str) -> None:
        self.folder = paths.GUEST / f"series-{series}"
        self.state = self.folder / "apt"
        for name in ("lists/partial", "cache/archives/partial"):
            (self.state / name).mkdir(parents=True, exist_ok=True)
        (self.state / "sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {SUITES[series]} main\n")
        (self.state / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{self.state}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
            f'Dir::State::lists "{self.state}/lists";\nDir::Cache "{self.state}/cache";\n'
            f'APT::Sandbox::User "{getpass.getuser()}";\nAcquire::Languages "none";\nAcquire::Retries "3";\n'
            "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n"
        )

    def run(self, program: str, *arguments: str) -> str:
        """Run apt-get or apt-cache."""
        return run_tool([program, "-c", str(self.state / "apt.conf"), *arguments], self.folder, REMEDY)


def get_series(series: str) -> Kernel:
    """The newest kernel of a series; downloads it the first time (27 to 38 MB) and keeps it afterwards."""
    usual = get_kernel()
    if usual.package.startswith(f"linux-image-{series}."):
        return usual
    folder = paths.GUEST / f"series-{series}" / "root"
    if (folder / ".complete").exists():
        return describe(folder)
    apt = _Apt(series)
    apt.run("apt-get", "-qq", "update")
    found = re.search(r"Depends: (linux-image-\S+)", apt.run("apt-cache", "depends", META_PACKAGE))
    if not found:
        raise RuntimeError(f"{SUITES[series]} has no {META_PACKAGE}; {REMEDY}")
    apt.run("apt-get", "-qq", "download", found.group(1))
    shutil.rmtree(folder, ignore_errors=True)
    archive = sorted(apt.folder.glob("linux-image-*.deb"))[-1]
    run_tool(["dpkg", "-x", str(archive), str(folder)], apt.folder, "is the disk full?")
    archive.unlink()
    shutil.rmtree(apt.state)
    kernel = describe(folder)
    (folder / ".complete").touch()
    return kernel
