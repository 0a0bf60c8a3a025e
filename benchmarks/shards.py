"""Learning in shards: images per second of one process and of several, in turns, and what a shard costs besides.

    python benchmarks/shards.py TRAIN.parquet --images 2000 --out results/shards/cpu.json

    python benchmarks/shards.py TRAIN.parquet --test TEST.parquet --methods prol_plus --out results/shards/accuracy.json

The first measures time, in turns. Processor seconds of the workers are stored, too: other processes change them less.
The second compares the accuracy of a learner that learnt all images in shards with that of one that learnt a stream of
them, in another order.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

import prol
from prol.bench.machine import document
from prol.data.parquet import parquet
from prol.runs.display import Silent
from prol.runs.executors import LocalProcesses, Serial
from prol.runs.plan import read_method
from prol.verbs.sharded import Recipe, learn_in_shards


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, help="a parquet file")
    parser.add_argument("--images", type=int, default=2000, help="rows of it, drawn at random")
    parser.add_argument("--test", type=Path, help="a parquet file of other images of these classes")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of shards and streams, with --test")
    parser.add_argument("--methods", nargs="+", default=["ncm", "prol_plus"])
    parser.add_argument("--backbone", default="tiny", help="as for `prol run`")
    parser.add_argument("--shards", type=int, default=4, help="parts of the images")
    parser.add_argument(
        "--workers", nargs="+", default=["1x1", "1x2", "2x1"], help="processes x threads, each measured in every turn"
    )
    parser.add_argument("--repeats", type=int, default=3, help="turns; the median counts")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    settings = {name: value for name, value in vars(given).items() if name not in ("out", "source", "test")}
    content = document("shards", torch.device("cpu"), shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]), settings)
    content["load_at_start"] = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        if given.test is not None:
            content["rows"] = [accuracies(method, seed, given) for method in given.methods for seed in given.seeds]
        else:
            images = str(some_rows(given.source, given.images, Path(place, "images.parquet")))
            content["rows"] = [measured(method, images, given) for method in given.methods]
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def some_rows(source: Path, count: int, target: Path) -> Path:
    table = pq.read_table(source)
    rows = np.sort(np.random.default_rng(0).permutation(len(table))[:count])
    pq.write_table(table.take(rows), target, row_group_size=100)
    return target


def measured(method: str, images: str, given: argparse.Namespace) -> dict[str, Any]:
    name, options = read_method(method)
    recipe = Recipe(name, given.backbone, options, device="cpu", precision="float32")
    runs: dict[str, list[dict[str, Any]]] = {workers: [] for workers in given.workers}
    for _ in range(given.repeats):
        for workers, found in runs.items():
            found.append(run(images, recipe, given.shards, workers))
    row = {"method": method, "workers": {workers: summary(found) for workers, found in runs.items()}}
    row |= cost_of_a_shard(runs[given.workers[-1]][-1]["learner"])
    print(json.dumps(row, indent=2), flush=True)
    return row


def run(images: str, recipe: Recipe, shards: int, workers: str) -> dict[str, Any]:
    """Learns all images once; returns the learner, and the seconds of all and of the parts."""
    processes, threads = map(int, workers.split("x"))
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read by the processes that are started
    before = used_by_children()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "learner")
        found = learn_in_shards([images], recipe, out, LocalProcesses(processes), shards=shards, progress=False)
    first, *records = found.records
    return {
        "learner": found.learner,
        "images_per_second": found.images / found.seconds,
        "images_per_second_of_a_worker": median(record["read"] / record["seconds"] for record in records),
        "images_per_second_of_all_workers": processes
        * sum(record["read"] for record in records)
        / sum(record["seconds"] for record in records),
        "seconds": found.seconds,
        "processor_seconds": used_by_children() - before,
        "first_images": first["read"],
        "seconds_of_first_images": first["seconds"],
    }


def used_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The median over turns of each number, and the images per second of every turn."""
    names = [name for name in turns[0] if name != "learner"]
    found = {name: median(turn[name] for turn in turns) for name in names}
    return found | {"turns": [turn["images_per_second"] for turn in turns]}


def cost_of_a_shard(learner: prol.Learner) -> dict[str, float]:
    """The bytes of a shard's learner, and the seconds in which it is loaded and merged."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "learner")
        began = time.perf_counter()
        learner.save(folder)
        saved = time.perf_counter()
        again = prol.load(folder, learner.backbone)
        prol.merge([learner, again], learner)
        seconds = time.perf_counter() - saved
        size = sum(file.stat().st_size for file in folder.iterdir())
    return {"bytes_of_a_shard": size, "seconds_to_save": saved - began, "seconds_to_merge": seconds}


def accuracies(method: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """In percent, on all test images."""
    name, options = read_method(method)
    recipe = Recipe(name, given.backbone, options, seed, "cpu", "float32")
    with tempfile.TemporaryDirectory() as place:
        out, executor = Path(place, "learner"), Serial(Silent())
        sharded = learn_in_shards(
            [str(given.source)], recipe, out, executor, shards=given.shards, progress=False
        ).learner
    stream = recipe.create()
    for images, labels in prol.stream(given.source, recipe.chunk, seed, test_share=0.0, progress=False):
        stream.learn(images, labels)
    test, right = parquet(given.test, test_share=0.0), {"in_shards": 0, "as_a_stream": 0}
    count = len(test.train.labels)
    for start in range(0, count, 64):
        rows = np.arange(start, min(start + 64, count))
        images = test.train.load(rows).images
        for how, learner in (("in_shards", sharded), ("as_a_stream", stream)):
            predicted = [learner.classes[row] for row in learner.predict(images).argmax(1).tolist()]
            wanted = [test.class_names[number] for number in test.train.labels[rows]]
            right[how] += sum(one == other for one, other in zip(predicted, wanted, strict=True))
    row = {"method": method, "seed": seed} | {how: 100 * number / count for how, number in right.items()}
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    main()
