"""Learning in shards: images per second of one process and of several, in turns, and what a shard costs besides.

    python benchmarks/shards.py TRAIN.parquet --test TEST.parquet --backbone tiny --out results/shards/cpu.json

With `--test`, the accuracy of the learner in shards is compared with that of one that learns a stream in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import prol
from prol.bench.machine import document
from prol.data.parquet import parquet
from prol.runs.executors import LocalProcesses
from prol.runs.plan import read_method
from prol.verbs.sharded import LearntInShards, Recipe, learn_in_shards


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("images", help="a folder or a parquet file")
    parser.add_argument("--test", help="images of the same kind to test on")
    parser.add_argument("--methods", nargs="+", default=["ncm", "prol_plus"])
    parser.add_argument("--backbone", default="tiny", help="as for `prol run`")
    parser.add_argument("--shards", type=int, default=4, help="parts of the images")
    parser.add_argument(
        "--workers", nargs="+", default=["1x1", "1x2", "2x1"], help="processes x threads, each measured in every turn"
    )
    parser.add_argument("--repeats", type=int, default=3, help="turns; the median counts")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    settings = {name: value for name, value in vars(given).items() if name not in ("out", "images", "test")}
    content = document("shards", torch.device("cpu"), shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]), settings)
    for method in given.methods:
        name, options = read_method(method)
        recipe = Recipe(name, given.backbone, options, device="cpu", precision="float32")
        runs: dict[str, list[LearntInShards]] = {workers: [] for workers in given.workers}
        for _ in range(given.repeats):
            for workers, found in runs.items():
                found.append(run(given.images, recipe, given.shards, workers))
        learnt = runs[given.workers[-1]][-1].learner
        row = {"method": method, "images": runs[given.workers[0]][0].images, **cost_of_a_shard(learnt)}
        row["workers"] = {workers: speeds(found) for workers, found in runs.items()}
        if given.test is not None:
            row["accuracy"] = accuracies(learnt, recipe, given.images, given.test)
        content["rows"].append(row)
        print(json.dumps(row, indent=2))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def run(images: str, recipe: Recipe, shards: int, workers: str) -> LearntInShards:
    processes, threads = map(int, workers.split("x"))
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read by the processes that are started
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "learner")
        return learn_in_shards([images], recipe, out, LocalProcesses(processes), shards=shards, progress=False)


def speeds(found: list[LearntInShards]) -> dict[str, Any]:
    """Images per second while shards are learnt, by worker and of all, and what comes on top."""
    all_of_them = [one.images / one.seconds for one in found]
    shards = [record for one in found for record in one.records[1:]]
    return {
        "images_per_second": median(all_of_them),
        "seconds": [one.seconds for one in found],
        "images_per_second_of_a_worker": median(record["read"] / record["seconds"] for record in shards),
        "first_images": found[0].records[0]["read"],
        "seconds_of_first_images": median(one.records[0]["seconds"] for one in found),
    }


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


def accuracies(learnt: prol.Learner, recipe: Recipe, images: str, test: str) -> dict[str, float]:
    """In percent: of the learner in shards, and of one that learns chunk after chunk, in an order of its own."""
    held_out = parquet(test, test_share=0.0)
    stream = recipe.create()
    for chunk, labels in prol.stream(images, recipe.chunk, seed=recipe.seed, test_share=0.0, progress=False):
        stream.learn(chunk, labels)
    found = {}
    for name, learner in (("in_shards", learnt), ("one_process", stream)):
        right = 0
        for start in range(0, len(held_out.train.labels), 64):
            rows = list(range(start, min(start + 64, len(held_out.train.labels))))
            predicted = learner.predict(held_out.train.load(rows).images).argmax(1).tolist()
            names = [held_out.class_names[number] for number in held_out.train.labels[rows]]
            right += sum(learner.classes[row] == label for row, label in zip(predicted, names, strict=True))
        found[name] = 100 * right / len(held_out.train.labels)
    return found


if __name__ == "__main__":
    main()
