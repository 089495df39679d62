"""One cloud for all tests; each begins with no server."""

from __future__ import annotations

from typing import Iterator

import pytest

from tests.openstack.lab import Lab


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    """It takes a minute, once its file system and data bases are made."""
    with Lab() as result:
        yield result


@pytest.fixture(autouse=True)
def empty(lab: Lab) -> Iterator[None]:
    """No server is left for the next test."""
    yield
    lab.delete()
