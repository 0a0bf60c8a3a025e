"""How well label errors are found, and how well accuracy after ten more images per class is estimated.

    python tools/label_trials.py prepare --cifar100 PATH --cub200 PATH --store DIR
    python tools/label_trials.py run --store DIR --out results/development/label-trials-small.jsonl
    python tools/label_trials.py again --out results/development/label-trials-small.jsonl

`prepare` computes features of 6,000 training images once: 30 of each class of CIFAR-100, 90 of every fifth, and 30 of
each of 60 classes of CUB-200. `run` streams shuffled chunks of 10 of them through a learner, and adds a line of JSON
for each stream that the file does not have yet. `again` computes estimates from the sums in the file. Streams are of
all 100 or 60 classes (`cifar100`, `cub200`), or of 12 classes with 20 images each (`12 of cifar100`, `12 of cub200`).

    issues   5 % of the labels are changed to another class; all 20 images of each class are learnt. Of images whose
             class has 10 images by then: the area under the ROC curve by the probability of the label and by the
             normalised margin (1 + p_label - p_other) / 2, changed labels against others; recall and precision where
             20 % of the others are flagged; precision among as many as were changed.
    curve    10 images of each class (20 with 12 classes) are learnt, and accuracy is estimated for 10 more, which are
             learnt then; accuracy is measured on all other images of these classes. `sums` are the bins over all
             classes: number, predictions, right ones, summed confidence and summed number of known classes.
"""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import prol
from prol import registry
from prol.backbones import open_backbone
from prol.backbones.base import PLAIN
from prol.evaluation.detection import auroc
from prol.learner import Learner
from prol.prequential.learning_curve import LearningCurve

CHUNK, FLIPPED, FLAGGED, MORE = 10, 0.05, 0.2, 10
FIRST_SEED = 100
"""Streams of smaller seeds were for choosing constants."""
STREAMS = (
    ("issues", "prol_plus", "12 of cifar100", 5),
    ("issues", "prol_plus", "12 of cub200", 5),
    ("issues", "prol_plus", "cifar100", 3),
    ("issues", "prol_plus", "cub200", 3),
    ("issues", "ncm", "12 of cifar100", 5),
    ("issues", "ncm", "12 of cub200", 5),
    ("issues", "ncm", "cifar100", 3),
    ("issues", "ncm", "cub200", 3),
    ("curve", "prol_plus", "12 of cifar100", 20),
    ("curve", "prol_plus", "cifar100", 10),
    ("curve", "prol_plus", "cub200", 10),
    ("curve", "ncm", "12 of cifar100", 20),
    ("curve", "ncm", "cifar100", 10),
    ("curve", "ncm", "cub200", 10),
)
OWN = slice(4608, 4992)
"""The network's own feature among those that PROL+ reads."""


def opened() -> Any:
    backbone = open_backbone("small", device="cpu", precision="float32")
    backbone.acceleration = PLAIN
    return backbone


def prepare(wanted: argparse.Namespace) -> None:
    learner = prol.create("prol_plus", opened(), adapt_steps=0)
    chosen = {
        "cifar100": [(label, 90 if label % 5 == 0 else 30) for label in range(100)],
        "cub200": [(label, 30) for label in range(0, 180, 3)],
    }
    wanted.store.mkdir(parents=True, exist_ok=True)
    for name, classes in chosen.items():
        split = registry.dataset(name)(data=getattr(wanted, name)).train
        rows = np.concatenate([np.flatnonzero(split.labels == label)[:count] for label, count in classes])
        parts = [learner.encode_images(split.load(some).images) for some in np.array_split(rows, len(rows) // 60)]
        np.save(wanted.store / f"{name}.npy", torch.cat(parts).float().numpy())
        np.save(wanted.store / f"{name}_labels.npy", split.labels[rows])


def fresh(method: str, backbone: Any, features: Tensor) -> Learner:
    """A learner whose images are rows of the features."""
    learner = prol.create(method, backbone, **({"adapt_steps": 0} if method == "prol_plus" else {}))
    backbone.read = torch.as_tensor
    learner.evaluation_input = learner.training_input = lambda places: places  # type: ignore[method-assign]
    read = features if method == "prol_plus" else features[:, OWN]
    learner.look = lambda places: read[places]
    return learner


def drawn(store: Path, kind: str, seed: int) -> tuple[Tensor, list[NDArray[np.int64]], np.random.Generator]:
    """Features, and the places of each class in random order."""
    name, few = kind.split()[-1], kind.startswith("12")
    features, labels = torch.from_numpy(np.load(store / f"{name}.npy")), np.load(store / f"{name}_labels.npy")
    random = np.random.default_rng([seed, zlib.crc32(kind.encode())])
    classes, counts = np.unique(labels, return_counts=True)
    if few:
        classes = random.permutation(classes[counts == counts.max()])[:12]
    return features, [random.permutation(np.flatnonzero(labels == label)) for label in classes], random


def mixed(places: list[NDArray[np.int64]], first: int, last: int, random: np.random.Generator) -> Any:
    """These images of each class as rows (place, class), shuffled."""
    pairs = [(place, label) for label, some in enumerate(places) for place in some[first:last]]
    return random.permutation(np.array(pairs))


def learn(learner: Learner, pairs: Any, ids: bool = False) -> None:
    for start in range(0, len(pairs), CHUNK):
        some, labels = pairs[start : start + CHUNK].T
        learner.learn(torch.from_numpy(some.copy()), labels.tolist(), some.tolist() if ids else None)


def issues(store: Path, method: str, kind: str, seed: int, backbone: Any) -> dict[str, Any]:
    features, places, random = drawn(store, kind, seed)
    learner, pairs = fresh(method, backbone, features), mixed(places, 0, 20, random)
    changed = random.random(len(pairs)) < FLIPPED
    pairs[changed, 1] = (pairs[changed, 1] + random.integers(1, len(places), int(changed.sum()))) % len(places)
    learner.enable_prequential(record_ids=len(pairs))
    learn(learner, pairs, ids=True)
    found = learner.label_issues(share=1.0)
    wrong = {int(place) for place in pairs[changed, 0]}
    bad = np.array([issue.id in wrong for issue in found])
    scores = {
        "confidence": np.array([1 - issue.probability for issue in found]),
        "margin": np.array([(1 + issue.other_probability - issue.probability) / 2 for issue in found]),
    }
    areas = {f"auroc_{name}": auroc(torch.from_numpy(one), torch.from_numpy(bad)) for name, one in scores.items()}
    score = scores["confidence"]
    flagged = score > np.quantile(score[~bad], 1 - FLAGGED)
    first = bad[np.argsort(-score)[: bad.sum()]]
    shares = {"recall": flagged[bad].mean(), "precision": bad[flagged].mean(), "precision_first": first.mean()}
    return {"judged": len(bad), "changed": int(bad.sum())} | areas | {k: float(v) for k, v in shares.items()}


def curve(store: Path, method: str, kind: str, seed: int, backbone: Any) -> dict[str, Any]:
    features, places, random = drawn(store, kind, seed)
    learner, images = fresh(method, backbone, features), 20 if kind.startswith("12") else 10
    learner.enable_prequential()
    learn(learner, mixed(places, 0, images, random))
    stored, test = learner.learning_curve(), [some[images + MORE :] for some in places]
    found, pooled = stored.estimate(MORE), stored.bins.sum(0)
    assert found is not None
    before, _ = accuracy(learner, test)
    learner.enable_prequential(False)
    learn(learner, mixed(places, images, images + MORE, random))
    after, deviation = accuracy(learner, test)
    estimate = {"now": found.now, "after": found.after, "low": found.low, "high": found.high}
    sums = {"sums": [[number, *pooled[number].round(2).tolist()] for number in np.flatnonzero(pooled[:, 0]).tolist()]}
    return estimate | sums | {"true_now": before, "true_after": after, "true_deviation": deviation}


def estimated(row: dict[str, Any]) -> dict[str, Any]:
    """The same row with the estimate that follows from its sums by the constants of now."""
    few = row["stream"].startswith("12")
    classes = 12 if few else 100 if row["stream"] == "cifar100" else 60
    bins = np.zeros((classes, 24, 4))
    for number, *sums in row["sums"]:
        bins[0, number] = sums
    images = np.full(classes, 20.0 if few else 10.0)
    slope = registry.method(row["method"]).error_slope
    found = LearningCurve(tuple(range(classes)), images, bins, slope).estimate(MORE)
    assert found is not None
    return row | {name: round(getattr(found, name), 4) for name in ("now", "after", "low", "high")}


def again(wanted: argparse.Namespace) -> None:
    rows = [json.loads(line) for line in wanted.out.read_text().splitlines()]
    rows = [estimated(row) if row["task"] == "curve" else row for row in rows]
    wanted.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


def accuracy(learner: Learner, test: list[NDArray[np.int64]]) -> tuple[float, float]:
    """The mean over classes in percent, and its standard deviation by the number of test images."""
    scores = learner.predict(torch.from_numpy(np.concatenate(test)))
    said = np.array(learner.classes)[scores.argmax(1).numpy()]
    parts = np.split(said, np.cumsum([len(some) for some in test])[:-1])
    shares = np.array([(part == label).mean() for label, part in enumerate(parts)])
    variances = shares * (1 - shares) / np.array([len(some) - 1 for some in test])
    return 100 * float(shares.mean()), 100 * float(np.sqrt(variances.sum())) / len(test)


def run(wanted: argparse.Namespace) -> None:
    done = [json.loads(line) for line in wanted.out.read_text().splitlines()] if wanted.out.exists() else []
    finished = {(one["task"], one["method"], one["stream"], one["seed"]) for one in done}
    backbone = opened()
    for number in range(max(count for *_, count in STREAMS)):
        for task, method, kind, count in STREAMS:
            seed = FIRST_SEED + number
            if number >= count or method not in wanted.methods or (task, method, kind, seed) in finished:
                continue
            found = (issues if task == "issues" else curve)(wanted.store, method, kind, seed, backbone)
            row = {"task": task, "method": method, "stream": kind, "seed": seed}
            row |= {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}
            with wanted.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "run", "again"))
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/development/label-trials-small.jsonl"))
    parser.add_argument("--methods", nargs="+", default=["prol_plus", "ncm"])
    parser.add_argument("--cifar100")
    parser.add_argument("--cub200")
    wanted = parser.parse_args()
    {"prepare": prepare, "run": run, "again": again}[wanted.step](wanted)


if __name__ == "__main__":
    main()
