"""The page of the service in a real browser, with a real service behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

import prol.serve
from serve.page_browser import (
    MISSING_BROWSER,
    browser,
    browser_is_there,
    console_errors,
    glyph_files,
    hand_over,
    picture,
    requested_hosts,
    show_as,
    until,
)
from serve.running import Nursery, client_of, eventually, learn, running

PAGE = Path(prol.serve.__file__).parent / "page"
in_a_browser = pytest.mark.skipif(not browser_is_there(), reason=MISSING_BROWSER)


@pytest.fixture(scope="module")
def base_url(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(nursery, tmp_path_factory.mktemp("service") / "model", "--method", "ncm") as server:
        yield server.url


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def page(chromium: WebDriver, base_url: str) -> WebDriver:
    chromium.get("about:blank")
    console_errors(chromium), requested_hosts(chromium)  # those of the test before
    chromium.get(base_url)
    until(lambda: text(chromium, "#connection") == "connected", "the page is connected")
    return chromium


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


@pytest.mark.slow
@in_a_browser
def test_two_classes_are_taught_by_keyboard_and_a_new_image_is_known(
    page: WebDriver, base_url: str, tmp_path: Path
) -> None:
    files = glyph_files(tmp_path / "glyphs", "XJ", each=4)
    choose(page, *files["X"][:2], *files["J"][:2])
    until(lambda: "waiting" not in states(page), "four images are predicted")
    assert "Nothing is learnt yet" in text(page, ".card .state")
    for label in ("cross", "cross", "hook", "hook"):
        teach(page, label)
    assert focused(page).get_attribute("id") == "choose", "with nothing left to teach, the next files can be chosen"

    until(lambda: counts(page) == {"cross": "2 images", "hook": "2 images"}, "both classes are counted")
    assert any("labelled" in event for event in texts(page, "#events li"))
    assert "0 samples stored" in text(page, "#numbers")
    right = re.search(r"(\d) of (\d) images? right", text(page, "#accuracy-of"))
    assert right is None or int(right[2]) < 4, "the first image was added before anything was known"
    assert page.find_element(By.CSS_SELECTOR, "#chart svg").get_attribute("aria-label")

    press(page, "Clear all")
    hand_over(page, "drop", {"new.png": files["J"][3].read_bytes()})
    until(lambda: states(page) == ["open"], "the new image is predicted")
    until(lambda: best_labels(page)[:1] == ["hook"], "it is predicted by what was learnt")
    press(page, "✓ “hook” is right")
    until(lambda: "as predicted" in text(page, ".card .state"), "the prediction is confirmed")

    press(page, "Rename “cross”")
    type_in(page, "letter x", Keys.ENTER)
    until(lambda: counts(page) == {"letter x": "2 images", "hook": "3 images"}, "the class has its new name")
    until(lambda: focused(page).get_attribute("id") == "classes-title", "the focus moves to the list")
    assert any("renamed" in event for event in texts(page, "#events li"))
    require_clean(page, base_url)


RECORD = """
    const sent = window.fetch;
    [window.requested, window.ages] = [[], []];
    window.fetch = (path, options) => {
        const images = options?.body instanceof FormData ? options.body.getAll("images").length : 0;
        window.requested.push([path.split("?")[0], images]);
        return sent(path, options);
    };
    const note = () => document.querySelectorAll("[data-part=age]").forEach((age) => window.ages.push(age.textContent));
    new MutationObserver(note).observe(document.getElementById("cards"), {subtree: true, childList: true});
"""


def requests_of(page: WebDriver, path: str) -> list[int]:
    """How many images each request to a path had, since `RECORD` was run."""
    requested = page.execute_script("return window.requested")
    return [images for name, images in requested if name == path]


@in_a_browser
def test_predictions_follow_what_was_learnt_since_in_small_batches(page: WebDriver, base_url: str) -> None:
    page.execute_script(RECORD)
    hand_over(page, "drop", {f"{number}.png": picture("gold") for number in range(20)})
    until(lambda: states(page) == ["open"] * 20, "all are predicted")
    first = len(requests_of(page, "predict"))
    with client_of(base_url) as client:
        assert learn(client, [picture("gold"), picture("purple")], ["gold", "purple"]).status_code == 200
        eventually(lambda: best_labels(page) == ["gold"] * 20)
        until(lambda: set(texts(page, "[data-part=age]")) == {""}, "all are of the newest version")
        assert "updating …" in page.execute_script("return window.ages")
        renewed = requests_of(page, "predict")[first:]
        assert max(renewed) <= 8
        polls = len(requests_of(page, "status"))
        until(lambda: len(requests_of(page, "status")) >= polls + 2, "the status is polled again")
        assert requests_of(page, "predict")[first:] == renewed, "nothing is predicted again without a newer version"
        for name in ("gold", "purple"):
            assert client.delete(f"/classes/{name}").status_code == 200


@pytest.mark.slow
@in_a_browser
def test_several_images_are_taught_at_once_and_a_class_is_removed_with_a_report(
    page: WebDriver, base_url: str, tmp_path: Path
) -> None:
    files = glyph_files(tmp_path / "glyphs", "E", each=3)["E"]
    hand_over(page, "paste", {path.name: path.read_bytes() for path in files})
    until(lambda: states(page) == ["open"] * 3, "three images are predicted")
    box = page.find_element(By.ID, "choose-all")
    box.send_keys(Keys.SPACE)
    page.find_element(By.ID, "many-label").send_keys("passing", Keys.ENTER)
    until(lambda: states(page) == ["taught"] * 3, "three images are taught")
    until(lambda: counts(page).get("passing") == "3 images", "they are counted")

    press(page, "Remove “passing”")
    dialog = page.find_element(By.ID, "remove-dialog")
    assert "3 images" in dialog.text
    assert focused(page).text == "Cancel", "a stray Enter must not remove anything"
    press(page, "Remove")
    until(lambda: "What remains" in dialog.text, "what is erased and what remains is listed")
    assert texts(page, "#erased li")
    assert texts(page, "#remains li")
    type_in(page, Keys.ENTER)
    until(lambda: "passing" not in counts(page), "the class is gone from the list")
    assert any("removed" in event for event in texts(page, "#events li"))
    require_clean(page, base_url)


@pytest.mark.slow
@in_a_browser
def test_a_prediction_the_service_has_forgotten_is_taught_with_its_file(page: WebDriver) -> None:
    hand_over(page, "drop", {"leaf.png": picture("green")})
    until(lambda: states(page) == ["open"], "the image is predicted")
    page.execute_script(
        """
        const sent = window.fetch;
        window.requested = [];
        window.fetch = async (path, options) => {
            window.requested.push(path);
            if (path !== "labels") return sent(path, options);
            const late = JSON.parse(options.body);
            late.labels[0].id = "forgotten";
            return sent(path, {...options, body: JSON.stringify(late)});
        };
        """
    )
    page.find_element(By.CSS_SELECTOR, ".card [data-part=label]").send_keys("leaf", Keys.ENTER)
    until(lambda: counts(page).get("leaf") == "1 image", "the class is there")
    requested = page.execute_script("return window.requested")
    assert [path for path in requested if path in ("labels", "learn")] == ["labels", "learn"]
    assert all("404" in error for error in console_errors(page)), "only the forgotten prediction may cause an error"


@in_a_browser
def test_names_are_text_and_never_markup(page: WebDriver, base_url: str) -> None:
    name = "<img src=x onerror=document.title='taken'>/..?&#"
    hand_over(page, "drop", {f"{name}.png": picture("navy"), "notes.txt": b"no image"})
    until(lambda: states(page) == ["open"], "the image is predicted, the text left out")
    assert "not an image" in text(page, "#problem-text")
    page.find_element(By.CSS_SELECTOR, ".card [data-part=label]").send_keys(name, Keys.ENTER)
    until(lambda: counts(page).get(name) == "1 image", "the class has this very name")
    assert page.title == "prol"

    press(page, f"Remove “{name}”")
    press(page, "Remove")
    until(lambda: texts(page, "#erased li"), "a class of any name can be removed")
    type_in(page, Keys.ENTER)
    until(lambda: name not in counts(page), "it is gone")
    require_clean(page, base_url)


@pytest.mark.slow
@in_a_browser
def test_a_file_that_is_no_image_is_refused_with_a_message_beside_the_others(page: WebDriver) -> None:
    hand_over(page, "drop", {"broken.png": b"this is no picture", "sea.png": picture("teal")})
    until(lambda: states(page) == ["failed", "open"], "only the broken file fails")
    assert len(text(page, ".card[data-state=failed] .state").split()) > 3
    # The browser itself notes a refused request; nothing else may be wrong.
    assert all("422" in error or "415" in error for error in console_errors(page))


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_everything_without_scrolling_sideways(page: WebDriver, dark: bool) -> None:
    try:
        show_as(page, (360, 740), dark)
        hand_over(page, "drop", {f"{'long-name-' * 12}.png": picture("olive")})
        until(lambda: states(page) == ["open"], "the image is predicted")
        assert page.execute_script("return document.documentElement.scrollWidth") <= 360
        paper = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        brightness = sum(map(int, re.findall(r"\d+", paper)[:3])) / 3
        assert (brightness < 80) == dark
    finally:
        show_as(page, (1280, 900), dark=False)


@pytest.mark.slow
@in_a_browser
def test_the_token_is_asked_for_and_stored_for_this_tab_only(
    chromium: WebDriver, nursery: Nursery, tmp_path: Path
) -> None:
    tokens = {"PROL_READ_TOKEN": "only-for-reading-0123456789", "PROL_WRITE_TOKEN": "also-for-writing-0123456789"}
    with running(nursery, tmp_path / "model", "--method", "ncm", **tokens) as server:
        chromium.get(server.url)
        dialog = until(lambda: chromium.find_elements(By.CSS_SELECTOR, "#token-dialog[open]"), "a token is asked for")
        type_in(chromium, "wrong-token-0123456789", Keys.ENTER)
        until(lambda: "does not accept" in dialog[0].text, "the wrong one is not accepted")
        type_in(chromium, tokens["PROL_READ_TOKEN"], Keys.ENTER)
        until(lambda: text(chromium, "#connection") == "connected", "reading is allowed")

        hand_over(chromium, "drop", {"sky.png": picture("skyblue")})
        until(lambda: states(chromium) == ["open"], "reading is enough to predict")
        type_in(chromium, "sky", Keys.ENTER)
        until(lambda: text(chromium, "#problem-text"), "the page says that reading is not enough to teach")
        press(chromium, "Change token")
        type_in(chromium, tokens["PROL_WRITE_TOKEN"], Keys.ENTER)
        until(lambda: not chromium.find_elements(By.CSS_SELECTOR, "#token-dialog[open]"), "the token is taken")
        chromium.find_element(By.CSS_SELECTOR, ".card [data-part=label]").send_keys(Keys.ENTER)
        until(lambda: counts(chromium) == {"sky": "1 image"}, "what was typed is taught now")

        stored = chromium.execute_script("return [{...sessionStorage}, {...localStorage}, document.cookie]")
        assert stored == [{"prol-token": tokens["PROL_WRITE_TOKEN"]}, {}, ""]


def test_the_page_brings_everything_itself_and_writes_no_markup() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in PAGE.iterdir()}
    assert {"index.html", "app.js", "style.css"} <= set(sources)
    for name, source in sources.items():
        addresses = set(re.findall(r"https?://[^\s\"']+", source)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, f"{name} names other hosts"
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", source), (
            name
        )
    # The content security policy allows neither of these.
    assert not re.search(r"<style|\sstyle=|<script(?![^>]*\ssrc=)|\son\w+=", sources["index.html"])
