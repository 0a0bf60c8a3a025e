"""A learner saved into a folder that holds other things too."""

from __future__ import annotations

from pathlib import Path

import pytest

import prol
from prol.backbones import ViT
from prol.learner import Learner
from prol.runs.saving import finish_saving, save_into, saved_sha256
from prol.testing.stream import STREAM, difference, teach


@pytest.fixture
def lessons(tiny: ViT) -> list[Learner]:
    """A learner early and late in life."""
    early = teach(prol.create("ncm", tiny), STREAM[:1])
    return [early, teach(early.clone(), STREAM[1:2])]


def test_what_else_is_in_the_folder_stays(tmp_path: Path, tiny: ViT, lessons: list[Learner]) -> None:
    (tmp_path / "service").mkdir()
    announced: list[str] = []
    for learner in lessons:
        save_into(learner, tmp_path, announced.append)
        assert saved_sha256(tmp_path) == announced[-1]
        assert difference(prol.load(tmp_path, tiny).state(), learner.state()) == ""
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["README.md", "meta.json", "model.safetensors", "service"]


def test_nothing_is_announced_where_nothing_has_changed(tmp_path: Path, lessons: list[Learner]) -> None:
    save_into(lessons[0], tmp_path, [].append)
    save_into(lessons[0], tmp_path, pytest.fail)


def test_when_the_announcement_fails_the_old_one_stays(tmp_path: Path, tiny: ViT, lessons: list[Learner]) -> None:
    def fail(sha256: str) -> None:
        raise OSError(f"no room to note {sha256}")

    save_into(lessons[0], tmp_path, [].append)
    with pytest.raises(OSError, match="no room"):
        save_into(lessons[1], tmp_path, fail)
    assert difference(prol.load(tmp_path, tiny).state(), lessons[0].state()) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "meta.json", "model.safetensors"]


def test_what_a_killed_process_left_is_put_in_its_place(tmp_path: Path, tiny: ViT, lessons: list[Learner]) -> None:
    save_into(lessons[0], tmp_path, [].append)
    old = (tmp_path / "model.safetensors").read_bytes()
    save_into(lessons[1], tmp_path, [].append)
    (tmp_path / "model.safetensors").rename(tmp_path / ".model.safetensors.new")
    (tmp_path / "model.safetensors").write_bytes(old)
    assert difference(prol.load(tmp_path, tiny).state(), lessons[1].state()) == ""
    finish_saving(tmp_path)
    assert difference(prol.load(tmp_path, tiny).state(), lessons[1].state()) == ""
    assert not (tmp_path / ".model.safetensors.new").exists()
