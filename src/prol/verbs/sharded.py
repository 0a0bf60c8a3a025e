"""One learner of a large image set: shards are learnt in parallel by an executor's workers, and their sums added up."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np

from prol import registry
from prol.creation import create
from prol.data.prefetch import prefetched
from prol.data.shards import ShardImages, open_shards
from prol.files import current_folder, json_text, locked_folder, read_text, write_json
from prol.learner import Learner
from prol.merging import merge, sums_of
from prol.runs.display import Display, Lines
from prol.runs.executors import Executor, Job
from prol.runs.loading import load
from prol.runs.saving import save
from prol.runs.threads import free_threads, torch_threads
from prol.typed_json import read_file
from prol.verbs.progress import Progress

_IMAGES, _SECONDS_BETWEEN = "images", 1.0
"""The first word of a line in which a worker says how many images it has read in how many seconds."""


class ShardRecord(TypedDict):
    """Stored beside the learner of a shard; `read` counts unreadable images, too."""

    read: int
    images: int
    seconds: float
    worker: str
    precision: str
    unreadable: list[str]


@dataclass(frozen=True)
class Recipe:
    """What a worker needs to create the learner; `chunk` images are learnt together until learners can be merged."""

    method: str
    backbone: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    chunk: int = 10

    def create(self) -> Learner:
        where = {"device": self.device, "precision": self.precision, "seed": self.seed}
        return create(self.method, self.backbone, **cast("dict[str, Any]", where), **self.options)

    def load(self, shard: Path) -> Learner:
        kind, precision = registry.method(self.method), read_record(shard)["precision"]
        return load(shard, self.backbone, device=self.device, precision=precision, method=kind)

    def mergeable_options(self) -> dict[str, Any]:
        """The method's options; ValueError where its learners can never be merged."""
        kind = registry.method(self.method)
        if not kind.additive:
            able = ", ".join(name for name, other in registry.load_all("methods")[0].items() if other.additive)
            raise ValueError(f"{kind.name} cannot learn in shards, because its learners cannot be merged: use {able}")
        options = dataclasses.asdict(kind.read_options(self.options))
        for name, needed in (("augment", "none"), ("memory", "statistics")):
            if options.get(name, needed) != needed:
                raise ValueError(f"with {name}={options[name]} learners cannot be merged: use {name}={needed}")
        return options


@dataclass(frozen=True)
class ShardJob(Job):
    """One shard of an image set. Without a base, its images are learnt only until learners can be merged."""

    number: int
    images: ShardImages
    recipe: Recipe
    base: Path | None = None
    skip: int = 0

    def finish(self, path: Path, display: Display) -> None:
        if current_folder(path).exists():
            return
        with torch_threads(self.threads or free_threads()):
            learner = self.recipe.create() if self.base is None else self.recipe.load(self.base)
            record = self._learn(learner, display.say if isinstance(display, Lines) else lambda _: None)
            write_json(_record_file(path), record)
            save(learner, path)

    def _learn(self, learner: Learner, say: Callable[[str], None]) -> ShardRecord:
        names, split = self.images()
        order = np.random.default_rng([self.recipe.seed, self.number]).permutation(len(split.labels))[self.skip :]
        size = self.recipe.chunk if self.base is None else learner.predict_batch
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        threads = max(1, (os.cpu_count() or 2) // 2) if self.workers is None else self.workers
        read, learnt, unreadable = 0, 0, list[str]()
        began = said = time.perf_counter()
        with closing(prefetched(split, batches, threads)) as chunks:
            for batch, loaded in zip(batches, chunks, strict=True):
                if self.base is None and learnt and batch is batches[-1]:
                    learner.boundary()  # what is tuned or chosen in the first task is so now at the latest
                if loaded.images:
                    learner.learn(loaded.images, [names[number] for number in split.labels[loaded.indices]])
                read, learnt = read + len(batch), learnt + len(loaded.images)
                unreadable += [f"{bad.path}: {bad.reason}" for bad in loaded.unreadable]
                if time.perf_counter() - said >= _SECONDS_BETWEEN or batch is batches[-1]:
                    said = time.perf_counter()
                    say(f"{_IMAGES} {read} {said - began:.3f}")
                if self.base is None and learnt and _is_mergeable(learner):
                    break
        if self.base is None and not learnt:
            raise ValueError(f"none of the {read:,} images of the first shard could be read: are they images?")
        sums_of(learner)  # says why it cannot be merged
        seconds, worker = time.perf_counter() - began, f"{platform.node()}:{os.getpid()}"
        rest = {"worker": worker, "precision": learner.backbone.precision, "unreadable": unreadable}
        return cast(ShardRecord, {"read": read, "images": learnt, "seconds": seconds, **rest})


def _is_mergeable(learner: Learner) -> bool:
    try:
        sums_of(learner)
    except ValueError:
        return False
    return True


def _record_file(shard: Path) -> Path:
    return shard.with_name(f"{shard.name}.json")


def read_record(shard: Path) -> ShardRecord:
    return cast(ShardRecord, read_file(_record_file(shard), ShardRecord))


@dataclass(frozen=True)
class LearntInShards:
    """A learner, and how it was learnt."""

    learner: Learner
    shards: int
    records: list[ShardRecord]
    seconds: float

    @property
    def images(self) -> int:
        return sum(record["images"] for record in self.records)

    def speeds(self) -> dict[str, float]:
        """Images per second of each worker, in the time in which it read and learnt."""
        totals: dict[str, tuple[int, float]] = {}
        for record in self.records:
            read, seconds = totals.get(record["worker"], (0, 1e-9))
            totals[record["worker"]] = read + record["read"], seconds + record["seconds"]
        return {worker: read / seconds for worker, (read, seconds) in totals.items()}


def learn_in_shards(
    sources: Sequence[str],
    recipe: Recipe,
    out: str | Path,
    executor: Executor,
    *,
    shards: int | None = None,
    progress: bool = True,
) -> LearntInShards:
    """Learns the training images of a folder or of parquet files with many workers, and saves one learner.

    One worker learns the first images of the first shard, until what a method tunes or chooses is final. All workers
    continue from that learner, each with a shard. Learners of finished shards are stored in `OUT.shards` until they are
    merged, so that the same call resumes what was interrupted.

    Args:
        sources: as for `open_shards`.
        recipe: the method, whose learners must be mergeable.
        out: the folder to write; it must not exist.
        executor: where shards are learnt.
        shards: into how many parts the images are divided, as `open_shards` does by default.
        progress: whether progress is shown, on standard error.
    """
    options, target = recipe.mergeable_options(), Path(out).resolve()
    work = target.with_name(f"{target.name}.shards")
    if current_folder(target).exists():
        shutil.rmtree(work, ignore_errors=True)  # of a process that was killed after it had saved the learner
        raise ValueError(f"{out} exists already: choose another --out")
    began, found = time.perf_counter(), open_shards(sources, shards, recipe.seed)
    settings = {"options": options, "images": found.images, "files": found.sha256, "shards": len(found.shards)}
    title = f"{recipe.method}: {found.images:,} images in {len(found.shards):,} shards"
    with locked_folder(work), Progress(title, found.images, progress) as shown:
        for note in found.notes:
            shown.console.print(note, soft_wrap=True)
        _require_same(work / "settings.json", dataclasses.asdict(recipe) | settings)
        base, follower = work / "base", _Follower(shown)
        follower.execute(executor, {base: ShardJob(0, found.shards[0], recipe)})
        jobs = {
            work / f"shard-{number}": ShardJob(number, images, recipe, base, 0 if number else read_record(base)["read"])
            for number, images in enumerate(found.shards)
        }
        follower.execute(executor, jobs)
        start = recipe.load(base)
        learner = start
        for shard in jobs:  # one by one, so that at most four learners are in memory
            learner = merge([learner, load(shard, start.backbone, method=type(start))], start)
        save(learner, target)
        records = [read_record(path) for path in (base, *jobs)]
    shutil.rmtree(work)
    return LearntInShards(learner, len(jobs), records, time.perf_counter() - began)


def _require_same(file: Path, settings: Mapping[str, Any]) -> None:
    """Refuses to resume what was started with other arguments."""
    if not file.exists():
        write_json(file, settings)
    before, now = json.loads(read_text(file)), json.loads(json_text(settings))
    for name in now:
        if before.get(name) != now[name]:
            raise ValueError(
                f"{file.parent} was started with {name}={before.get(name)}, not {now[name]}: give the same arguments, "
                "or remove that folder to start again"
            )


class _Follower:
    """Executes jobs that are not finished, and shows the progress of all."""

    def __init__(self, shown: Progress) -> None:
        self.shown = shown
        self.read: dict[Path, int] = {}
        self.speeds: dict[Path, float] = {}

    def execute(self, executor: Executor, jobs: Mapping[Path, ShardJob]) -> None:
        pending = {path: job for path, job in jobs.items() if not current_folder(path).exists()}
        done = [path for path in jobs if path not in pending]
        if done:
            self.read |= {path: read_record(path)["read"] for path in done}
            self._say(f"{len(done)} of {len(jobs)} were learnt before: {done[0].name}{', ...' * (len(done) > 1)}")
        problems = []
        with closing(executor.execute(pending, self._hear)) as outcomes:
            for path, problem in outcomes:
                self.speeds.pop(path, None)
                problems += [] if problem is None else [f"{path.name}: {problem}"]
        if problems:
            others = f" ({len(problems) - 1} others failed, too)" if len(problems) > 1 else ""
            raise ValueError(f"{problems[0]}{others}; the same command tries again")

    def _hear(self, path: Path, line: str) -> None:
        word, *numbers = line.split(" ")
        if word != _IMAGES:
            self._say(f"{path.name}: {line}")
            return
        self.read[path], seconds = int(numbers[0]), float(numbers[1])
        self.speeds[path] = self.read[path] / max(seconds, 1e-9)
        speeds = ", ".join(f"{speed:.0f}" for speed in self.speeds.values())
        self.shown.update(sum(self.read.values()), f"images/s by worker: {speeds}")

    def _say(self, line: str) -> None:
        self.shown.console.print(line, soft_wrap=True)
