"""Servers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from serve.driving import text
from serve.page_browser import browser, console_errors, requested_hosts, until
from serve.running import Nursery, Server, running

SMALL = ("--body-bytes", "3000000", "--images", "4", "--pixels", "1000000", "--request-pixels", "2000000")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def server(nursery: Nursery, small_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A new nearest-class-mean learner, without tokens, with small limits."""
    folder = tmp_path_factory.mktemp("served") / "model"
    with running(nursery, folder, "--method", "ncm", "--backbone", small_vit, *SMALL) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


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
