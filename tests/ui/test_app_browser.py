"""The inspector in a real browser: Chromium without a window, driven over WebDriver.

The pictures of the manual are made in the folder that the variable `REACTIFACT_PICTURES` names:
`REACTIFACT_PICTURES=docs/images scripts/test tests/ui/test_app_browser.py`.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import anyio
import pytest
import uvicorn
from desk import HOSTILE, REFUNDS, RESEARCH, SESSION, Shift, StoppedClock, filled, refunds_turn, resources_of
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from reactifact import SessionStore
from reactifact._sessions.stores import open_database
from reactifact.audit import build_report, report_to_html
from reactifact.checkpoints import InMemoryKVBackend
from reactifact.interrupt import PendingQuestion, TypedQuestion
from reactifact.ui.app import Token, application, listening

DOCS = Path(__file__).parents[2] / "docs"
S = f"s={quote_plus(SESSION)}"
TOKEN = Token("a token of this test")
FORM = f"/questions?s={REFUNDS}"
PAGES = {
    "sessions": "/",
    "history": f"/session?{S}",
    "two points": f"/diff?{S}&new=main",
    "commit": f"/commit?{S}",
    "difference": f"/diff?{S}&old=v1&new=v2",
    "artifacts": f"/artifacts?{S}&type=desk.Reply",
    "artifact": f"/artifact?{S}&id=reply:ticket:29",
    "compare": f"/compare?{S}&into=main&from=refund+trial",
    "outbox": f"/outbox?{S}",
    "questions": f"/questions?{S}",
    "problem": "/session?s=nobody",
}
LOOKS = [(1600, "light"), (1600, "dark"), (400, "light"), (400, "dark")]
PATIENCE = 60  # seconds until a page has to show what it is to show

Browser = webdriver.Chrome


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, as Debian's packages `chromium` and `chromium-driver` bring it."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("Chromium is not installed: no chromium and chromedriver on PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--hide-scrollbars")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


class Served:
    """The inspector over a store, on a port of this machine, in a thread."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._database = open_database(store)
        self._listener = listening("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        app = application(self._database, name="state.git", token=TOKEN, clock=StoppedClock())
        self._server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_level="warning"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._listener.close()
        self._database.backend.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A desk of 30 turns in memory."""
    found = Served(filled(InMemoryKVBackend(), 30))
    yield found
    found.close()


@pytest.fixture
def owner(browser: Browser) -> Iterator[Callable[[Served], None]]:
    """Open the address with the token, on a server that a test names."""

    def enter(served: Served) -> None:
        go(browser, f"{served.address}/?token={TOKEN.token}")

    yield enter
    browser.delete_all_cookies()


Enter = Callable[[Served], None]


def go(browser: Browser, address: str) -> None:
    """Open a page."""
    leave(browser, lambda: browser.get(address))


def leave(browser: Browser, act: Callable[[], object]) -> None:
    """Do what leads to another page and wait until that is drawn: a driver may answer before it is shown."""
    browser.execute_script("window.isBefore = true")
    act()
    until(browser, lambda _: browser.execute_script(f"return !window.isBefore && {LOADED}"))
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def until(browser: Browser, holds: Callable[[Browser], Any]) -> None:
    WebDriverWait(browser, PATIENCE, poll_frequency=0.1).until(holds)


LOADED = "document.readyState === 'complete' && document.styleSheets.length > 0"


def look_as(browser: Browser, width: int, scheme: str, height: int = 900) -> None:
    """Give the page a width in pixels and the reader a taste."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def complaints(browser: Browser) -> list[str]:
    """Return what the browser has complained of since it was asked last: scripts, styles, policies."""
    found: list[dict[str, Any]] = browser.get_log("browser")
    return [entry["message"] for entry in found if "404" not in entry["message"]]


def run_page(served: Served) -> str:
    return f"{served.address}/run?s={quote_plus(RESEARCH)}"


FAINT = """
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const ground = (one) => {
  for (; one; one = one.parentElement) {
    const colour = parts(getComputedStyle(one).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return parts(getComputedStyle(document.body).backgroundColor);
};
const found = [];
for (const one of document.querySelectorAll("body *")) {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !one.getClientRects().length || one.closest("option, svg")) continue;
  const [text, back] = [light(parts(getComputedStyle(one).color)), light(ground(one))];
  const contrast = (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
  const name = `${one.tagName}.${one.className} ${contrast.toFixed(2)} ${one.textContent.slice(0, 40)}`;
  if (contrast < 4.5) found.push(name);
}
return found;
"""

TOO_WIDE = """
const width = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > width + 1)
  .filter((one) => !one.closest(".scroll, .tabs, thead, pre, svg"))  // they scroll by themselves
  .map((one) => `${one.tagName}.${one.className} ${one.textContent.slice(0, 40)}`);
"""


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", [*PAGES, "run"])
def test_every_page_fits_is_readable_and_runs_nothing_it_may_not(
    browser: Browser, served: Served, name: str, width: int, scheme: str
) -> None:
    look_as(browser, width, scheme)
    go(browser, run_page(served) if name == "run" else served.address + PAGES[name])
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(TOO_WIDE) == []
    assert browser.execute_script(FAINT) == []
    assert complaints(browser) == []


SIZE = "return [document.querySelectorAll('*').length, document.documentElement.outerHTML.length]"


def sizes(browser: Browser, served: Served) -> dict[str, list[int]]:
    """Look at every page, and return how many elements and characters each has."""
    found = {}
    for name, path in PAGES.items():
        go(browser, served.address + path)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 1600
        assert browser.execute_script(TOO_WIDE) == []
        assert complaints(browser) == []
        found[name] = browser.execute_script(SIZE)
    return found


@pytest.mark.full
def test_the_browser_gets_as_much_of_3000_turns_as_of_30(
    browser: Browser, served: Served, large_store: Any
) -> None:
    look_as(browser, 1600, "light")
    small = sizes(browser, served)
    large_one = Served(large_store)
    try:
        large = sizes(browser, large_one)
        go(browser, large_one.address + PAGES["history"])
        for _ in range(3):  # older pages are as they are
            leave(browser, browser.find_element(By.LINK_TEXT, "Older commits").click)
            assert browser.execute_script(SIZE)[0] <= 1.3 * small["history"][0]
    finally:
        large_one.close()
    grown = {
        name: (small[name], large[name])
        for name in small
        if any(now > 1.3 * before + 40 for before, now in zip(small[name], large[name], strict=True))
    }
    assert grown == {}


def test_the_policy_holds_in_the_browser(browser: Browser, served: Served) -> None:
    go(browser, served.address)
    complaints(browser)
    browser.execute_script("""
        const script = document.createElement("script");
        script.textContent = "window.wasRun = true";
        document.body.append(script);
        document.body.setAttribute("style", "display: none");
        const image = document.createElement("img");
        image.src = "https://elsewhere.example/x.png";
        document.body.append(image);
    """)
    assert browser.execute_script("return window.wasRun") is None
    said: list[str] = []

    def refused_both(browser: Browser) -> bool:  # an image is asked for after the script has ended
        said.extend(complaints(browser))
        return all(any(policy in one for one in said) for policy in ("script-src", "img-src"))

    WebDriverWait(browser, PATIENCE).until(refused_both)


def test_hostile_names_do_nothing(browser: Browser, owner: Enter) -> None:
    store = InMemoryKVBackend()
    found = Served(filled(store, 1, hostile=True))
    name = quote_plus(HOSTILE)
    paths = [
        "/",
        f"/session?s={name}",
        f"/run?s={name}",
        f"/artifact?s={name}&id={name}",
        f"/compare?s={name}&into=main&from={name}",
        f"/outbox?s={name}",
        f"/questions?s={name}",
    ]
    try:
        look_as(browser, 400, "light")
        owner(found)
        for path in paths:
            go(browser, found.address + path)
            assert complaints(browser) == []  # an alert would stand in the way of every command, too
            assert browser.execute_script("return document.scripts.length") <= 1
            shown = browser.find_element(By.TAG_NAME, "body").text
            assert "<script>alert('hi')</script>/\\u202egnp.exe" in shown
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 400, path
            assert browser.execute_script(TOO_WIDE) == [], path
    finally:
        found.close()


@pytest.mark.parametrize("path", [*map(PAGES.__getitem__, ("artifact", "compare", "outbox")), FORM])
def test_the_keyboard_reaches_everything_and_shows_where_it_is(
    browser: Browser, served: Served, owner: Enter, path: str
) -> None:
    look_as(browser, 1600, "light")
    owner(served)
    go(browser, served.address + path)
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.text == "Skip to the content"
    assert skip.rect["x"] >= 0
    skip.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "content"
    wanted = {
        one.get_attribute("outerHTML")
        for one in browser.find_elements(
            By.CSS_SELECTOR,
            "a[href], button, input:not([type=hidden], [type=radio]), select, textarea, summary",
        )
    }
    go(browser, served.address + path)
    seen = set()
    for _ in range(len(wanted) + 20):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        now = browser.switch_to.active_element
        if now.tag_name == "body":
            break
        seen.add(now.get_attribute("outerHTML"))
        assert now.value_of_css_property("outline-style") == "solid", now.get_attribute("outerHTML")
    assert wanted <= seen


def test_without_script_every_page_is_there(browser: Browser, served: Served) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        for path in PAGES.values():
            browser.get(served.address + path)
            assert browser.find_element(By.TAG_NAME, "h1").text
        browser.get(served.address)
        browser.find_element(By.LINK_TEXT, SESSION).click()
        assert browser.find_element(By.TAG_NAME, "h1").text == "History"
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def text_of(browser: Browser) -> str:
    return str(browser.execute_script("return document.getElementById('content')?.textContent ?? ''"))


def test_a_page_follows_a_run_while_it_goes_on(browser: Browser) -> None:
    store = InMemoryKVBackend()
    found = Served(filled(store, 1))

    async def turn(number: int) -> None:
        session = await SessionStore(store).open(SESSION, resources_of())
        await Shift(session).turn(number)

    try:
        go(browser, found.address + PAGES["history"])
        browser.execute_script("window.isSame = true")
        assert "ticket:70" not in text_of(browser)
        anyio.run(turn, 70)
        until(browser, lambda _: "reply:ticket:70" in text_of(browser))
        assert browser.execute_script("return window.isSame") is True  # it was not loaded anew
        assert "Updated" in browser.find_element(By.ID, "live").text

        go(browser, found.address)  # a field that somebody types in is left alone
        field = browser.find_element(By.ID, "q")
        field.send_keys("half a wo")
        anyio.run(turn, 71)
        until(browser, lambda _: "leave the field" in browser.find_element(By.ID, "live").text)
        assert field.get_attribute("value") == "half a wo"
        assert complaints(browser) == []
    finally:
        found.close()


def test_retry_and_answer_with_the_token(browser: Browser) -> None:
    store = InMemoryKVBackend()
    found = Served(filled(store, 1))
    try:
        go(browser, found.address + PAGES["outbox"])
        assert browser.find_elements(By.TAG_NAME, "form") == []
        go(browser, f"{found.address}/?token={TOKEN.token}")
        assert "token" not in browser.current_url
        go(browser, found.address + PAGES["outbox"])
        browser.find_element(By.XPATH, "//button[text()='Retry']").click()
        until(browser, lambda _: "Failed 0" in text_of(browser))
        go(browser, found.address + PAGES["questions"])
        field = browser.find_element(By.TAG_NAME, "textarea")
        field.send_keys("Yes, refund it.")
        field.find_element(By.XPATH, "ancestor::form").find_element(By.TAG_NAME, "button").click()
        until(browser, lambda _: "1 question" in text_of(browser))
        assert complaints(browser) == []
    finally:
        browser.delete_all_cookies()
        found.close()


def field(browser: Browser, label: str) -> Any:
    """Return the field that a label names."""
    found = browser.find_element(By.XPATH, f"//label[starts-with(normalize-space(), '{label}')]")
    return browser.find_element(By.ID, found.get_attribute("for") or "")


def send(browser: Browser, within: Any) -> None:
    within.find_element(By.XPATH, "ancestor::form").find_element(By.XPATH, ".//button").click()


def answered(store: Any, question: str) -> Any:
    async def load() -> Any:
        return await SessionStore(store).load_session(REFUNDS)

    found = anyio.run(load).list_artifacts(TypedQuestion)
    return next(one.data for one in found if one.data.question.startswith(question))


def test_a_model_is_filled_in_corrected_and_wakes_who_waits(browser: Browser, owner: Enter) -> None:
    store = InMemoryKVBackend()
    found = Served(filled(store, 1))
    try:
        look_as(browser, 400, "light")
        owner(found)
        go(browser, found.address + FORM)
        assert "3 h 30 min left" in text_of(browser)
        amount = field(browser, "Amount")
        browser.execute_script("arguments[0].removeAttribute('max')", amount)  # what a browser would refuse
        amount.send_keys("501")
        field(browser, "Approved").send_keys(Keys.SPACE)
        field(browser, "Comment").send_keys("well packed")
        browser.find_element(By.TAG_NAME, "h1").click()
        browser.execute_script("window.isSame = true")
        anyio.run(lambda: refunds_turn(SessionStore(store), resources_of()))
        anyio.run(plain_question, store)  # what is typed already stays, though no field has the focus
        until(browser, lambda _: "leave the field" in browser.find_element(By.ID, "live").text)
        assert field(browser, "Comment").get_attribute("value") == "well packed"
        leave(browser, lambda: send(browser, amount))
        assert "still open" in text_of(browser)
        assert "less than or equal to 500" in text_of(browser)
        assert "Field required" in text_of(browser)  # no way was chosen
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
        assert browser.execute_script(TOO_WIDE) == []
        assert browser.execute_script(FAINT) == []
        assert not answered(store, "May we refund 42").answered
        amount = field(browser, "Amount")
        assert amount.get_attribute("aria-invalid") == "true"
        amount.clear()
        amount.send_keys("12.5")
        Select(field(browser, "Way")).select_by_visible_text("voucher")
        assert field(browser, "Approved").is_selected()
        send(browser, amount)
        until(browser, lambda _: "2 questions on" in text_of(browser))
        verdict = answered(store, "May we refund 42").answer()
        assert (verdict.approved, verdict.amount, verdict.way) == (True, 12.5, "voucher")
        assert verdict.comment == "well packed"

        anyio.run(lambda: refunds_turn(SessionStore(store), resources_of()))
        until(browser, lambda _: "Who fetches the parcel?" in text_of(browser))
        fast = field(browser, "the fast one")
        fast.click()
        send(browser, fast)
        until(browser, lambda _: "Who fetches the parcel?" not in text_of(browser))
        assert answered(store, "Who fetches").answer().name == "Swift"
        assert [said for said in complaints(browser) if "status of 422" not in said] == []
    finally:
        found.close()


async def plain_question(store: Any) -> None:
    async with await SessionStore(store).open(REFUNDS, resources_of()) as session:
        session.context.create(PendingQuestion(question="And how was the parcel packed?"))


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_form_fits_and_is_readable(
    browser: Browser, served: Served, owner: Enter, width: int, scheme: str
) -> None:
    look_as(browser, width, scheme)
    owner(served)
    for path in (FORM, PAGES["questions"], PAGES["outbox"]):
        go(browser, served.address + path)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script(TOO_WIDE) == []
        assert browser.execute_script(FAINT) == []
    assert complaints(browser) == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an audit report, as `reactifact audit --html` prints it."""

    store = filled(InMemoryKVBackend(), 2)

    async def made() -> str:
        context = await SessionStore(store).load_session(RESEARCH)
        assert context is not None
        return report_to_html(build_report(context, "summary", reads=True))

    path = tmp_path_factory.mktemp("audit") / "report.html"
    path.write_text(anyio.run(made), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_an_audit_report_is_a_page_of_the_same_style(
    browser: Browser, report: Path, width: int, scheme: str
) -> None:
    look_as(browser, width, scheme)
    go(browser, report.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(TOO_WIDE) == []
    assert browser.execute_script(FAINT) == []
    assert complaints(browser) == []  # its policy lets its own style in
    shown = browser.find_element(By.CSS_SELECTOR, ".card")
    assert shown.value_of_css_property("border-radius") == "10px"


def test_the_contrast_is_measured(browser: Browser, served: Served) -> None:
    look_as(browser, 1600, "light")
    go(browser, served.address)
    browser.execute_script("document.querySelector('h1').style.color = 'rgb(160, 160, 160)'")
    (found,) = browser.execute_script(FAINT)
    assert found.startswith("H1")


def picture(browser: Browser, path: Path) -> None:
    data = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    path.write_bytes(base64.b64decode(data))


WHOLE, SOME = LOOKS, [(1600, "light"), (400, "dark")]
PICTURED = {
    "sessions": SOME,
    "history": WHOLE,
    "run": WHOLE,
    "artifact": SOME,
    "compare": SOME,
    "outbox": SOME,
    "questions": SOME,
    "form": SOME,
    "audit": SOME,
}


def test_pictures_of_the_manual(browser: Browser, served: Served, report: Path, tmp_path: Path) -> None:
    folder = Path(os.environ.get("REACTIFACT_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    go(browser, f"{served.address}/?token={TOKEN.token}")
    others = {"run": run_page(served), "audit": report.as_uri(), "form": served.address + FORM}
    for name, looks in PICTURED.items():
        for width, scheme in looks:
            look_as(browser, width, scheme, 1000 if width == 1600 else 860)
            go(browser, others.get(name) or served.address + PAGES[name])
            if name == "artifact":
                leave(browser, browser.find_element(By.XPATH, "//button[text()='Compare the two']").click)
            made = folder / f"ui-{name}-{width}-{scheme}.png"
            picture(browser, made)
            assert made.read_bytes()[16:20] == width.to_bytes(4, "big")  # the width in the head of a PNG
    browser.delete_all_cookies()


def test_the_manual_shows_every_picture() -> None:
    manual = (DOCS / "ui.md").read_text(encoding="utf-8")
    wanted = {
        f"ui-{name}-{width}-{scheme}.png" for name, looks in PICTURED.items() for width, scheme in looks
    }
    assert {path.name for path in (DOCS / "images").glob("ui-*.png")} == wanted
    assert set(re.findall(r"images/(ui-[\w-]+\.png)", manual)) == wanted
