"""`--image-size` means the same in every command that opens a network by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prol.serve.settings import ServeOptions
from prol.serve.store import Store, open_service

QUICK = ("--device", "cpu", "--repeats", "1", "--steps", "1", "--warmup", "0", "--threads", "1")
WORK = ("--chunk", "2", "--classes", "4")


@pytest.fixture
def sized(small_vit: str) -> str:
    """The small network's name as it is stored with images of 48 instead of 32 pixels."""
    architecture, _, file = small_vit.partition("@")
    return f"{architecture}:48px@{file}"


def test_a_run_stores_the_size(command, small_vit: str, sized: str, tmp_path: Path) -> None:
    small = ("--limit-per-class", "2", "--tasks", "2", "--device", "cpu", "--threads", "1")
    out = tmp_path / "run"
    assert (
        command("run", "ncm", "digits", "--backbone", small_vit, "--image-size", "48", *small, "--out", str(out)).code
        == 0
    )
    config = json.loads((out / "config.json").read_text())
    assert (config["backbone"]["name"], config["preprocessing"]["size"]) == (sized, 48)


@pytest.mark.parametrize(("verb", "more"), [("speed", ("--batch", "2", "--no-peak")), ("growth", ("--batch", "2"))])
def test_speed_is_measured_at_that_size(
    command, small_vit: str, sized: str, tmp_path: Path, verb: str, more: tuple[str, ...]
) -> None:
    out = tmp_path / "out.json"
    flags = ("--backbone", small_vit, "--image-size", "48", *WORK, *more, *QUICK, "--out", str(out))
    assert command("bench", verb, "ncm", *flags).code == 0
    assert json.loads(out.read_text())["settings"]["backbone"] == sized


def test_the_ladder_and_files_are_measured_at_that_size(command, small_vit: str, sized: str, tmp_path: Path) -> None:
    out, network = tmp_path / "out.json", ("--backbone", small_vit, "--image-size", "48")
    assert command("bench", "ladder", "ncm", *network, *WORK, *QUICK, "--out", str(out)).code == 0
    assert json.loads(out.read_text())["settings"]["backbone"] == sized
    few = ("--images", "4", "--chunk", "2", "--repeats", "1", "--workers", "0", "--device", "cpu", "--threads", "1")
    assert command("bench", "files", "digits", "ncm", *network, *few, "--out", str(out)).code == 0
    assert json.loads(out.read_text())["settings"]["backbone"] == sized


def test_parameters_are_counted_at_that_size(command) -> None:
    def counted(*flags: str) -> dict[str, Any]:
        found = command("params", "ncm", "--classes", "4", "--tasks", "2", *flags, "--json")
        assert found.code == 0
        counts: dict[str, Any] = json.loads(found.out)
        return counts

    assert counted("--image-size", "96")["backbone"] == "builtin:96px"
    network = ("--backbone", "test_vit@random", "--image-size", "64")
    assert counted(*network)["backbone"] == "test_vit:64px@random"
    assert "multiple" in command("params", "ncm", "--image-size", "97").err


def test_a_service_is_created_and_opened_again_at_that_size(
    command, small_vit: str, sized: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the command but listening."""
    served: list[tuple[str, int]] = []

    def opened(folder: Path, options: ServeOptions, *_: object) -> None:
        store = Store(folder, options.checkpoints)
        try:
            learner = open_service(store, options, warn=print).learner
            served.append((learner.backbone.name, learner.preprocessing.size))
        finally:
            store.release()

    monkeypatch.setattr("prol.serve.server.serve", opened)
    for flags in (("--image-size", "48", "--method", "ncm"), (), ("--image-size", "48")):
        network = ("--backbone", small_vit) if flags else ()
        assert command("serve", str(tmp_path / "service"), *network, *flags, "--device", "cpu").code == 0
    assert served == [(sized, 48)] * 3
    refused = command(
        "serve", str(tmp_path / "service"), "--backbone", small_vit, "--image-size", "64", "--device", "cpu"
    )
    assert refused.code == 2
