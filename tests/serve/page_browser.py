"""A real browser for the page of the service, and images to show it."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

from prol.data.builtin import glyphs

CHROMIUM, CHROMEDRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
MISSING_BROWSER = (
    "NO PAGE IS TESTED IN A BROWSER: it needs /usr/bin/chromium and /usr/bin/chromedriver; "
    "install them with `apt install chromium chromium-driver`"
)
WAIT_SECONDS = 60.0
OTHER_HOST = "prol.test"
"""A name of this machine that browsers take for another one."""

Found = TypeVar("Found")


def browser_is_there() -> bool:
    return CHROMIUM.is_file() and CHROMEDRIVER.is_file()


@contextmanager
def browser(
    profile: Path, size: tuple[int, int] = (1280, 900), dark: bool = False, pixel_ratio: int = 1
) -> Iterator[WebDriver]:
    """Chromium without a window and with a new profile; it logs its console and what it requests."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--hide-scrollbars",
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1",
        f"--user-data-dir={profile}",
        f"--window-size={size[0]},{size[1]}",
        f"--force-device-scale-factor={pixel_ratio}",
    ):
        options.add_argument(flag)
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=str(CHROMEDRIVER)))
    try:
        show_as(driver, size, dark, pixel_ratio)
        yield driver
    finally:
        driver.quit()


def show_as(driver: WebDriver, size: tuple[int, int], dark: bool, pixel_ratio: int = 1) -> None:
    """Gives the page a size and a colour scheme."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": pixel_ratio, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def until(look: Callable[[], Found], what: str, seconds: float = WAIT_SECONDS, every: float = 0.05) -> Found:
    """Looks until there is something true, and returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(every)
    raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")


def requested_hosts(driver: WebDriver) -> set[str]:
    """Hosts of everything that was requested since this was last asked."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    addresses = [urlsplit(parameters["request"]["url"]) for parameters in sent]
    # Blobs and data are the page's own; an empty tab is the browser's (chrome, chrome-untrusted).
    return {address.netloc for address in addresses if not address.scheme.startswith(("blob", "data", "chrome"))}


def console_errors(driver: WebDriver) -> list[str]:
    """What the console complained about since this was last asked."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def glyph_files(folder: Path, characters: str, each: int) -> dict[str, list[Path]]:
    """Writes the first images of some characters as PNG files."""
    data = glyphs()
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[Path]] = {}
    for character in characters:
        places = (data.train.labels == data.class_names.index(character)).nonzero()[0][:each]
        for number, image in enumerate(data.train.load(places).images):
            path = folder / f"{ord(character)}-{number}.png"
            Image.fromarray(image).save(path)
            files.setdefault(character, []).append(path)
    return files


def picture(colour: str) -> bytes:
    """A small image of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", (48, 48), colour).save(buffer, "PNG")
    return buffer.getvalue()


def hand_over(driver: WebDriver, how: str, files: dict[str, bytes]) -> None:
    """Lets images arrive by `drop` or by `paste`, as a browser would tell the page."""
    script = """
        const [how, files] = arguments;
        const carried = new DataTransfer();
        for (const [name, content] of Object.entries(files)) {
            const bytes = Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
            carried.items.add(new File([bytes], name, {type: name.endsWith(".png") ? "image/png" : "text/plain"}));
        }
        const event = how === "drop"
            ? new DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true})
            : new ClipboardEvent("paste", {clipboardData: carried, bubbles: true, cancelable: true});
        document.body.dispatchEvent(event);
    """
    content: dict[str, Any] = {name: base64.b64encode(data).decode() for name, data in files.items()}
    driver.execute_script(script, how, content)
