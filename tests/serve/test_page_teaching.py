"""Teaching on the page in a real browser: new versions, undo, folders, and the camera."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from serve.certificates import self_signed
from serve.driving import (
    RECORD,
    best_labels,
    choose,
    counts,
    focus_card,
    focused,
    in_a_browser,
    requests_of,
    states,
    teach,
    text,
    texts,
    type_in,
    undo,
)
from serve.page_browser import OTHER_HOST, glyph_files, hand_over, picture, until
from serve.running import Nursery, client_of, eventually, learn, running


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
