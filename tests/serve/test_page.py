"""The page of the service in a real browser, with a real service behind it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

import prol.serve
from serve.certificates import self_signed
from serve.page_browser import (
    MISSING_BROWSER,
    OTHER_HOST,
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


def requests_of(page: WebDriver, path: str) -> list[int]:
    """How many images each request to a path had, since `RECORD` was run."""
    requested = page.execute_script("return window.requested")
    return [images for name, images in requested if name == path]


@in_a_browser
def test_predictions_follow_what_was_learnt_since_in_small_batches(page: WebDriver, base_url: str) -> None:
    page.execute_script(RECORD)
    hand_over(page, "drop", {f"{number}.png": picture("gold") for number in range(10)})
    until(lambda: states(page) == ["open"] * 10, "all are predicted")
    first = len(requests_of(page, "predict"))
    with client_of(base_url) as client:
        assert learn(client, [picture("gold"), picture("purple")], ["gold", "purple"]).status_code == 200
        eventually(lambda: best_labels(page) == ["gold"] * 10)
        until(lambda: set(texts(page, "[data-part=age]")) == {""}, "all are of the newest version")
        assert "updating …" in page.execute_script("return window.ages")
        renewed = requests_of(page, "predict/again")
        assert max(renewed) <= 8
        assert len(requests_of(page, "predict")) == first, "no image is sent twice"
        polls = len(requests_of(page, "status"))
        until(lambda: len(requests_of(page, "status")) >= polls + 2, "the status is polled again")
        assert requests_of(page, "predict/again") == renewed, "nothing is predicted again without a newer version"
        for name in ("gold", "purple"):
            assert client.delete(f"/classes/{name}").status_code == 200


@pytest.mark.slow
@in_a_browser
def test_a_lesson_is_undone_by_keyboard_and_taught_again_by_a_number_key(page: WebDriver, tmp_path: Path) -> None:
    files = glyph_files(tmp_path / "glyphs", "AB", each=2)
    choose(page, *files["A"], *files["B"])
    until(lambda: "waiting" not in states(page), "four images are predicted")
    for label in ("ay", "ay", "bee"):
        teach(page, label)
    until(lambda: counts(page).get("bee") == "1 image", "both are counted")
    before = {name: count for name, count in counts(page).items() if name != "bee"}
    until(lambda: text(page, "#lesson-size") == "1 image", "there is a lesson to undo")
    type_in(page, "unfinished")
    undo(page)
    assert focused(page).get_attribute("value") != "unfinished", "in a field, Ctrl+Z is about what was written"
    assert page.find_element(By.ID, "lesson").is_displayed()
    assert counts(page) == before | {"bee": "1 image"}
    focus_card(page, 3)
    undo(page)
    until(lambda: counts(page) == before, "the last lesson is undone")
    until(lambda: states(page) == ["taught", "taught", "open", "open"], "its image can be taught anew")
    assert any("undone" in event for event in texts(page, "#events li"))
    assert not page.find_element(By.ID, "lesson").is_displayed()

    keys = dict(zip(texts(page, ".key bdi"), texts(page, ".key kbd"), strict=True))
    focus_card(page, 2)
    type_in(page, keys["ay"])
    until(lambda: counts(page).get("ay") == "3 images", "the number key teaches the image that has the focus")
    assert states(page)[2] == "taught"


def undo(page: WebDriver) -> None:
    ActionChains(page).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()


def focus_card(page: WebDriver, place: int) -> None:
    page.execute_script("document.querySelectorAll('.card')[arguments[0]].focus()", place)


@pytest.mark.slow
@in_a_browser
def test_a_folder_is_taught_with_the_names_of_its_folders(page: WebDriver, tmp_path: Path) -> None:
    for colour in ("red", "blue"):
        (tmp_path / "photos" / colour).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "photos" / colour / f"{number}.png").write_bytes(picture(colour))
    (tmp_path / "photos" / "red" / "broken.png").write_bytes(b"no image")
    (tmp_path / "photos" / "red" / "notes.txt").write_text("no image")
    page.find_element(By.ID, "folder-input").send_keys(str(tmp_path / "photos"))
    dialog = page.find_element(By.ID, "folder-dialog")
    until(dialog.is_displayed, "the folder is described")
    assert text(page, "#folder-title") == "“photos”: 5 images, 2 labels"
    assert sorted(texts(page, "#folder-labels li")) == ["blue2 images", "red3 images"]
    type_in(page, Keys.ENTER)
    until(lambda: len(states(page)) == 5 and "waiting" not in states(page), "the images are shown first")
    assert set(texts(page, ".card .file")) == {"red/0.png", "red/1.png", "red/broken.png", "blue/0.png", "blue/1.png"}
    values = page.execute_script("return [...document.querySelectorAll('.card [data-part=label]')].map((f) => f.value)")
    assert sorted(values) == ["blue", "blue", "red", "red", "red"]

    page.find_element(By.ID, "folder-input").send_keys(str(tmp_path / "photos"))
    until(dialog.is_displayed, "the folder is described again")
    page.find_element(By.ID, "folder-teach").click()
    until(lambda: not dialog.is_displayed(), "all is taught")
    until(lambda: (counts(page).get("red"), counts(page).get("blue")) == ("2 images", "2 images"), "both are counted")
    assert "broken.png" in text(page, "#problem-text")


@pytest.mark.slow
@in_a_browser
def test_images_of_the_same_name_are_distinguished_and_enlarged(page: WebDriver) -> None:
    hand_over(page, "drop", {"same.png": picture("red")})
    hand_over(page, "drop", {"same.png": picture("blue")})
    until(lambda: texts(page, ".card .file") == ["same.png", "same.png (2)"], "names are distinguished")
    page.find_elements(By.CSS_SELECTOR, ".zoom")[1].click()
    until(lambda: page.find_element(By.ID, "zoom-image").size["width"] > 300, "the image is enlarged")
    assert text(page, "#zoom-title") == "same.png (2)"
    type_in(page, Keys.ESCAPE)
    until(lambda: not page.find_element(By.ID, "zoom-dialog").is_displayed(), "it is closed")


@pytest.mark.slow
@in_a_browser
def test_an_empty_learner_has_a_guide_that_goes_away_and_the_learner_is_downloaded(
    chromium: WebDriver, nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    with running(nursery, tmp_path / "model", "--method", "ncm", "--backbone", small_vit) as server:
        chromium.get(server.url)
        guide = chromium.find_element(By.ID, "guide")
        until(guide.is_displayed, "there is a guide")
        assert text(chromium, "#guide [aria-current]").startswith("Add a few images")
        hand_over(chromium, "drop", {"sun.png": picture("yellow"), "sea.png": picture("navy")})
        until(lambda: states(chromium) == ["open", "open"], "both images are there")
        assert text(chromium, "#guide [aria-current]").startswith("Say what they are")
        teach(chromium, "sun")
        until(lambda: chromium.find_elements(By.CSS_SELECTOR, "#guide-second[aria-current]"), "one thing is known")
        teach(chromium, "sea")
        until(lambda: not guide.is_displayed(), "the guide is gone")
        chromium.find_element(By.ID, "save-zip").click()
        [archive] = until(lambda: list(tmp_path.glob("model-*.zip")), "the learner is downloaded")
        assert "model/model.safetensors" in zipfile.ZipFile(archive).namelist()


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


@in_a_browser
def test_pictures_of_a_camera_stay_in_the_browser_until_they_are_taught(
    chromium: WebDriver, nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path / "tls")
    flags = ("--method", "ncm", "--backbone", small_vit, "--tls-cert", str(certificate), "--tls-key", str(key))
    with running(nursery, tmp_path / "model", *flags) as server:
        chromium.get(server.url)
        until(lambda: text(chromium, "#connection") == "connected", "the page is connected")
        chromium.execute_script(RECORD)
        chromium.find_element(By.ID, "camera-open").click()
        until(chromium.find_element(By.ID, "camera-take").is_enabled, "the camera runs")
        chromium.find_element(By.ID, "camera-take").click()
        until(lambda: states(chromium) == ["held"], "a picture without a label is on the page")
        assert [requests_of(chromium, path) for path in ("predict", "learn", "labels")] == [[], [], []]
        chromium.find_element(By.ID, "camera-label").send_keys("test card", Keys.ENTER)
        until(lambda: states(chromium) == ["held", "taught"], "a picture with a label is taught")
        assert requests_of(chromium, "learn") == [1]
        assert requests_of(chromium, "predict") == []
        type_in(chromium, Keys.ESCAPE)
        until(lambda: not chromium.find_element(By.ID, "camera-dialog").is_displayed(), "the dialog is closed")
        assert chromium.execute_script("return document.getElementById('camera-view').srcObject") is None
        chromium.find_element(By.CSS_SELECTOR, ".card[data-state=held] [data-part=predict]").click()
        until(lambda: states(chromium) == ["open", "taught"], "it is predicted when somebody asks for that")
        assert texts(chromium, ".card .file") == ["picture 1.jpg", "picture 2.jpg"]


@pytest.mark.slow
@in_a_browser
def test_without_https_a_file_field_takes_the_picture_and_says_why(
    chromium: WebDriver, nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    flags, token = ("--method", "ncm", "--backbone", small_vit), "also-for-writing-0123456789"
    with running(nursery, tmp_path / "model", *flags, PROL_WRITE_TOKEN=token) as server:
        chromium.get(server.url.replace("127.0.0.1", OTHER_HOST))
        until(lambda: chromium.find_elements(By.CSS_SELECTOR, "#token-dialog[open]"), "a token is asked for")
        type_in(chromium, token, Keys.ENTER)
        until(lambda: text(chromium, "#connection") == "connected", "the token is accepted")
        chromium.find_element(By.ID, "camera-open").click()
        why = chromium.find_element(By.ID, "camera-why")
        until(why.is_displayed, "the camera is not available")
        assert "only to pages from HTTPS" in why.text
        field = chromium.find_element(By.ID, "camera-file")
        assert field.get_attribute("capture") == "environment"
        (tmp_path / "IMG.png").write_bytes(picture("brown"))
        field.send_keys(str(tmp_path / "IMG.png"))
        until(lambda: states(chromium) == ["held"], "the picture is on the page")


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
