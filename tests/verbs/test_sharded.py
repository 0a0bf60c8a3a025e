"""A learner that was learnt in shards is the one that a single process learns; kills change nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prol
from data.small_parquet import write
from prol.data.shards import open_shards
from prol.integrations.ray_executor import RayExecutor
from prol.learner import Learner
from prol.runs.display import Silent
from prol.runs.executors import Executor, Job, LocalProcesses, Serial
from prol.runs.plan import Plan
from prol.verbs.sharded import LearntInShards, Recipe, learn_in_shards
from runs.small_runs import environment
from serve.page_browser import until

NAMES = ["ant", "bee", "cow", "dog", "eel"]
SMALL: dict[str, Any] = {"features": 20}
RECIPES: dict[str, dict[str, Any]] = {
    "ncm": {},
    "slda": {},
    "layup": {},
    "foal": SMALL,
    "klda": SMALL | {"ensemble": 2},
    "randumb": SMALL,
    "ranpac": SMALL | {"ridge": 0.5},
    "prol_plus": SMALL | {"budget_mb": 4, "adapt_steps": 4},
}


def pictures(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """PNG images of noise around the colour of their class, which is their number modulo that of the names."""
    import io

    from PIL import Image

    random, found = np.random.default_rng(seed), []
    for number in range(count):
        colour = np.array([50 * (number % len(NAMES)), 128, 250 - 40 * (number % len(NAMES))])
        pixels = np.clip(colour + random.normal(0, 60, (32, 32, 3)), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        found.append({"bytes": file.getvalue(), "path": None})
    return found


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """140 images of five classes, sorted by class."""
    order = sorted(range(140), key=lambda number: number % 5)
    given = pictures(140)
    path = tmp_path_factory.mktemp("images") / "all.parquet"
    return str(write(path, [NAMES[i % 5] for i in order], [given[i] for i in order], rows_a_group=20))


def recipe(micro_vit: str, method: str, **changes: Any) -> Recipe:
    given = {"options": RECIPES[method], "seed": 3, "device": "cpu", "precision": "float32", "chunk": 5}
    return Recipe(method, micro_vit, **given | changes)


def in_one_process(source: str, how: Recipe, shards: int, boundary: bool = False) -> Learner:
    """All images, shard by shard: those of the first in the order in which it is learnt, in chunks as there."""
    learner = how.create()
    for number, opened in enumerate(open_shards([source], shards, how.seed).shards):
        names, split = opened()
        order = np.random.default_rng([how.seed, number]).permutation(len(split.labels))
        for start in range(0, len(order), how.chunk):
            rows = order[start : start + how.chunk]
            if boundary and number == 0 and rows[-1] == order[-1]:
                learner.boundary()
            loaded = split.load(rows)
            learner.learn(loaded.images, [names[number] for number in split.labels[loaded.indices]])
    return learner


def assert_same(one: Learner, other: Learner) -> None:
    """Statistics equal to rounding, and predictions to 1e-4, whatever the order of the classes."""
    assert set(one.classes) == set(other.classes)
    columns = [one.row_of[name] for name in other.classes]
    asked = np.random.default_rng(7).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    close(one.predict(asked)[:, columns], other.predict(asked), 1e-4)
    found = one.state()[0]
    for name, tensor in other.state()[0].items():
        if name != "random" and not name.startswith("solved/"):  # the latter is of whoever solved it for calibration
            rows = columns if name.endswith(("sums", "counts")) and len(tensor) else slice(None)
            close(found[name][rows], tensor, 1e-5)


def close(one: torch.Tensor, other: torch.Tensor, limit: float) -> None:
    largest = max([1.0, *other.double().abs().view(-1).tolist()])
    torch.testing.assert_close(one, other, rtol=0, atol=limit * largest)


def learn(source: str, how: Recipe, out: Path, executor: Executor, shards: int = 4) -> LearntInShards:
    return learn_in_shards([source], how, out, executor, shards=shards, progress=False)


@pytest.mark.parametrize("method", RECIPES)
def test_statistics_are_those_of_a_single_process(tmp_path: Path, micro_vit: str, images: str, method: str) -> None:
    how = recipe(micro_vit, method)
    learnt = learn(images, how, tmp_path / "out", Serial(Silent()))
    assert (learnt.images, learnt.shards, len(learnt.records)) == (140, 4, 5)
    assert min(learnt.speeds().values()) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # shards are deleted
    assert_same(prol.load(tmp_path / "out", device="cpu"), in_one_process(images, how, 4))


def test_what_a_method_chooses_at_the_end_of_a_task_is_chosen_in_the_first_shard(
    tmp_path: Path, micro_vit: str, images: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = recipe(micro_vit, "ranpac", options=SMALL)
    with pytest.raises(ValueError, match=r"base: while every fifth image is held out .* give ridge= a number"):
        learn(images, how, tmp_path / "out", Serial(Silent()))
    monkeypatch.setattr("prol.methods.closed_form.ranpac.CHOSEN_AFTER", 25)
    learnt = learn(images, how, tmp_path / "out", Serial(Silent()))
    assert learnt.records[0]["read"] == 35
    assert_same(learnt.learner, in_one_process(images, how, 4, boundary=True))


def test_a_folder_is_learnt_too_and_unreadable_images_are_reported(tmp_path: Path, micro_vit: str) -> None:
    from PIL import Image

    for number in range(12):
        place = tmp_path / "photos" / NAMES[number % 3] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (20 * number, 0, 0)).save(place)
    place.write_bytes(b"no image")
    learnt = learn(str(tmp_path / "photos"), recipe(micro_vit, "ncm"), tmp_path / "out", Serial(Silent()), shards=3)
    assert learnt.images == 11
    assert learnt.learner.class_counts().sum() == 11  # type: ignore[union-attr]
    [said] = [text for record in learnt.records for text in record["unreadable"]]
    assert said.startswith(f"{place}: ")


@dataclass
class Stopping:
    """Executes jobs one by one in this process, and stops after some."""

    left: int
    executed: list[str] = field(default_factory=list)

    def execute(
        self, pending: Mapping[Path, Plan | Job], hear: Callable[[Path, str], None]
    ) -> Generator[tuple[Path, str | None], None, None]:
        for outcome in Serial(Silent()).execute(pending, hear):
            self.executed.append(outcome[0].name)
            yield outcome
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def test_the_same_call_resumes_and_another_one_is_refused(tmp_path: Path, micro_vit: str, images: str) -> None:
    how, out, second = recipe(micro_vit, "prol_plus"), tmp_path / "out", Stopping(-1)
    with pytest.raises(KeyboardInterrupt):
        learn(images, how, out, Stopping(3))
    work = tmp_path / "out.shards"
    assert {path.name for path in work.iterdir() if path.is_dir()} == {"base", "shard-0", "shard-1"}
    for changed, source, shards, says in (
        (recipe(micro_vit, "prol_plus", seed=4), images, 4, "seed=3, not 4"),
        (recipe(micro_vit, "ncm"), images, 4, "method=prol_plus, not ncm"),
        (recipe(micro_vit, "prol_plus", options=SMALL), images, 4, "options=.*"),
        (how, images, 5, "shards=4, not 5"),
        (how, str(write(tmp_path / "other.parquet", ["ant"] * 140, pictures(140))), 4, "files=.*"),
    ):
        with pytest.raises(ValueError, match=f"was started with {says}.*: give the same arguments, or remove"):
            learn(source, changed, out, second, shards)
    learnt = learn(images, how, out, second)
    assert second.executed == ["shard-2", "shard-3"]
    assert_same(learnt.learner, in_one_process(images, how, 4))
    assert not work.exists()
    work.mkdir()  # as if a kill had come between saving and deleting
    with pytest.raises(ValueError, match="out exists already: choose another --out"):
        learn(images, how, out, second)
    assert not work.exists()


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("prol", {}, "^prol cannot learn in shards, because its learners cannot be merged: use prol_plus, ncm, slda, "),
        ("knn", {}, "^knn cannot learn in shards"),
        ("ncm", {"augment": "crop_flip"}, "^with augment=crop_flip learners cannot be merged: use augment=none$"),
        ("ranpac", {"memory": "all"}, "^with memory=all learners cannot be merged: use memory=statistics$"),
        ("ncm", {"nothing": 1}, "nothing"),
    ],
)
def test_what_cannot_be_merged_is_refused_before_anything_is_read(
    tmp_path: Path, method: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        learn("nowhere", Recipe(method, options=options), tmp_path / "out", Serial(Silent()))
    assert list(tmp_path.iterdir()) == []


@dataclass
class Killer:
    """An executor whose first worker to say how many images of shard 1 it has read is killed."""

    executor: Executor
    process_of: Callable[[list[str]], int]
    lines: list[str] = field(default_factory=list)
    killed: int = 0

    def execute(
        self, pending: Mapping[Path, Plan | Job], hear: Callable[[Path, str], None]
    ) -> Generator[tuple[Path, str | None], None, None]:
        def listen(path: Path, line: str) -> None:
            self.lines.append(f"{path.name}: {line}")
            if line.startswith("images") and path.name == "shard-1" and not self.killed:
                self.killed = self.process_of(self.lines)
                os.kill(self.killed, signal.SIGKILL)
            hear(path, line)

        yield from self.executor.execute(pending, listen)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """4,000 images, so that a shard takes seconds."""
    given = pictures(200) * 20
    path = tmp_path_factory.mktemp("many") / "all.parquet"
    return str(write(path, [NAMES[i % 5] for i in range(len(given))], given, rows_a_group=100))


@pytest.mark.slow
def test_a_shard_whose_process_is_killed_is_learnt_again(tmp_path: Path, micro_vit: str, many: str) -> None:
    how = recipe(micro_vit, "prol_plus")
    killer = Killer(LocalProcesses(1), lambda _: int(multiprocessing.active_children()[0].pid or 0))
    learnt = learn(many, how, tmp_path / "out", killer)
    assert "shard-1: its process ended with code -9; starting it again" in killer.lines
    assert learnt.images == 4000
    assert len(learnt.speeds()) == 5  # a process for each shard
    assert_same(learnt.learner, in_one_process(many, how, 4))


@pytest.mark.slow
def test_on_ray_four_workers_of_which_one_is_killed_learn_the_same(tmp_path: Path, micro_vit: str, many: str) -> None:
    how = recipe(micro_vit, "prol_plus")

    def process_of(lines: list[str]) -> int:
        return int(next(line.split()[4] for line in lines if line.startswith("shard-1: running in process ")))

    killer = Killer(RayExecutor(jobs=4), process_of)
    learnt = learn(many, how, tmp_path / "out", killer)
    assert [
        line for line in killer.lines if line.startswith("shard-1: its worker died") and "starting it again" in line
    ]
    assert learnt.images == 4000
    assert_same(learnt.learner, in_one_process(many, how, 4))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_a_killed_driver_leaves_no_process_and_the_same_command_resumes(
    tmp_path: Path, micro_vit: str, many: str
) -> None:
    flags = ["--backbone", micro_vit, "--device", "cpu", "--shards", "8", "--jobs", "2", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "prol", "learn", many, "--method", "slda", *flags]
    driver = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    work = tmp_path / "out.shards"
    try:
        until(lambda: (work / "shard-1").exists(), "a shard is learnt", 120)
        children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    finally:
        driver.kill()
        driver.wait()
    assert len(children) >= 2
    until(lambda: not any(Path("/proc", child).exists() for child in children), "its processes have ended", 10)
    done = sorted(path.name for path in work.glob("shard-?") if path.is_dir())
    assert len(done) < 8
    again = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "of 8 were learnt before" in again.stderr
    assert "slda with 5 classes of 4,000 images, from 8 shards" in again.stdout
    assert again.stdout.count(" images/s\n") == 9
    assert not work.exists()
    how = Recipe("slda", micro_vit, device="cpu")
    assert_same(prol.load(tmp_path / "out", device="cpu"), in_one_process(many, how, 8))
