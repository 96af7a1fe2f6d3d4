"""The page of results in a real browser: plots are drawn and answer the pointer, tables are sorted, nothing from files runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("selenium")
from selenium.webdriver import ActionChains, Chrome  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

from experiments.reports import report  # noqa: E402
from tests.experiments.test_experiments_report import hostile, make_comparison, make_run  # noqa: E402
from tests.support.driven_browser import driven, resize  # noqa: E402

pytestmark = pytest.mark.fetches

TITLE = "results of two runs"
DRAWN = "return window.Bokeh && Bokeh.documents.length == 2 && Bokeh.documents.every(d => d.is_idle)"
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
TOOLTIP = """
const found = [];
const walk = node => { for (const part of node.querySelectorAll('*')) {
  if (part.classList.contains('bk-Tooltip') || part.className === 'bk-tooltip-content') found.push(part);
  if (part.shadowRoot) walk(part.shadowRoot); } };
walk(document);
return found.map(part => (part.shadowRoot || part).textContent).join(' ');
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A page of runs, comparisons and hostile words, opened."""
    folder = tmp_path_factory.mktemp("results")
    for seed, strategy in enumerate(("markov", "roller", "random_walk")):
        make_comparison(folder / str(seed), strategy, seed)
    make_run(folder / "run", 0, 0.1, 1.0)
    attacks = hostile(folder / "hostile")
    (attacks / "1" / "card.json").unlink()
    page = folder / "report.html"
    report.main([str(folder), "--output", str(page), "--title", TITLE])
    with driven() as driver:
        driver.get(page.as_uri())
        WebDriverWait(driver, 20).until(lambda one: one.execute_script(DRAWN))
        yield driver


def column(driver: Chrome, place: int) -> list[str]:
    """Cells of the table of comparisons."""
    script = "return [...document.querySelector('table').tBodies[0].rows].map(row => row.cells[arguments[0]].textContent)"
    rows = driver.find_element(By.XPATH, "//section[h2='Comparisons']")
    return driver.execute_script(script.replace("document.", "arguments[1]."), place, rows)


def test_nothing_from_files_runs_and_nothing_is_loaded(browser: Chrome) -> None:
    assert browser.title == TITLE
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in loaded if not name.startswith(("data:", "blob:"))] == []
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def test_a_click_or_a_key_on_a_heading_sorts(browser: Chrome) -> None:
    heads = browser.find_elements(By.XPATH, "//section[h2='Comparisons']//th/button")
    time = next(head for head in heads if head.text.startswith("time"))
    time.click()
    assert column(browser, 2)[0].startswith("100") and column(browser, 2)[-1].startswith("300")
    time.send_keys(Keys.ENTER)
    assert column(browser, 2)[0].startswith("300")
    assert time.find_element(By.XPATH, "..").get_attribute("aria-sort") == "descending"


def test_a_plot_says_what_is_under_the_pointer(browser: Chrome) -> None:
    plot = browser.find_element(By.XPATH, "//section[h2='Learning curves']//div[@class='plot']")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    for down in range(plot.size["height"] // 2 - 4, -plot.size["height"] // 2, -5):  # a line is crossed from below
        ActionChains(browser, duration=10).move_to_element_with_offset(plot, 0, down).perform()
        if "mean return" in (said := browser.execute_script(TOOLTIP)):
            break
    assert "mean return" in said and "ppo" in said and "steps" in said


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_the_page_is_no_wider_than_the_screen(browser: Chrome, width: int) -> None:
    resize(browser, width, 780)
    WebDriverWait(browser, 10).until(lambda one: one.execute_script(OVERFLOW) <= 0)


def test_it_is_dark_where_the_system_is(browser: Chrome) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    ink = "return Bokeh.documents.map(one => one.roots()[0].below[0].axis_label_text_color).join()"
    light = browser.execute_script(ground), browser.execute_script(ink)
    assert light[1] == "#222,#222"
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    WebDriverWait(browser, 10).until(lambda one: one.execute_script(ground) != light[0])
    WebDriverWait(browser, 10).until(lambda one: one.execute_script(ink) == "#e4e4e2,#e4e4e2")
