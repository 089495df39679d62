"""A real cockpit-ws with the built page, a real Chromium that looks at it, and a host with two VMs."""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.e2e.conftest import boot, pytest_configure  # noqa: F401  (fixtures)
from tests.e2e.libvirt_fixtures import host, idletimed, module_stack, shared_disk  # noqa: F401  (fixtures)
from tests.framework import paths
from tests.framework.idletimed import wait_until
from tests.framework.libvirtd import Libvirtd
from tests.framework.process import Process

DIST = paths.BUILD / "cockpit" / "dist"
WS = Path("/usr/lib/cockpit/cockpit-ws")
CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
PAGE = "/cockpit/@localhost/idletime/index.html"


class Cockpit:
    """cockpit-ws in the mount namespace of a host, where idletimed's socket is, and in our network, where the browser is."""

    def __init__(self, host: Libvirtd, user: str = "") -> None:
        """user: who is logged in; "": root."""
        self.port = _free_port()
        packages = host.folder / "run" / "cockpit"
        if not packages.exists():
            shutil.copytree(DIST, packages / "cockpit" / "idletime")
        target = str(host._init_pid)
        as_user = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"] if user else []
        self.process = Process(
            ["nsenter", "--target", target, "--mount", "--pid", "--uts", "--ipc", "--wd=/", "--", *as_user,
             "env", "XDG_DATA_HOME=/run/cockpit", "HOME=/tmp", str(WS), "--no-tls", "--address=127.0.0.1", f"--port={self.port}",
             "--local-session=cockpit-bridge"],
            host.folder / "log" / f"cockpit-{user or 'root'}.log")
        wait_until(self._answers, "cockpit-ws answers")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        assert self.process.running(), self.process.error("ended")
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        self.process.stop()


def _free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


@pytest.fixture(scope="module")
def cockpit(module_stack: ExitStack, host: Libvirtd) -> Cockpit:  # noqa: F811
    missing = [str(one) for one in (WS, CHROMIUM, DRIVER, DIST / "index.js") if not one.exists()]
    assert not missing, f"not there: {', '.join(missing)}; run 'make cockpit-test', which installs and builds them"
    found = Cockpit(host)
    module_stack.callback(found.stop)
    return found


@pytest.fixture(scope="module")
def browser(module_stack: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:  # noqa: F811
    """Headless, with nothing of a user's."""
    home = tmp_path_factory.mktemp("chromium")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1200", "--lang=en-US",
                     f"--user-data-dir={home}", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(str(DRIVER)), options=options)
    driver.set_script_timeout(60)
    try:
        yield driver
    finally:
        driver.quit()
