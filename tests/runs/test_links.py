"""Folders with links and pipes where files are expected: nothing outside is changed, and nothing is waited for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import prol
from deadline import deadline
from prol.backbones import ViT
from prol.files import create_file, open_regular, read_text, take_lock, write_json
from prol.runs import resume
from prol.runs.checkpoints import Checkpoints
from prol.runs.export import export
from prol.runs.saving import finish_saving
from prol.serve.settings import ServeOptions
from prol.serve.store import Store, open_service
from prol.testing.stream import STREAM, teach
from runs.small_runs import small_plan
from runs.test_resume import interrupted

SECRET = b"must stay as it is"


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """A pipe that is waited for fails the test instead of stopping all of them."""
    with deadline():
        yield


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file, both of which are as before in the end."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(SECRET)
    yield folder
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert (folder / "file").read_bytes() == SECRET


@pytest.fixture
def saved(tmp_path: Path, tiny: ViT) -> Path:
    teach(prol.create("ncm", tiny, seed=4), STREAM[:3]).save(tmp_path / "saved")
    return tmp_path / "saved"


def link(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def refused(call: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # callers look at what it says
        call(*arguments, **settings)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_only_regular_files_are_opened(tmp_path: Path, outside: Path) -> None:
    path = tmp_path / "file"
    for mode in ("rb", "r+b"):
        link(path, outside / "file")
        assert "is a link" in refused(open_regular, path, mode)
        pipe(path)
        assert "is no regular file" in refused(open_regular, path, mode)
    assert "is no regular file" in refused(read_text, outside)
    path.unlink()
    os.link(outside / "file", path)
    assert open_regular(path).read() == SECRET
    assert "is a hard link" in refused(open_regular, path, "r+b")


@pytest.mark.parametrize("place", [link, os.link, lambda path, _: pipe(path)], ids=["link", "hard link", "pipe"])
def test_a_file_that_is_written_is_a_new_one(tmp_path: Path, outside: Path, place: Callable[..., None]) -> None:
    if place is os.link:
        os.link(outside / "file", tmp_path / ".value.json.new")
        os.link(outside / "file", tmp_path / "value.json")
    else:
        place(tmp_path / ".value.json.new", outside / "file")
        place(tmp_path / "value.json", outside / "file")
    write_json(tmp_path / "value.json", 5)
    assert read_text(tmp_path / "value.json") == "5\n"
    with create_file(tmp_path / "value.json") as file:
        file.write(b"6")
    assert read_text(tmp_path / "value.json") == "6"


def test_a_lock_is_a_regular_file_and_is_not_emptied(tmp_path: Path, outside: Path) -> None:
    link(tmp_path / ".lock", outside / "file")
    assert "is a link" in refused(take_lock, tmp_path)
    pipe(tmp_path / ".lock")
    assert "is no regular file" in refused(take_lock, tmp_path)
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").write_text("notes")
    with take_lock(tmp_path):
        assert (tmp_path / ".lock").read_text() == "notes"


def test_checkpoints_are_written_to_their_own_folder_alone(tmp_path: Path, outside: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    checkpoints.write(1, {"x": torch.zeros(1)}, {})
    link(checkpoints.folder / ".unfinished", outside / "file")
    checkpoints.write(2, {"x": torch.ones(1)}, {})
    pipe(checkpoints.folder / f"000000003-{'0' * 64}.safetensors")
    warnings: list[str] = []
    newest = checkpoints.read_newest(warnings.append)
    assert newest is not None
    assert newest[0]["x"].tolist() == [1.0]
    assert "is no regular file" in warnings[0]
    link(checkpoints.folder, outside)
    for act in (checkpoints.newest_number, lambda: checkpoints.write(4, {}, {}), lambda: checkpoints.drop_before(9)):
        assert "is a link" in refused(act)


@pytest.mark.parametrize("name", ["meta.json", "model.safetensors", "operations.jsonl"])
def test_a_saved_learner_has_no_links(saved: Path, tiny: ViT, tmp_path: Path, name: str) -> None:
    (saved / "operations.jsonl").touch()
    (saved / name).rename(tmp_path / "moved")
    link(saved / name, tmp_path / "moved")
    if name == "operations.jsonl":
        assert "is a link" in refused(prol.load(saved.parent / "saved", tiny).save, saved)
    else:
        assert "is a link" in refused(prol.load, saved, tiny)


def served(folder: Path, backbone: str) -> str:
    store = Store(folder, checkpoints=2)
    try:
        return refused(open_service, store, ServeOptions("ncm", backbone, device="cpu"), pytest.fail)
    finally:
        store.release()


@pytest.mark.parametrize("name", ["service", "service/.lock", "service/.unfinished", ".model.safetensors.new"])
def test_a_folder_with_a_link_is_not_served(tmp_path: Path, outside: Path, micro_vit: str, name: str) -> None:
    folder = tmp_path / "model"
    (folder / name).parent.mkdir(parents=True)
    (folder / "service").mkdir(exist_ok=True)
    link(folder / name, outside if name == "service" else outside / "file")
    assert f"{folder / name} is a link" in served(folder, micro_vit)


def test_a_service_waits_for_no_pipe(saved: Path, tmp_path: Path, micro_vit: str) -> None:
    folder = tmp_path / "model"
    (folder / "service").mkdir(parents=True)
    pipe(folder / "service" / ".lock")
    assert "is no regular file" in served(folder, micro_vit)
    pipe(saved / ".model.safetensors.new")
    assert "is no regular file" in refused(finish_saving, saved)


@pytest.fixture(scope="module")
def stopped_once(micro_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interrupted(small_plan(micro_vit), tmp_path_factory.mktemp("stopped") / "run", 9)


@pytest.mark.parametrize(
    "name",
    [".lock", "events.jsonl", "checkpoint", "checkpoint/.unfinished", "model", ".result.json.new", "trackers/x.new"],
)
def test_a_run_with_a_link_is_neither_resumed_nor_exported(
    stopped_once: Path, tmp_path: Path, outside: Path, name: str
) -> None:
    run = Path(shutil.copytree(stopped_once, tmp_path / "run"))
    (run / name).parent.mkdir(exist_ok=True)
    link(run / name, outside if name in ("checkpoint", "model") else outside / "file")
    assert f"{run / name} is a link" in refused(resume, run)
    assert f"{run / name} is a link" in refused(export, run, tmp_path / "exported", pytest.fail)


def test_a_log_with_two_names_is_not_cut(stopped_once: Path, tmp_path: Path, outside: Path) -> None:
    run = Path(shutil.copytree(stopped_once, tmp_path / "run"))
    (run / "events.jsonl").unlink()
    os.link(outside / "file", run / "events.jsonl")
    assert "events.jsonl is a hard link" in refused(resume, run)


def test_the_folder_itself_may_be_named_by_a_link_and_wandb_makes_its_own(stopped_once: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(stopped_once, tmp_path / "run"))
    (run / "wandb").mkdir()
    (run / "wandb" / "latest-run").symlink_to("offline-run-1")
    link(tmp_path / "name", run)
    assert resume(tmp_path / "name").status() == "finished"
