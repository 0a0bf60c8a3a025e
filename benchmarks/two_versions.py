"""Whether another version of the package is as fast: both learn and predict in turn, on one machine, in one run.

    python benchmarks/two_versions.py OLD_SRC NEW_SRC --device cuda --methods prol,prol_plus,l2p --out FILE

Each version has its own process, with its folder on PYTHONPATH; they take turns, so that what else the machine does
meets both. Times are medians over rounds, per chunk of 10 images (learning) and per batch (predicting).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER = """
import json, sys, time
import numpy as np, torch
import prol
from prol.backbones import open_backbone
setup = json.loads(sys.stdin.readline())
cuda = setup["device"] == "cuda"
backbone = open_backbone(setup["backbone"], device=setup["device"], precision=setup["precision"])
random = np.random.default_rng(0)
side, chunk = backbone.preprocessing.size, setup["chunk"]
images = random.integers(0, 256, (chunk, side, side, 3), dtype=np.uint8)
many = random.integers(0, 256, (128, side, side, 3), dtype=np.uint8)
learner = prol.create(setup["method"], backbone, seed=0, **setup["options"])
labels = [number % 10 for number in range(chunk)]
def done():
    if cuda:
        torch.cuda.synchronize()
def timed(run, times):
    done(); start = time.perf_counter()
    for _ in range(times):
        run()
    done()
    return 1000 * (time.perf_counter() - start) / times
def learn():
    learner.learn(images, labels)
for _ in range(setup["warm"]):
    learn()
for batch in (images, many):
    for _ in range(5 if cuda else 1):
        learner.predict(batch)
print("ready", flush=True)
for line in sys.stdin:
    steps = int(line)
    found = {"learn": timed(learn, steps)}
    learner.predict(images)
    found["predict10"] = timed(lambda: learner.predict(images), steps)
    found["predict128"] = timed(lambda: learner.predict(many), max(1, steps // 5))
    print(json.dumps(found), flush=True)
"""


class Version:
    """A process that measures one version when asked."""

    def __init__(self, src: Path, setup: dict[str, Any]) -> None:
        place = {**os.environ, "PYTHONPATH": str(src.resolve())}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place
        )
        self._send(json.dumps(setup))

    def _send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a version stopped with exit status {self.process.wait()}")
        return line

    def measure(self, steps: int) -> dict[str, float]:
        self._send(str(steps))
        found: dict[str, float] = json.loads(self.read())
        return found

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def medians_of(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--methods", default="prol,prol_plus,prol_plus:adapt_steps=0,l2p")
    parser.add_argument("--backbone", default="vit_base_patch16_224@random")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--chunk", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warm", type=int, default=30)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for row in given.methods.split(","):
        method, *words = row.split(":")
        setup = {name: getattr(given, name) for name in ("device", "backbone", "precision", "chunk", "warm")}
        setup["options"] = dict(word.split("=") for word in words)
        rounds: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
        for order in (("old", "new"), ("new", "old")):  # who starts second may find the machine in another state
            versions = {name: Version(getattr(given, name), setup | {"method": method}) for name in order}
            for version in versions.values():
                version.read()
            for turn in range(given.rounds):
                for name in order if turn % 2 else order[::-1]:
                    rounds[name].append(versions[name].measure(given.steps))
            for version in versions.values():
                version.stop()
        medians = {name: medians_of(found) for name, found in rounds.items()}
        ratios = {kind: medians["new"][kind] / medians["old"][kind] for kind in medians["new"]}
        found[row] = {"old ms": medians["old"], "new ms": medians["new"], "new / old": ratios}
        print(row, json.dumps(found[row]), flush=True)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
