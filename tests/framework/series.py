"""Guest kernels of a series: Debian 12 has two, 6.1 and, in its backports, 6.12; unpacked below build/, never installed."""

from __future__ import annotations

from tests.framework import paths
from tests.framework.exclusive import exclusive
from tests.framework.kernel import META_PACKAGE, Kernel, describe, get_kernel, run_tool

SUITES = {"6.1": "bookworm", "6.12": "bookworm-backports"}
"""Where each series comes from, on whatever release the tests run."""

UNPACK = paths.ROOT / "qemu-patches" / "scripts" / "unpack-package"
REMEDY = "it needs the network and a Debian mirror in apt's sources"


def get_series(series: str) -> Kernel:
    """The newest kernel of a series; downloads it the first time (27 to 38 MB) and keeps it afterwards."""
    usual = get_kernel()
    if usual.package.startswith(f"linux-image-{series}."):
        return usual
    folder = paths.GUEST / f"series-{series}"
    complete = folder / "root" / ".complete"
    with exclusive(paths.GUEST / ".series.lock"):
        if not complete.exists():
            run_tool([str(UNPACK), str(folder), SUITES[series], META_PACKAGE, r"linux-image-\S*"], paths.BUILD, REMEDY)
            describe(folder / "root")
            complete.touch()
    return describe(folder / "root")
