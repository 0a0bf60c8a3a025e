"""The page of the service in a real browser, with a real service behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

import prol.serve
from serve.driving import (
    best_labels,
    choose,
    counts,
    focused,
    in_a_browser,
    press,
    require_clean,
    states,
    teach,
    text,
    texts,
    type_in,
)
from serve.page_browser import console_errors, glyph_files, hand_over, picture, requested_hosts, show_as, until
from serve.running import Nursery, client_of, learn, running

PAGE = Path(prol.serve.__file__).parent / "page"


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

    press(page, "Clear all")
    hand_over(page, "drop", {"new.png": files["J"][3].read_bytes()})
    until(lambda: states(page) == ["open"], "the new image is predicted")
    until(lambda: best_labels(page)[:1] == ["hook"], "it is predicted by what was learnt")
    press(page, "✓ “hook” is right")
    until(lambda: "as predicted" in text(page, ".card .state"), "the prediction is confirmed")
    until(lambda: texts(page, "#chart svg"), "the accuracy is drawn")
    assert page.find_element(By.CSS_SELECTOR, "#chart svg").get_attribute("aria-label")
    right = re.search(r"\d of (\d) images? right", text(page, "#accuracy-of"))
    assert right
    assert int(right[1]) < 5, "the first image was added before anything was known"

    press(page, "Rename “cross”")
    type_in(page, "letter x", Keys.ENTER)
    until(lambda: counts(page) == {"letter x": "2 images", "hook": "3 images"}, "the class has its new name")
    until(lambda: focused(page).get_attribute("id") == "classes-title", "the focus moves to the list")
    assert any("renamed" in event for event in texts(page, "#events li"))
    require_clean(page, base_url)


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
    page.execute_script(
        """
        const work = document.querySelector("#remove-dialog .working");
        new MutationObserver(() => (window.worked ||= !work.hidden)).observe(work, {attributes: true});
        """
    )
    press(page, "Remove")
    until(lambda: "What remains" in dialog.text, "what is erased and what remains is listed")
    assert page.execute_script("return window.worked"), "there was a sign of progress"
    until(lambda: not dialog.find_element(By.CSS_SELECTOR, ".working").is_displayed(), "which is gone")
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
def test_a_phone_shows_everything_without_scrolling_sideways(page: WebDriver, base_url: str, dark: bool) -> None:
    with client_of(base_url) as client:
        assert learn(client, [picture("white"), picture("black")], ["white", "black"]).status_code == 200
    try:
        show_as(page, (360, 740), dark)
        hand_over(page, "drop", {f"{'long-name-' * 12}.png": picture("olive")})
        until(lambda: states(page) == ["open"], "the image is predicted")
        until(lambda: texts(page, ".guess .value"), "there are probabilities")
        assert page.execute_script("return document.documentElement.scrollWidth") <= 360
        assert page.execute_script(
            """
            const value = document.querySelector(".guess:first-child .value");
            value.textContent = "100 %";
            const written = document.createRange();
            written.selectNodeContents(value);
            return written.getBoundingClientRect().right <= value.closest(".about").getBoundingClientRect().right;
            """
        ), "the widest probability stays inside its card"
        assert page.execute_script(
            """
            const time = document.querySelector("#events time");
            time.scrollIntoView({block: "center"});
            const {right, top, height} = time.getBoundingClientRect();
            return document.elementFromPoint(right - 2, top + height / 2) === time;
            """
        ), "nothing covers the time of an event"
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


@pytest.mark.slow
@in_a_browser
def test_the_list_of_learners_leads_to_the_page_of_each(
    chromium: WebDriver, nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    flags = ("--several", "--backbone", small_vit)
    with running(nursery, tmp_path / "learners", *flags, PROL_ADMIN_TOKEN="administrator") as server:
        with server.client(headers={"Authorization": "Bearer administrator"}) as client:
            for name in ("birds", "cars"):
                assert client.post("/v1", json={"name": name, "method": "ncm"}).status_code == 201
        console_errors(chromium), requested_hosts(chromium)
        chromium.get(server.url)
        until(lambda: focused(chromium).get_attribute("id") == "token", "the page asks for a token")
        type_in(chromium, "administrator", Keys.ENTER)
        until(lambda: texts(chromium, "#learners a") == ["birds", "cars"], "the learners are listed")
        assert "2 learners" in text(chromium, "#model")
        chromium.find_element(By.LINK_TEXT, "birds").click()
        until(lambda: text(chromium, "#connection") == "connected", "the page of the learner is connected")
        [image] = glyph_files(tmp_path / "glyphs", "X", each=1)["X"]
        choose(chromium, image)
        until(lambda: states(chromium) == ["open"], "the image was predicted")
        teach(chromium, "wren")
        until(lambda: counts(chromium) == {"wren": "1 image"}, "the learner was taught")
        assert not [line for line in console_errors(chromium) if "401" not in line]
        assert requested_hosts(chromium) == {server.url.removeprefix("http://")}
