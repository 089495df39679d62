"""NICs whose tap has vhost, which is the kernel's of the host."""

from __future__ import annotations

from typing import Callable

import pytest


@pytest.mark.parametrize("name", ["net-vhost", "net-vhost-life"])
def test_vhost_gives_way_and_comes_back(passes: Callable[..., None], name: str) -> None:
    """Foreground runs vhost and says that it is not seen; background is held in QEMU; detached, it runs vhost again."""
    passes(name, {})


@pytest.mark.parametrize("name", ["net-tap", "net-bound", "net-pairs"])
def test_background_is_as_without_vhost(passes: Callable[..., None], name: str) -> None:
    """The tests of taps, all of whose devices are background or of class guest, with vhost=on: QEMU's own path serves them."""
    passes(name, {"IDLETIME_TAP_OPTIONS": ",vhost=on"})
