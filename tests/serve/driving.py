"""What somebody does on the page of the service, and what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from serve.page_browser import MISSING_BROWSER, browser_is_there, console_errors, requested_hosts, until

in_a_browser = pytest.mark.skipif(not browser_is_there(), reason=MISSING_BROWSER)

RECORD = """
    const sent = window.fetch;
    [window.requested, window.ages] = [[], []];
    window.fetch = (path, options) => {
        const {body} = options ?? {};
        const sized = body instanceof FormData ? body.getAll("images") : JSON.parse(body ?? "{}").ids ?? [];
        window.requested.push([path.split("?")[0], sized.length]);
        return sent(path, options);
    };
    const note = () => document.querySelectorAll("[data-part=age]").forEach((age) => window.ages.push(age.textContent));
    new MutationObserver(note).observe(document.getElementById("cards"), {subtree: true, childList: true});
"""


def text(page: WebDriver, selector: str) -> str:
    return page.find_element(By.CSS_SELECTOR, selector).text


def texts(page: WebDriver, selector: str) -> list[str]:
    """All texts at once, by the page itself: elements may be replaced between two queries."""
    script = "return [...document.querySelectorAll(arguments[0])].map((found) => found.textContent)"
    return list(page.execute_script(script, selector))


def choose(page: WebDriver, *files: Path) -> None:
    page.find_element(By.ID, "choose").send_keys("\n".join(map(str, files)))


def focused(page: WebDriver) -> WebElement:
    return page.switch_to.active_element


def type_in(page: WebDriver, *keys: str) -> None:
    """Types where the keyboard is."""
    ActionChains(page).send_keys(*keys).perform()


def states(page: WebDriver) -> list[str]:
    return list(page.execute_script("return [...document.querySelectorAll('.card')].map((card) => card.dataset.state)"))


def best_labels(page: WebDriver) -> list[str]:
    return texts(page, ".guess:first-child bdi")


def counts(page: WebDriver) -> dict[str, str]:
    """Counts by class, as the list shows them."""
    names, shown = texts(page, ".class-row [data-part=name]"), texts(page, ".class-row [data-part=count]")
    return dict(zip(names, shown, strict=False))


def teach(page: WebDriver, label: str) -> None:
    """Types a label where the keyboard is and presses Enter."""
    taught = states(page).count("taught")
    type_in(page, label, Keys.ENTER)
    until(lambda: states(page).count("taught") == taught + 1, f"{label} is taught")


def press(page: WebDriver, name: str) -> None:
    """Goes to the button of that name by Tab alone and presses it."""
    for _ in range(80):
        if focused(page).accessible_name == name:
            type_in(page, Keys.ENTER)
            return
        type_in(page, Keys.TAB)
    raise AssertionError(f"no way to {name!r} by Tab")


def require_clean(page: WebDriver, base_url: str) -> None:
    assert console_errors(page) == []
    assert requested_hosts(page) == {base_url.removeprefix("http://")}


def undo(page: WebDriver) -> None:
    ActionChains(page).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()


def focus_card(page: WebDriver, place: int) -> None:
    page.execute_script("document.querySelectorAll('.card')[arguments[0]].focus()", place)


def requests_of(page: WebDriver, path: str) -> list[int]:
    """How many images each request to a path had, since `RECORD` was run."""
    requested = page.execute_script("return window.requested")
    return [images for name, images in requested if name == path]
