"""The explorer in a real browser: play, undo, measure, find again; by keyboard alone; how long a click takes; other origins."""

from __future__ import annotations

import http.server
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from agents.explore.address import Address
from agents.explore.session import position_of
from tests.support.driven_browser import driven, resize
from tests.support.explorer import ready, running, wait_for

from .test_explore_views import played

pytestmark = pytest.mark.fetches

TASK = Address("gemm(m=48, n=64, k=32)", seed=5)
CLICK = 0.05
"""Seconds from a click to the new state, painted, in the median."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running("gemv(m=64, k=64)") as address:
        yield address


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    with driven(1400, 1000, False, "--host-resolver-rules=MAP rebound.example 127.0.0.1") as made:
        yield made


def shown(driver: webdriver.Chrome, query: str) -> bool:
    return bool(driver.execute_script("return document.getElementById('state').dataset.query") == query)


WATCH = """
window.seen = [];
setInterval(() => {
  const pane = document.getElementById("code"), query = document.getElementById("state").dataset.query;
  window.seen.push([pane.dataset.query, pane.dataset.query === query, pane.classList.contains("stale")]);
}, 10);
"""
"""Which state's code is shown, whether it is that of the state shown, and whether it is faint: every 10 ms."""


def test_code_is_that_of_the_shown_state_while_a_walk_is_played(driver: webdriver.Chrome, url: str) -> None:
    driver.get(f"{url}?{Address('gemm(m=512, n=512, k=512)', 'h200').query()}")
    ready(driver)
    driver.execute_script(WATCH)
    driver.execute_script("const s = document.getElementById('speed'); s.value = 3; s.dispatchEvent(new Event('input'))")
    driver.find_element(By.ID, "run").click()
    time.sleep(4)
    seen = driver.execute_script("return window.seen")
    driver.find_element(By.ID, "run").click()
    ready(driver)
    assert len({query for query, _, _ in seen}) >= 5
    assert all(same and not stale for _, same, stale in seen)


ABOVE_THE_FOLD = """
const boxes = ["#state .latency", "#state .moves li", "#state .tiles svg", "#code tr:nth-child(5) .number"].map(
  (name) => document.querySelector(name).getBoundingClientRect());
return boxes.map((box) => box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth);
"""


@pytest.mark.parametrize("width", [1280, 1920])
def test_state_actions_and_code_are_seen_without_scrolling(driver: webdriver.Chrome, url: str, width: int) -> None:
    resize(driver, width, 800)
    try:
        for task in (Address("gemm(m=512, n=512, k=512)", "h200", "extended"), TASK):
            driver.get(f"{url}?{task.query()}")
            ready(driver)
            assert all(driver.execute_script(ABOVE_THE_FOLD))
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        resize(driver, 1400, 1000)


def test_a_walk_is_played_undone_measured_and_found_again(driver: webdriver.Chrome, url: str) -> None:
    driver.get(url)
    ready(driver)
    for field, text in (("operator", TASK.operator), ("seed", str(TASK.seed))):
        driver.find_element(By.ID, field).clear()
        driver.find_element(By.ID, field).send_keys(text)
    Select(driver.find_element(By.ID, "machine")).select_by_visible_text("host")
    driver.find_element(By.ID, "begin").click()
    wait_for(driver, "document.getElementById('state').dataset.query.startsWith('operator=gemm')", 240)
    ready(driver)

    driver.execute_script("const s = document.getElementById('speed'); s.value = s.max; s.dispatchEvent(new Event('input'))")
    driver.find_element(By.ID, "run").click()
    wait_for(driver, "document.getElementById('state').dataset.state === 'finished'", 120)
    whole = played(TASK, "markov")
    assert shown(driver, whole.address.query()) and driver.find_element(By.ID, "run").text == "Play"

    driver.find_element(By.ID, "undo").click()
    before = whole.address.back_to(whole.steps - 1)
    wait_for(driver, "document.getElementById('state').dataset.state === 'ready'")
    assert shown(driver, before.query()) and driver.current_url == f"{url}?{before.query()}"

    driver.find_element(By.ID, "measure").click()
    wait_for(driver, "document.querySelector('#measured .ok, #measured .failed')", 120)
    said = driver.find_element(By.ID, "measured").text
    assert "measured and verified on this machine" in said, said
    latency = driver.find_element(By.CLASS_NAME, "latency").text

    driver.get("about:blank")
    driver.get(f"{url}?{before.query()}")
    ready(driver)
    assert driver.find_element(By.CLASS_NAME, "latency").text == latency and shown(driver, before.query())
    assert driver.find_element(By.ID, "measured").text == said
    assert driver.find_elements(By.CSS_SELECTOR, "#code code")
    driver.find_element(By.ID, "by-schedule").click()
    ready(driver)
    assert driver.find_element(By.CLASS_NAME, "latency").text == latency
    driver.back()
    wait_for(driver, f"document.getElementById('state').dataset.query === {before.query()!r}")
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_from_a_click_to_the_new_state_it_takes_fifty_milliseconds(driver: webdriver.Chrome, url: str) -> None:
    """In the median of 15 clicks, of the quietest of three rounds: what else runs on the machine only adds to it.

    Nothing is asked of the browser meanwhile: its driver would take the processor that the page needs.
    """
    medians = []
    for _ in range(3):
        driver.get(f"{url}?{Address('gemm(m=512, n=512, k=512)', space='extended').query()}")
        ready(driver)
        for count in range(15):
            moves = driver.find_elements(By.CSS_SELECTOR, ".moves a[id^='move-tile'], .moves a[id='move-cache']")
            moves[count % len(moves)].click()
            time.sleep(0.25)
            wait_for(driver, f"performance.getEntriesByName('click to view').length === {count + 1}")
        took = driver.execute_script("return performance.getEntriesByName('click to view').map(entry => entry.duration)")
        medians.append(statistics.median(took) / 1e3)
        if medians[-1] <= CLICK:
            break
    print(f"\nclick to view: medians {[f'{median * 1e3:.1f} ms' for median in medians]}")
    assert min(medians) <= CLICK


def test_every_control_is_reached_named_and_used_by_keyboard(driver: webdriver.Chrome, url: str) -> None:
    driver.get(f"{url}?{TASK.after('tile[4]').query()}")
    ready(driver)
    controls = "a[href], button:enabled, input, select, summary"
    expected = [control for control in driver.find_elements(By.CSS_SELECTOR, controls) if control.is_displayed()]
    reached = []
    for _ in range(len(expected) + 2):
        _press(driver, Keys.TAB)
        here = driver.switch_to.active_element
        reached.append(here)
        outline = [here.value_of_css_property(f"outline-{name}") for name in ("style", "width")]
        assert outline == ["solid", "3px"] or here.tag_name == "body", (here.get_attribute("outerHTML"), outline)
    assert {one.id for one in expected} <= {one.id for one in reached}
    assert all(one.accessible_name for one in expected)

    _focus(driver, "operator")
    _press(driver, Keys.CONTROL + "a")
    _press(driver, TASK.operator.replace("48", "24") + Keys.ENTER)
    wait_for(driver, "document.getElementById('state').dataset.query.includes('m=24')")
    _focus(driver, "move-tile[4]")
    for count in (1, 2):
        _press(driver, Keys.ENTER)
        wait_for(driver, f"document.getElementById('state').dataset.query.split('tile').length === {count + 1}")
        assert driver.switch_to.active_element.get_attribute("id") == "move-tile[4]"
    _focus(driver, "undo")
    _press(driver, Keys.ENTER)
    wait_for(driver, "document.getElementById('state').dataset.query.split('tile').length === 2")
    assert "tile[4]: " in driver.find_element(By.ID, "said").get_attribute("textContent")
    _focus(driver, "run")
    _press(driver, Keys.SPACE)
    wait_for(driver, "document.getElementById('run').getAttribute('aria-pressed') === 'true'")
    wait_for(driver, "document.querySelectorAll('.way li').length > 4")
    _press(driver, Keys.SPACE)
    wait_for(driver, "document.getElementById('run').getAttribute('aria-pressed') === 'false'")


def _press(driver: webdriver.Chrome, keys: str) -> None:
    """Keys to whatever has the focus."""
    driver.switch_to.active_element.send_keys(keys)


def _focus(driver: webdriver.Chrome, name: str) -> None:
    """Go there by Tab."""
    for _ in range(200):
        if driver.switch_to.active_element.get_attribute("id") == name:
            return
        _press(driver, Keys.TAB)
    raise AssertionError(f"{name} is not reached by Tab")


def test_a_wrong_operator_is_refused_beside_the_state(driver: webdriver.Chrome, url: str) -> None:
    driver.get(f"{url}?{TASK.query()}")
    ready(driver)
    for text, said in (("gem(m=1)", "operator 'gem'"), ("<img src=x onerror=alert(1)>", "does not parse")):
        field = driver.find_element(By.ID, "operator")
        field.clear()
        field.send_keys(text + Keys.ENTER)
        wait_for(driver, f"document.getElementById('refused').textContent.includes({said!r})")
        assert shown(driver, position_of(TASK).address.query()) and not driver.find_elements(By.CSS_SELECTOR, "main img")


ATTEMPTS = """
const url = "%s", done = arguments[0], found = {};
const tried = (name, work) => work.then(value => { found[name] = value; }, error => { found[name] = "nothing"; });
const element = (tag, set) => new Promise((yes, no) => {
  const made = document.createElement(tag);
  made.onload = () => yes("loaded");
  made.onerror = () => no();
  set(made);
  document.body.append(made);
});
Promise.all([
  tried("read", fetch(url).then(answer => answer.text())),
  tried("state", fetch(url + "state?machine=host").then(answer => answer.text())),
  tried("blind", fetch(url, {mode: "no-cors"}).then(async answer => (await answer.text()) || "nothing")),
  tried("measure", fetch(url + "measure", {method: "POST", body: "machine=host"}).then(answer => answer.text())),
  tried("script", element("script", made => { made.src = url + "page.js"; })),
  tried("picture", element("img", made => { made.src = url + "icon.svg"; })),
  tried("frame", element("iframe", made => { made.src = url; }).then(() => {
    try { return frames[0].document.body.innerText || "nothing"; } catch { return "nothing"; }
  })),
]).then(() => done(found));
"""


def test_a_page_of_another_origin_gets_nothing(driver: webdriver.Chrome, url: str) -> None:
    with _elsewhere() as foreign:
        driver.get(foreign)
        found = driver.execute_async_script(ATTEMPTS % url)
        assert found == dict.fromkeys(("read", "state", "blind", "measure", "script", "picture", "frame"), "nothing")
        driver.execute_script(f"location.href = {url!r}")  # a link may be followed
        ready(driver)
    driver.get(url.replace("127.0.0.1", "rebound.example"))
    assert driver.find_element(By.TAG_NAME, "body").text.startswith("refused: host 'rebound.example")


@contextmanager
def _elsewhere() -> Iterator[str]:
    """A page of another origin."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title><body></body>")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


FARTHEST = """
const seen = [...document.querySelectorAll("body *")].filter(one => !one.closest("#code table, datalist"));
return Math.max(document.documentElement.scrollWidth, ...seen.map(one => one.getBoundingClientRect().right));
"""
"""Right edge of what reaches farthest, but for the code, which scrolls in its pane."""


def test_nothing_sticks_out_at_any_width(driver: webdriver.Chrome, url: str) -> None:
    many_axes = Address("conv2d(n=1, c=16, h=14, w=14, k=16, r=3, s=3, padding=1)", space="extended")
    many_players = Address("gemm(m=512, n=512, k=512)", "h200")
    for width, address in ((390, many_axes), (390, many_players), (800, many_axes), (1400, many_axes)):
        resize(driver, width, 900)
        driver.get(f"{url}?{address.query()}")
        ready(driver)
        assert driver.execute_script(FARTHEST) <= width
        texts = driver.find_elements(By.CSS_SELECTOR, "svg text")
        assert min(text.rect["height"] for text in texts) >= 10  # what is smaller is not read
