"""The site opened as files in a real browser: search, phones, both colour schemes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from docs.pages import ROOT
from serve.page_browser import MISSING_BROWSER, browser, browser_is_there, show_as, until

OVERLAPS = """
const boxes = [...document.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
return boxes.flatMap(([text, a], place) => boxes.slice(place + 1)
  .filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
  .map(([other]) => [text, other]));
"""
"""Pairs of texts that lie over each other by more than the room that fonts leave around letters."""
DRAWINGS = sorted((ROOT / "docs" / "assets").glob("*-light.svg"))

pytestmark = pytest.mark.skipif(not browser_is_there(), reason=MISSING_BROWSER)


@pytest.mark.slow
def test_pages_opened_as_files_are_found_shown_and_fetch_nothing(folder: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as driver:
        driver.get((folder / "index.html").as_uri())
        query = driver.find_element(By.CSS_SELECTOR, "input.md-search__input")
        query.click()
        query.send_keys("hard-soft update" + Keys.SPACE)

        def found() -> list[str]:
            links = driver.find_elements(By.CSS_SELECTOR, "a.md-search-result__link")
            return [link.get_attribute("href") or "" for link in links]

        assert any("methods/prol.html" in link for link in until(found, "the search finds pages"))

        show_as(driver, (390, 800), dark=True)
        driver.get((folder / "methods" / "index.html").as_uri())
        scheme = driver.find_element(By.TAG_NAME, "body").get_attribute("data-md-color-scheme")
        assert scheme == "slate"
        pictures = driver.find_elements(By.CSS_SELECTOR, ".drawing img")
        shown = [Path(str(picture.get_attribute("src"))).name for picture in pictures if picture.is_displayed()]
        assert shown == ["topology-dark.svg"]
        widths = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= widths[1], "the page scrolls sideways on a phone"

        wanted = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        asked = [one["params"]["request"]["url"] for one in wanted if one["method"] == "Network.requestWillBeSent"]
        assert [url for url in asked if url.startswith(("http", "ws"))] == []
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_no_words_of_a_drawing_lie_over_each_other(tmp_path: Path) -> None:
    assert len(DRAWINGS) == 3
    with browser(tmp_path) as driver:
        for drawing in DRAWINGS:
            driver.get(drawing.as_uri())
            assert driver.execute_script(OVERLAPS) == [], drawing.name
