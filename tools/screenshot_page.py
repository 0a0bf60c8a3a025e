"""Takes the picture of the service's page that docs/service.md shows.

    PYTHONPATH=src:tests python tools/screenshot_page.py --out docs/page.png

A service is taught characters of the built-in set `glyphs`, ten images at a time and each answered before it is taught;
then its page is opened, shown a few new images, one of a character it does not know, and taught one of them.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from prol.data.builtin import glyphs
from serve.page_browser import browser, hand_over, until
from serve.running import Nursery, running

KNOWN, NEW = "AEKMRSTWX48", "Z"
LESSONS, CHUNK = 14, 10
Pictures = list[tuple[str, bytes]]
"""Names of characters and images of them as PNG files."""


def pictures_of(characters: str, half: str, each: int, seed: int = 0) -> Pictures:
    """`each` images of some characters in a random order."""
    data = glyphs()
    split = data.train if half == "train" else data.test
    found: Pictures = []
    for character in characters:
        places = (split.labels == data.class_names.index(character)).nonzero()[0][:each]
        for image in split.load(places).images:
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            found.append((character, buffer.getvalue()))
    return [found[place] for place in np.random.default_rng(seed).permutation(len(found))]


def teach(address: str, pictures: Pictures) -> None:
    """Asks about images, then tells what they are; an answer has seen all lessons before it."""
    version = 0
    with httpx.Client(base_url=address, timeout=60) as client:
        for start in range(0, len(pictures), CHUNK):
            chunk = pictures[start : start + CHUNK]
            files = [("images", ("image.png", content, "image/png")) for _, content in chunk]
            until(partial(_has_seen, client, files[0], version), "the lesson is published", seconds=120, every=0.5)
            answer = client.post("/predict", files=files).raise_for_status().json()
            ids = [prediction["id"] for prediction in answer["predictions"]]
            labels = [{"id": given, "label": name} for given, (name, _) in zip(ids, chunk, strict=True)]
            version = client.post("/labels", json={"labels": labels}).raise_for_status().json()["version"]


def _has_seen(client: httpx.Client, file: Any, version: int) -> bool:
    """Whether answers come from this version or a later one."""
    return bool(client.post("/predict", files=[file]).raise_for_status().json()["version"] >= version)


def use_page(driver: WebDriver, address: str) -> None:
    """Opens the page, drops images on it and teaches the first of them."""
    driver.get(address)
    shown = [*pictures_of("XRK84", "test", each=1, seed=2), *pictures_of(NEW, "test", each=1)]
    hand_over(driver, "drop", {f"photo-{200 + place}.png": image for place, (_, image) in enumerate(shown, start=1)})
    answered = '.card[data-state="open"]'
    until(lambda: len(driver.find_elements(By.CSS_SELECTOR, answered)) == len(shown), "all images are answered")
    driver.switch_to.active_element.send_keys(shown[0][0], Keys.ENTER)
    until(lambda: driver.find_elements(By.CSS_SELECTOR, '.card[data-state="taught"]'), "one image is taught")
    learnt = f"{LESSONS * CHUNK + 1} images"
    until(lambda: learnt in driver.find_element(By.ID, "numbers").text, "the numbers show what was taught")
    for passing in ("renewing", "said"):
        until(lambda name=passing: not driver.find_element(By.ID, name).text, f"{passing} is over", seconds=60)


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes a picture of the service's page.")
    parser.add_argument("--out", type=Path, default=Path("docs/page.png"))
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=1260)
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    lessons = pictures_of(KNOWN, "train", each=LESSONS)[: LESSONS * CHUNK]
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Nursery(), Path(folder) / "model", "--method", "prol_plus") as server,
    ):
        teach(server.url, lessons)
        with browser(Path(folder) / "profile", (given.width, given.height), given.dark, pixel_ratio=2) as driver:
            use_page(driver, server.url)
            driver.save_screenshot(str(given.out))
    with Image.open(given.out) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(given.out, optimize=True)


if __name__ == "__main__":
    main()
