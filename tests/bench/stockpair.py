"""The demo's pair with a foreground on a QEMU without our patches: the background sees it by the observer in the kernel."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench import pair
from tests.framework.qemu import Machine, stock_qemu
from tests.testbed import observer


class StockPair(pair.Pair):
    """On a loop device, so that the kernel's block layer has the requests; the rest is the same."""

    def __enter__(self) -> StockPair:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
            stock = stock_qemu()
            assert stock, "observer.missing_beside_stock() was not asked"
            host = observer.Host(stack, self._boot, stock, folder / "arena", self._model)
            self.disk, self.background, self.foreground = host.disk, host.background(), host.stock()
            host.observer()
            observer.await_seen(self.background)
            self._stack = stack.pop_all()
        return self

    def _controlled(self) -> tuple[Machine, ...]:
        return (self.background,)
