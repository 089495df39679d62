"""A real cockpit-ws with the built page, a real Chromium that looks at it, and a host with two VMs."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.e2e.conftest import boot, pytest_configure  # noqa: F401  (fixtures)
from tests.e2e.libvirt_fixtures import host, idletimed, module_stack, shared_disk  # noqa: F401  (fixtures)
from tests.framework.cockpit import Cockpit, lacking
from tests.framework.libvirtd import Libvirtd

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")


@pytest.fixture(scope="module")
def cockpit(module_stack: ExitStack, host: Libvirtd) -> Cockpit:  # noqa: F811
    missing = [*lacking(), *(str(one) for one in (CHROMIUM, DRIVER) if not one.exists())]
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
