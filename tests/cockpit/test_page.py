"""The page Idle load in a real browser, on a real cockpit-ws, with two real VMs on one disk."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

import libvirt
import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.e2e.libvirt_fixtures import INTERVAL_US, expect, foreground, remove, served
from tests.framework import paths
from tests.framework.cockpit import PAGE, Cockpit, make_visitor
from tests.framework.domain import Domain, disk_xml
from tests.framework.idletimed import Idletimed, wait_until
from tests.framework.libvirtd import Libvirtd
from tests.testbed.disk import Disk

AXE = paths.ROOT / "cockpit/node_modules/axe-core/axe.min.js"
SHOTS = Path(os.environ.get("IDLETIME_SCREENSHOTS", paths.BUILD / "cockpit" / "screenshots"))

NAMES = f"""[slow]
interval-us = {INTERVAL_US}
match.host = "*"
"""
STEPS_MS = [0, 0.5, 1, 2, 5, 10, 20, 50, 100]
"""Of the slider."""

BY = "12:00"
"""A deadline."""
DUE = "urn:idletime:due:1"

BOOT_SECONDS, LOAD_SECONDS = 600, 3600
LOG_LEVELS = ("SEVERE",)
CHANGE = """
const [uuid, done] = arguments;
cockpit.http("/run/idletime/.api.sock").request({method: "PUT", path: `/v1/vms/${uuid}/class`, body: '{"class": "background"}'})
    .then(() => done(200)).catch(error => done(error.status));
"""


class Page:
    """The page in the browser."""

    def __init__(self, browser: Any, cockpit: Cockpit) -> None:
        self.browser, self.cockpit = browser, cockpit

    def open(self, style: str = "light") -> Page:
        """Anew, in a theme."""
        self.browser.get(f"{self.cockpit.url}{PAGE}")
        self.browser.execute_script("localStorage.setItem('shell:style', arguments[0])", style)
        self.browser.get(f"{self.cockpit.url}{PAGE}")
        self.wait(lambda: bool(self.find("h1")) and self.find("h1").text == "Idle load", "the page is there")
        return self

    def find(self, css: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def text(self, css: str) -> str:
        return str(self.find(css).text)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Elements come and go while React draws."""
        def holds() -> bool:
            try:
                return condition()
            except (NoSuchElementException, StaleElementReferenceException):
                return False
        try:
            wait_until(holds, what)
        except AssertionError as error:
            SHOTS.mkdir(parents=True, exist_ok=True)
            self.browser.save_screenshot(str(SHOTS / "failed.png"))
            raise AssertionError(f"{error}; the page: {self.text('body')[:3000]}; {self.browser.get_log('browser')}") from None

    def class_of(self, name: str) -> Select:
        return Select(self.find(f"[data-vm='{name}'] select"))

    def choose(self, name: str, label: str) -> None:
        self.wait(lambda: self.class_of(name)._el.is_enabled(), f"{name} can be chosen for")
        self.class_of(name).select_by_visible_text(label)

    def held(self, name: str) -> int:
        text = self.text(f"[data-vm='{name}'] .idle-held")
        return int(text) if text.isdecimal() else 0

    def says(self, name: str, label: str) -> None:
        """Which class it says that a VM has, in force."""
        self.wait(lambda: self.class_of(name).first_selected_option.text == label
                  and "carried out" not in self.text(f"[data-vm='{name}']"), f"{name} is '{label}'")

    def lane(self, name: str) -> str:
        return str(self.find(f"[data-lane='{name}'] path.idle-{name}").get_attribute("d"))

    def drawn(self, name: str) -> bool:
        """Whether a lane of the timeline has more than its base line."""
        return self.lane(name).count("V") > 1

    def full(self) -> bool:
        """Whether the last ten seconds are known, of all lanes."""
        return all(self.drawn(name) and float(self.find(f"[data-lane='{name}'] .idle-unknown").get_attribute("width")) < 25
                   for name in ("foreground", "interval", "background"))

    def axe(self) -> list[Any]:
        """What axe finds against WCAG 2.1 AA, and its best practices."""
        self.browser.execute_script(AXE.read_text())
        found = self.browser.execute_async_script("axe.run().then(arguments[0])")
        return [{"id": one["id"], "help": one["help"], "nodes": [node["html"][:200] for node in one["nodes"]]}
                for one in found["violations"]]

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.browser.save_screenshot(str(SHOTS / f"{name}.png"))


@pytest.fixture(scope="module")
def pair(module_stack: ExitStack, host: Libvirtd, idletimed: Idletimed, shared_disk: Disk) -> tuple[Domain, Domain]:
    """A foreground VM with bursts beside one without a policy, whose load never ends. The host's file says which resource is
    behind the disks, and its interval."""
    folder = host.rules / "resources.d"
    folder.mkdir()
    (folder / "names.toml").write_text(NAMES)
    made = [Domain(host, name, its, [disk_xml(shared_disk, name)], wait_seconds=BOOT_SECONDS)
            for name, its in (("database", foreground()), ("backup", ""))]
    for each in made:
        each.define()
        module_stack.callback(remove, each)
        each.start()
    fg, bg = (each.booted() for each in made)
    expect(fg, vda=("foreground", "slow", INTERVAL_US))
    bg.guest.load(outstanding=8, seconds=LOAD_SECONDS)
    fg.guest.load(intensity=30, quantum_ms=300, pauses="exponential", outstanding=1, seconds=LOAD_SECONDS)
    served(shared_disk, "backup")
    return fg, bg


@pytest.fixture
def page(browser: Any, cockpit: Cockpit, pair: tuple[Domain, Domain]) -> Page:
    return Page(browser, cockpit).open()


def test_mark_held_unmark(page: Page, pair: tuple[Domain, Domain]) -> None:
    """The whole way: mark a VM, see it held and the timeline move, by light and dark; edit its policy; unmark it."""
    _, bg = pair
    page.wait(lambda: page.class_of("backup").first_selected_option.text == "None", "nobody's")
    page.says("database", "Foreground")
    page.choose("backup", "Background")
    expect(bg, vda=("background", "slow", INTERVAL_US))
    page.says("backup", "Background")
    page.wait(lambda: page.held("backup") > 0, "requests of it are held")
    page.wait(lambda: all(map(page.drawn, ("foreground", "interval", "background"))), "the timeline shows all three")
    before = page.lane("foreground")
    page.wait(lambda: page.lane("foreground") != before, "it moves")

    for style in ("light", "dark"):
        page.open(style)
        page.wait(page.full, "the timeline shows ten seconds of all three")
        assert page.axe() == []
        page.wait(lambda: page.held("backup") > 0, "requests of it are held")
        page.shot(f"page-{style}")

    edit_policy(page, bg)
    set_interval(page, bg)
    page.choose("backup", "None of its own")
    page.wait(lambda: "interval" in page.text("#remove-body"), "what would be lost is shown")
    assert page.axe() == []
    page.shot("page-remove")
    page.find("#remove-policy").click()
    expect(bg)
    page.wait(lambda: page.class_of("backup").first_selected_option.text == "None", "nobody's again")
    assert "idletime:policy" not in bg.dom.XMLDesc(0)
    assert [one for one in page.browser.get_log("browser") if one["level"] in LOG_LEVELS] == []
    origins = page.browser.execute_script(
        "return [...new Set(performance.getEntriesByType('resource').map(each => new URL(each.name).origin))]")
    assert origins == [page.cockpit.url], "nothing of other hosts"


def test_jobs(page: Page, host: Libvirtd, pair: tuple[Domain, Domain]) -> None:
    """A copy that runs is shown with its progress, and is gone when it is cancelled."""
    _, bg = pair
    page.wait(lambda: "None runs." in page.text("#jobs"), "there is none")
    host.call("install", "-d", "-o", "libvirt-qemu", "/run/copies")
    bg.dom.blockCopy("vda", "<disk type='file'><source file='/run/copies/vda'/><driver type='raw'/></disk>",
                     {libvirt.VIR_DOMAIN_BLOCK_COPY_BANDWIDTH: 4 << 20}, libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB)
    job = "[data-job='backup vda']"
    page.wait(lambda: "Copy of backup, vda" in page.text(job), "it is shown")
    page.wait(lambda: "MB/s" in page.text(job) and "in " in page.text(job), "its rate and its end are known")
    assert page.axe() == []
    page.shot("page-jobs")
    bg.dom.blockJobAbort("vda")
    page.wait(lambda: "None runs." in page.text("#jobs"), "it is gone")
    os.kill(bg.pid, signal.SIGSTOP)
    try:
        page.wait(lambda: "What runs of backup is not known" in page.text("#jobs"), "a QEMU that hangs is named")
    finally:
        os.kill(bg.pid, signal.SIGCONT)
    page.wait(lambda: "None runs." in page.text("#jobs"), "it answers again")


def test_in_the_menu(page: Page) -> None:
    """Cockpit's shell has it in its menu, and shows it."""
    page.browser.get(f"{page.cockpit.url}/idletime")
    page.wait(lambda: "Idle load" in page.text("#host-apps, #nav-system"), "it is in the menu")
    frame = page.find("iframe[name='cockpit1:localhost/idletime']")
    page.browser.switch_to.frame(frame)
    page.says("database", "Foreground")
    page.browser.switch_to.default_content()
    page.shot("shell")


def test_past_its_deadline(page: Page, pair: tuple[Domain, Domain], idletimed: Idletimed) -> None:
    """A VM that was background until a time that has passed stays foreground: the page says so, and its switch is free again."""
    _, bg = pair
    page.wait(lambda: page.find("[data-vm='backup'] button").is_displayed(), "it is in the table")
    page.find("[data-vm='backup'] button").click()
    page.wait(lambda: page.find("#policy-text").is_displayed(), "the editor is there")
    write_policy(page, f"<policy xmlns='urn:idletime:policy:1' class='background' by='{BY}'/>")
    page.wait(lambda: save_button(page).is_enabled(), "it is right")
    save_button(page).click()
    wait_until(lambda: DUE in bg.dom.XMLDesc(), "its deadline is written down")
    idletimed.stop()
    bg.dom.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, f"<due at='1' by='{BY}'/>", "d", DUE, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    idletimed.start()
    page.says("backup", "Foreground")
    page.choose("backup", "Background")
    page.wait(lambda: "backup stays foreground" in page.text("body") and f"until {BY}" in page.text("body"), "it says why")
    page.wait(lambda: page.class_of("backup")._el.is_enabled(), "it can be chosen again")
    page.choose("backup", "None of its own")
    page.wait(lambda: "by=" in page.text("#remove-body"), "what would be lost is shown")
    page.find("#remove-policy").click()
    expect(bg)


def test_who_only_looks(browser: Any, host: Libvirtd, pair: tuple[Domain, Domain], idletimed: Idletimed) -> None:
    """A user without administrative access sees all of it and is told that he cannot change it; when idletimed has ended, the
    page says so, and goes on when it is back."""
    cockpit = Cockpit(host, user="nobody")
    try:
        page = Page(browser, cockpit).open()
        page.says("database", "Foreground")
        page.wait(lambda: "Only administrators" in page.text("body"), "it says who may")
        assert not page.class_of("backup")._el.is_enabled()
        assert page.browser.find_elements(By.CSS_SELECTOR, "[data-vm='backup'] button") == []
        assert page.axe() == []
        assert browser.execute_async_script(CHANGE, pair[1].dom.UUIDString()) == 403, "past the page, idletimed refuses"
        idletimed.stop()
        page.wait(lambda: "does not answer" in page.text("body"), "it says that nobody answers")
        idletimed.start()
        page.wait(lambda: "does not answer" not in page.text("body"), "it goes on")
    finally:
        cockpit.stop()


def test_log_in(browser: Any, host: Libvirtd, pair: tuple[Domain, Domain]) -> None:
    """As people do: by a name and a password, which PAM checks."""
    account, cockpit = make_visitor(host), Cockpit(host, user=None)
    try:
        page = Page(browser, cockpit)
        browser.get(f"{cockpit.url}{PAGE}")
        for password in ("wrong", account.password):
            page.wait(lambda: page.find("#login-user-input").is_displayed(), "it asks who comes")
            for field, value in (("#login-user-input", account.name), ("#login-password-input", password)):
                page.find(field).clear()
                page.find(field).send_keys(value)
            page.find("#login-button").click()
            if password == "wrong":
                page.wait(lambda: "Wrong user name or password" in page.text("body"), "nobody comes in with a wrong one")
        page.wait(lambda: page.find("h1").text == "Idle load", "the page is there")
        page.says("database", "Foreground")
        page.choose("backup", "Background")
        wait_until(lambda: [state["class"] for state in pair[1].scheduler().values()] == ["background"], "it is background")
        page.wait(lambda: "None of its own" in [one.text for one in page.class_of("backup").options], "the page knows")
        page.choose("backup", "None of its own")
        expect(pair[1])
    finally:
        cockpit.stop()


def edit_policy(page: Page, bg: Domain) -> None:
    """A mistake is said with its line and cannot be saved; a right policy is in force."""
    page.find("[data-vm='backup'] button").click()
    page.wait(lambda: "background" in page.find("#policy-text").get_attribute("value"), "the editor shows the policy")
    write_policy(page, "<policy xmlns='urn:idletime:policy:1' class='background'>\n  <interval us='soon'/>\n</policy>")
    page.wait(lambda: "us='soon'" in page.text("#policy-verdict"), "it says what is wrong")
    assert not save_button(page).is_enabled()
    assert page.axe() == []
    page.shot("page-policy")
    write_policy(page, "<policy xmlns='urn:idletime:policy:1' class='background'>\n  <interval us='50000'/>\n</policy>")
    page.wait(lambda: save_button(page).is_enabled(), "it is right")
    save_button(page).click()
    expect(bg, vda=("background", "slow", 50000))
    page.wait(lambda: not page.browser.find_elements(By.CSS_SELECTOR, "#policy-text"), "the editor is closed")


def set_interval(page: Page, bg: Domain) -> None:
    """By the slider's keys: each press is a step; then learned, which the slider leaves to the scheduler."""
    thumb = page.find(".idle-interval [role='slider']")
    page.wait(lambda: thumb.get_attribute("aria-valuenow") == str(STEPS_MS.index(50)), "it stands at what is in force")
    for _ in range(3):
        thumb.send_keys(Keys.ARROW_LEFT)
    expect(bg, vda=("background", "slow", 5000))
    page.wait(lambda: page.text(".idle-interval-says") == "5 ms in force", "it says so")
    assert thumb.get_attribute("aria-valuenow") == str(STEPS_MS.index(5))
    assert page.axe() == []
    page.shot("page-interval")
    page.find("label[for='interval-auto']").click()
    wait_until(lambda: next(iter(bg.scheduler().values()))["resource"]["auto"], "it is learned")
    page.wait(lambda: thumb.get_attribute("aria-disabled") == "true", "nothing to set")


def write_policy(page: Page, text: str) -> None:
    """As React hears it."""
    page.browser.execute_script(
        "const set = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').set;"
        "set.call(arguments[0], arguments[1]); arguments[0].dispatchEvent(new Event('input', {bubbles: true}));",
        page.find("#policy-text"), text)


def save_button(page: Page) -> Any:
    return next(one for one in page.browser.find_elements(By.CSS_SELECTOR, ".pf-v6-c-modal-box button") if one.text == "Save")
