from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prol.artifacts import Checkpoints


@pytest.fixture
def written(tmp_path: Path) -> Checkpoints:
    """Three checkpoints, of which two are kept."""
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    for number in (3, 10, 200):
        checkpoints.write(number, {"x": torch.full((2,), float(number))}, {"number": number, "name": "ä"})
    return checkpoints


def files(checkpoints: Checkpoints) -> list[Path]:
    return sorted(checkpoints.folder.iterdir())


def test_without_any_checkpoint_there_is_none_to_read(tmp_path: Path) -> None:
    warnings: list[str] = []
    assert Checkpoints(tmp_path / "none").read_newest(warnings.append) is None
    assert warnings == []


def test_the_newest_is_read_and_two_are_kept(written: Checkpoints) -> None:
    newest = written.read_newest(pytest.fail)
    assert newest is not None
    assert newest[0]["x"].tolist() == [200.0, 200.0]
    assert newest[1] == {"number": 200, "name": "ä"}
    assert [path.name[:9] for path in files(written)] == ["000000010", "000000200"]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(written: Checkpoints, damage: str) -> None:
    path, warnings = files(written)[-1], list[str]()
    content = path.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes({"flip": flipped, "cut": content[:-7], "empty": b""}[damage])
    newest = written.read_newest(warnings.append)
    assert newest is not None
    assert newest[1]["number"] == 10
    assert len(warnings) == 1
    assert path.name in warnings[0]
    written.write(200, {"x": torch.zeros(2)}, {"number": 200})
    assert [path.name[:9] for path in files(written)] == ["000000010", "000000200"]


def test_when_all_are_damaged_none_is_used(written: Checkpoints) -> None:
    warnings: list[str] = []
    for path in files(written):
        path.write_bytes(b"nonsense")
    assert written.read_newest(warnings.append) is None
    assert len(warnings) == 2


def test_what_a_killed_write_leaves_is_neither_read_nor_kept(written: Checkpoints) -> None:
    (written.folder / ".unfinished").write_bytes(b"half of a checkpoint")
    newest = written.read_newest(pytest.fail)
    assert newest is not None
    assert newest[1]["number"] == 200
    written.write(201, {}, {"number": 201})
    assert [path.name[:9] for path in files(written)] == ["000000200", "000000201"]


def test_a_write_that_fails_leaves_the_checkpoints_before_it(written: Checkpoints) -> None:
    before = [path.read_bytes() for path in files(written)]
    with pytest.raises(TypeError):
        written.write(300, {"x": torch.zeros(1)}, {"not JSON": {1}})
    assert [path.read_bytes() for path in files(written)] == before
