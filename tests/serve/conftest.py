"""Servers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

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
