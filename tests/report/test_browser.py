"""The page in a real browser: Chromium without a window, driven over a pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peerlearn.records.read import read_runs
from peerlearn.report import render

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the path")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
]
PATIENCE = 60.0  # seconds for one answer, on a machine that is busy with experiments


class Chromium:
    """One browser process and its DevTools messages, which are separated by zero bytes."""

    def __init__(self, profile: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.reads, self.writes, self.buffer, self.number = ours_in, ours_out, b"", 0
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}"]
        # The browser reads descriptor 3 and writes descriptor 4.
        pipes = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", pipes, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, method: str, session: str) -> None:
        while not any(e["method"] == method and e["sessionId"] == session for e in self.events):
            self.events.append(self.receive())

    def receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reads], [], [], max(0.0, end - time.monotonic()))
            assert ready, "chromium does not answer"
            chunk = os.read(self.reads, 1 << 16)
            assert chunk, "chromium has ended"
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        message.setdefault("sessionId", None)
        return message if "id" in message else {"method": "", **message}

    def close(self) -> None:
        os.close(self.writes)  # the browser ends with its pipe
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reads)


class Tab:
    """One page in the browser."""

    def __init__(
        self, browser: Chromium, path: Path, width: int, scheme: str, scripts: bool
    ) -> None:
        self.browser = browser
        context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = browser.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=path.as_uri())
        browser.wait_for("Page.loadEventFired", self.session)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def evaluate(self, code: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, " ": 32}
        about = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def events(self, method: str) -> list[dict[str, Any]]:
        here = [e for e in self.browser.events if e["sessionId"] == self.session]
        return [e["params"] for e in here if e["method"] == method]

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


Open = Callable[..., Tab]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    chromium = Chromium(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture
def show(browser: Chromium, runs_root: Path, tmp_path: Path) -> Open:
    """Render the runs as they are now and open the page."""

    def opened(width: int = 1440, scheme: str = "light", scripts: bool = True) -> Tab:
        path = tmp_path / "report.html"
        path.write_text(render(read_runs(runs_root)), encoding="utf-8")
        return Tab(browser, path, width, scheme, scripts)

    return opened


@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_the_body_never_scrolls_sideways(
    show: Open, fabricate_run: Callable[..., Path], width: int
) -> None:
    fabricate_run("a_method_with_a_very_long_name_of_its_own+ccldc", tasks=10, memory=5000)
    fabricate_run("er", data="somebody-" + "x" * 90, status="running", reached=2)
    fabricate_run("gsa", settings={"x" * 50: 1}, along={"every": 50, "probe": 10, "window": 1000})
    tab = show(width)
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    wide = """[...document.querySelectorAll('body *')].filter((e) =>
        e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, nav, .choice, pre')
        && !e.closest('.unseen')).map((e) => e.outerHTML.slice(0, 120))"""
    assert tab.evaluate(wide) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("innerWidth") == width


def test_the_page_asks_for_nothing_and_breaks_no_rule_of_its_policy(show: Open) -> None:
    tab = show()
    urls = [event["request"]["url"] for event in tab.events("Network.requestWillBeSent")]
    assert [url.rpartition("/")[2] for url in urls] == ["report.html"]
    assert tab.events("Log.entryAdded") == []
    assert tab.events("Runtime.exceptionThrown") == []
    tab.evaluate("fetch('http://127.0.0.1:9/').catch(() => {})")
    entries = [event["entry"]["text"] for event in tab.events("Log.entryAdded")]
    assert entries  # the policy itself is in force
    assert all("Content Security Policy" in entry for entry in entries)


def test_names_from_files_never_run(show: Open, fabricate_run: Callable[..., Path]) -> None:
    evil = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    fabricate_run("er", seed=7, names=[evil + str(i) for i in range(10)], settings={evil: evil})
    tab = show()
    assert tab.evaluate("window.hacked === undefined && !document.querySelector('img')")
    assert tab.evaluate("document.body.textContent.includes('onerror=')")


def brightness(tab: Tab) -> float:
    code = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    return sum(tab.evaluate(code)[:3]) / 3


def test_the_theme_follows_the_system_until_one_is_chosen(show: Open) -> None:
    light, dark = show(scheme="light"), show(scheme="dark")
    assert brightness(light) > 200
    assert brightness(dark) < 60
    assert light.screenshot() != dark.screenshot()
    dark.evaluate("document.querySelector('input[value=light]').click()")
    assert brightness(dark) > 200
    dark.evaluate("location.hash = 'dark'; document.querySelector('input[value=auto]').click()")
    assert brightness(dark) < 60


def test_the_first_tab_stop_skips_to_the_results(show: Open) -> None:
    tab = show()
    tab.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    assert tab.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    tab.press("Enter")
    assert tab.evaluate("location.hash + document.activeElement.id") == "#mainmain"


def test_arrow_keys_choose_the_seed_of_a_matrix_and_the_theme(show: Open) -> None:
    tab = show()
    shown = "[...document.querySelectorAll('.card')][0].querySelectorAll('.panel')"
    visible = f"[...{shown}].map((panel) => panel.offsetHeight > 0)"
    assert tab.evaluate(visible) == [True, False, False]
    tab.evaluate("document.querySelector('.card input').focus()")
    tab.press("ArrowRight")
    assert tab.evaluate(visible) == [False, True, False]
    outline = "getComputedStyle(document.activeElement.nextElementSibling).outlineStyle"
    assert tab.evaluate(outline) == "solid"
    tab.evaluate("document.querySelector('[data-choice=theme] input:checked').focus()")
    tab.press("ArrowRight")
    tab.press("ArrowRight")
    assert brightness(tab) < 60


def test_every_scrolling_table_can_be_focused(show: Open) -> None:
    code = """[...document.querySelectorAll('table')].every((table) => {
        const box = table.closest('.scroll');
        return box && box.tabIndex === 0 && box.getAttribute('aria-label');
    })"""
    assert show(390).evaluate(f"Boolean({code})")


def test_a_point_tells_its_number_when_it_is_pointed_at(show: Open) -> None:
    tab = show()
    code = """(() => {
        const dot = document.querySelector('#stream .dot[data-tip]');
        dot.scrollIntoView({block: 'center', behavior: 'instant'});
        const box = dot.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2, dot.dataset.tip];
    })()"""
    x, y, tip = tab.evaluate(code)
    assert tab.evaluate("document.querySelector('.tip').hidden")
    time.sleep(0.2)  # the scroll event that hides tips comes with the next frame
    for dx in (-1, 0):
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + dx, y=y)
    assert tab.evaluate("document.querySelector('.tip').hidden") is False
    assert tab.evaluate("document.querySelector('.tip').textContent") == tip
    assert tab.evaluate("document.querySelector('.tip').getBoundingClientRect().right") <= 1440


def test_one_group_of_runs_can_be_chosen(show: Open, fabricate_run: Callable[..., Path]) -> None:
    fabricate_run("er", memory=500)
    tab = show()
    visible = """[...document.querySelectorAll('[data-group]')]
        .filter((e) => e.offsetHeight > 0).map((e) => e.dataset.group)"""
    assert set(tab.evaluate(visible)) == {"g0", "g1"}
    tab.evaluate("document.querySelector('input[value=g1]').click()")
    assert set(tab.evaluate(visible)) == {"g1"}
    assert tab.evaluate("document.querySelector('#matrices [data-group=g1] details').open")


def test_without_scripts_all_is_shown_and_no_dead_control(show: Open) -> None:
    tab = show(scripts=False)
    document = tab.call("DOM.getDocument", depth=0)["root"]["nodeId"]
    for selector, there in (("[data-choice=theme]", False), ("#stream svg[role=img]", True)):
        node = tab.call("DOM.querySelector", nodeId=document, selector=selector)["nodeId"]
        style = tab.call("DOM.getOuterHTML", nodeId=node)["outerHTML"][:120]
        assert ("hidden" not in style) == there


FADED = """[...document.querySelectorAll('#stream svg.large .s')]
    .map((e) => Number(getComputedStyle(e).opacity) < 0.5)"""
BANDS = """[...document.querySelectorAll('#stream svg.large .band')]
    .map((e) => Number(getComputedStyle(e).opacity) > 0.1)"""


@pytest.mark.parametrize("scripts", [True, False])
def test_the_legend_brings_out_what_is_chosen_even_without_scripts(
    show: Open, fabricate_run: Callable[..., Path], scripts: bool
) -> None:
    for method in ("gsa", "gsa+ccldc", "ocm"):
        for seed in (0, 1):
            fabricate_run(method, seed=seed)
    tab = show(scripts=scripts)
    tab.call("Emulation.setEmulatedMedia", features=[])
    tab.evaluate("document.styleSheets[0].insertRule('.s, .band {transition: none !important}')")
    assert tab.evaluate(FADED) == [False] * 5
    assert tab.evaluate(BANDS) == [False] * 5  # five lines: their bands would cover each other
    tab.evaluate("document.querySelector('#pick0').click()")
    tab.evaluate("document.querySelector('#plasticity label[for=pick1]').click()")
    assert tab.evaluate(FADED) == [False, False, True, True, True]
    assert tab.evaluate(BANDS) == [True, True, False, False, False]
    tab.evaluate("document.querySelector('button[type=reset]').click()")
    assert tab.evaluate(FADED) == [False] * 5


def test_few_lines_show_their_bands_at_once(show: Open) -> None:
    assert show().evaluate(BANDS) == [True, True]


def test_motion_stops_for_those_who_ask_for_it(show: Open) -> None:
    tab = show()
    behavior = "getComputedStyle(document.documentElement).scrollBehavior"
    assert tab.evaluate(behavior) == "smooth"
    feature = {"name": "prefers-reduced-motion", "value": "reduce"}
    tab.call("Emulation.setEmulatedMedia", features=[feature])
    assert tab.evaluate(behavior) == "auto"
