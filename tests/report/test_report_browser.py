"""The report in a real browser: it fits a phone, and nothing in it complains, loads or runs that should not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from prol.report.page import find_runs, sections_of, write_page
from report.run_folders import RESULTS, write_run
from serve.page_browser import MISSING_BROWSER, browser, browser_is_there, console_errors, requested_hosts, show_as

in_a_browser = pytest.mark.skipif(not browser_is_there(), reason=MISSING_BROWSER)
EVIL = "<script>document.title='run'</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs beside one of long and evil names and one with many tasks."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(
        folder / f"m-{'long' * 30}=1-seed0",
        method="m",
        options={"x" * 200: EVIL},
        tasks=25,
        history=tuple(90.0 - task for task in range(25)),
        classes=[EVIL, "w" * 300, *(f"class {number}" for number in range(198))],
    )
    sections, _ = sections_of(find_runs([folder, RESULTS / "cifar100_iblurry"]))
    file = folder / "report.html"
    write_page(sections, [], file)
    return file


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@in_a_browser
def test_it_loads_nothing_complains_of_nothing_and_runs_no_name(chromium: WebDriver, tmp_path: Path) -> None:
    write_run(tmp_path / "m-seed0", method="m", options={"x": EVIL}, tasks=1, classes=[EVIL, "</svg>"])
    sections, _ = sections_of(find_runs([tmp_path]))
    write_page(sections, [], tmp_path / "report.html")
    chromium.get((tmp_path / "report.html").as_uri())
    assert console_errors(chromium) == []
    assert requested_hosts(chromium) == {""}  # the file itself
    assert chromium.title == "Report on digits"


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window_but_tables_in_their_boxes(
    chromium: WebDriver, page: Path, width: int, dark: bool
) -> None:
    chromium.get(page.as_uri())
    show_as(chromium, (width, 900), dark)
    chromium.execute_script("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert chromium.execute_script("return document.documentElement.scrollWidth") == width
    outside = chromium.execute_script(
        "return [...document.querySelectorAll('body *')].filter((one) => !one.closest('table')"
        " && !one.closest('svg *') && one.getBoundingClientRect().right > innerWidth + 0.5).map((one) => one.outerHTML)"
    )
    assert outside == []
    plots = chromium.find_elements(By.TAG_NAME, "svg")
    assert len(plots) > 15
    assert all(plot.size["width"] > 250 and plot.size["height"] > 60 for plot in plots)


@pytest.mark.slow
@in_a_browser
def test_text_in_plots_can_be_read_on_a_phone(chromium: WebDriver, page: Path) -> None:
    chromium.get(page.as_uri())
    show_as(chromium, (390, 900), dark=False)
    heights = chromium.execute_script(
        "return [...document.querySelectorAll('svg')].map((one) => one.getBoundingClientRect().width"
        " / one.viewBox.baseVal.width * Math.min(...[...one.querySelectorAll('text')]"
        ".map((text) => parseFloat(getComputedStyle(text).fontSize))))"
    )
    assert min(heights) > 7.5


@pytest.mark.slow
@in_a_browser
def test_a_click_on_a_title_sorts_the_table(chromium: WebDriver, page: Path) -> None:
    chromium.get(page.as_uri())
    show_as(chromium, (1280, 900), dark=False)

    def column(number: int) -> list[str]:
        rows = chromium.find_elements(By.CSS_SELECTOR, "#table-under-test tbody tr")
        return [row.find_elements(By.XPATH, "*")[number].text for row in rows]

    chromium.execute_script(
        "[...document.querySelectorAll('table')].filter((one) => one.ariaLabel.startsWith('Best'))[1].id"
        " = 'table-under-test'"
    )
    first = column(0)
    title = chromium.find_element(By.CSS_SELECTOR, "#table-under-test th:nth-child(4)")
    button = title.find_element(By.TAG_NAME, "button")
    chromium.execute_script("arguments[0].click(); arguments[0].click()", button)
    assert title.get_attribute("aria-sort") == "ascending"
    forgetting = [float(text.split()[0]) for text in column(3)]
    assert forgetting == sorted(forgetting)
    assert sorted(column(0)) == sorted(first)
    assert column(0) != first
