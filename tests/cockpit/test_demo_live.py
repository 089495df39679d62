"""The live demo, as one starts it: its address and its password open the page's server, and Ctrl-C leaves nothing."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode

import pytest

from tests.framework import paths


def status(url: str, name: str, password: str) -> int:
    """Of a login."""
    basic = b64encode(f"{name}:{password}".encode()).decode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/cockpit/login", headers={"Authorization": f"Basic {basic}"})) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_live() -> None:
    with subprocess.Popen([sys.executable, "-m", "tests.bench.demo_live"], cwd=paths.ROOT, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            said = "".join(line for line in iter(demo.stdout.readline, "Ctrl-C ends it.\n") if line)
            url, name, password = re.search(r"(http://127\.0\.0\.1:[0-9]+).*\nUser name (\S+), password (\S+)", said).groups()  # type: ignore[union-attr]
            assert status(url, name, password) == 200
            assert status(url, name, "wrong") == 401
        finally:
            demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 130
    with pytest.raises(urllib.error.URLError):
        status(url, name, password)
