from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from prol.runs.checkpoints import Checkpoints


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


def misnamed(path: Path, number: int, content: bytes) -> Path:
    """The content under a name that gives its true checksum."""
    path.unlink()
    path = path.with_name(f"{number:09d}-{hashlib.sha256(content).hexdigest()}.safetensors")
    path.write_bytes(content)
    return path


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def with_note(note: str) -> bytes:
    return save({"x": torch.zeros(2)}, {"note": note})


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit of a tensor": lambda content: flipped(content, len(content) - 1),
    "a bit of the header": lambda content: flipped(content, 20),
    "cut short": lambda content: content[:-7],
    "longer": lambda content: content + b"0",
    "empty": lambda content: content[:0],
}
WRONG_FROM_THE_START = {
    "a header that is no header": b"\xff" * 8 + with_note("{}")[8:],
    "an empty file": b"",
    "a note that is no JSON": with_note('{"number": 2'),
    "a note that is no object": with_note("[1]"),
    "no note": with_note(""),
}


@pytest.mark.parametrize("damage", [*DAMAGES, *WRONG_FROM_THE_START, "another number"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(written: Checkpoints, damage: str) -> None:
    path, warnings = files(written)[-1], list[str]()
    content = path.read_bytes()
    if damage in DAMAGES:
        path.write_bytes(DAMAGES[damage](content))
    elif damage in WRONG_FROM_THE_START:
        path = misnamed(path, 200, WRONG_FROM_THE_START[damage])
    else:
        path = misnamed(path, 201, content)
    newest = written.read_newest(warnings.append)
    assert newest is not None
    assert newest[1]["number"] == 10
    assert len(warnings) == 1
    assert path.name in warnings[0]
    written.write(200, {"x": torch.zeros(2)}, {"number": 200})
    assert [path.name[:9] for path in files(written)] == ["000000010", "000000200"]


def test_a_file_of_another_name_is_neither_used_nor_removed(written: Checkpoints) -> None:
    path, warnings = files(written)[-1], list[str]()
    other = path.rename(path.with_name("copy of a checkpoint.safetensors"))
    newest = written.read_newest(warnings.append)
    assert newest is not None
    assert newest[1]["number"] == 10
    assert [str(other) in line and "is ignored" in line for line in warnings] == [True]
    assert other.exists()


def test_a_checkpoint_that_cannot_be_read_is_passed_over_but_not_removed(written: Checkpoints) -> None:
    path, warnings = files(written)[-1], list[str]()
    path.unlink()
    path.symlink_to(path.name)  # a link to itself: whoever opens it gets an OSError, root too
    newest = written.read_newest(warnings.append)
    assert newest is not None
    assert newest[1]["number"] == 10
    assert len(warnings) == 1
    assert "cannot be read" in warnings[0]
    assert path.is_symlink()


def test_when_all_are_damaged_none_is_used(written: Checkpoints) -> None:
    warnings: list[str] = []
    for path in files(written):
        path.write_bytes(b"nonsense")
    assert written.read_newest(warnings.append) is None
    assert len(warnings) == 3
    assert "starting from the beginning" in warnings[-1]


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


def test_a_checkpoint_just_written_is_never_the_one_to_go(tmp_path: Path) -> None:
    """Even where files of higher numbers lie about, which nobody could read."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    for number in (16, 17):
        checkpoints.write(number, {"x": torch.ones(1)}, {})
    checkpoints.write(3, {"x": torch.zeros(1)}, {})
    assert sorted(path.name[:9] for path in tmp_path.iterdir()) == ["000000003", "000000017"]
