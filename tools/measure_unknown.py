"""How well `unknown` separates images of classes that were never learnt from those of known ones.

    python tools/measure_unknown.py glyphs --learn 20 --other digits --out results/unknown/glyphs-small.json
    python tools/measure_unknown.py cifar100 --data PATH --seeds 0,1,2 --out results/unknown/cifar100-small.json

Half of the classes, drawn by the seed, are learnt in one pass of chunks of 10; then `learner.classify` predicts test
images of all classes. The file gets a row per data set, seed and method; rows that it has are not computed again.

    auroc               area under the ROC curve of `unknown`: unknown classes against known ones
    auroc_mahalanobis   the same of the relative Mahalanobis distance on the network's own feature, with the covariances
                        of all learnt features: a reference that is computed here, whatever the method
    auroc_probability   the same of 1 - the highest probability
    auroc_other         the same of `unknown`, images of the data set --other against known classes
    fpr95               share of images of known classes above the threshold that 95 % of unknown ones reach
    false_alarms        share of images of known classes with `unknown` above 0.95; 0.05 is the aim
    found               share of images of unknown classes above it
    accuracy            on images of known classes

With --development the test images are a fifth of the training images, held out: options are chosen on such.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import prol
from prol import registry
from prol.backbones import Backbone, open_backbone
from prol.data import Dataset, Split
from prol.evaluation.detection import auroc, fpr_at_tpr
from prol.files import write_json
from prol.learner import Learner

METHODS = ("ncm", "slda", "ranpac:features=2000", "prol", "prol_plus")
ALARM, CHUNK, AT_ONCE, OTHERS = 0.95, 10, 200, 1000
SHRINKAGE = 0.1  # of the reference's covariances, towards a multiple of the identity
SETTINGS = ("dataset", "other", "learn", "test", "tasks", "development", "backbone")
Places = NDArray[np.int64]
Batch = tuple[list[Any], list[int]]


def opened(name: str, data: str | None) -> Dataset:
    return registry.dataset(name)(**({"data": data} if data else {}))


def batches(source: Split, places: Places, size: int) -> Iterator[Batch]:
    """Images and labels, `size` at a time."""
    for start in range(0, len(places), size):
        loaded = source.load(places[start : start + size])
        yield list(loaded.images), source.labels[loaded.indices].tolist()


def drawn(dataset: Dataset, seed: int, wanted: argparse.Namespace) -> tuple[Places, Split, Places]:
    """Training images to learn, in order, of half of the classes; and those to test, of all, with their split."""
    random = np.random.default_rng(seed)
    classes = random.permutation(len(dataset.class_names))
    pools = {int(one): random.permutation(np.flatnonzero(dataset.train.labels == one)) for one in classes}
    test, tested = dataset.test, {one: np.flatnonzero(dataset.test.labels == one) for one in pools}
    if wanted.development:
        test, tested = dataset.train, {one: pool[: len(pool) // 5] for one, pool in pools.items()}
        pools = {one: pool[len(pool) // 5 :] for one, pool in pools.items()}
    tasks = np.array_split(classes[: len(classes) // 2], wanted.tasks)
    learnt = [random.permutation(np.concatenate([pools[int(one)][: wanted.learn] for one in task])) for task in tasks]
    some = [random.permutation(places)[: wanted.test] for places in tested.values()]
    return np.concatenate(learnt), test, np.concatenate(some)


@torch.no_grad()
def features(backbone: Backbone, parts: Iterable[Batch]) -> tuple[Tensor, NDArray[np.int64]]:
    """The network's own features `[N, D]`, float64, and labels `[N]`."""
    read = ((backbone.inputs(backbone.read(images), backbone.preprocessing), labels) for images, labels in parts)
    found = [(backbone.features(inputs).double().cpu(), labels) for inputs, labels in read]
    return torch.cat([some for some, _ in found]), np.concatenate([labels for _, labels in found])


def distances(queries: Tensor, centres: Tensor, deviations: Tensor) -> Tensor:
    """Squared Mahalanobis distances `[N]` to the nearest centre; the covariance is that of deviations `[M, D]`."""
    covariance = deviations.T @ deviations / len(deviations)
    identity = torch.eye(len(covariance)).double() * covariance.diagonal().mean()
    root = torch.linalg.cholesky(torch.lerp(covariance, identity, SHRINKAGE))
    white, to = (torch.linalg.solve_triangular(root, some.T, upper=False).T for some in (queries, centres))
    return torch.cdist(white, to).square().amin(1)


def mahalanobis(backbone: Backbone, learnt: Iterable[Batch], tested: Iterable[Batch]) -> float:
    """The area of the distance to the nearest class mean, within classes, less that to the mean of all."""
    (seen, labels), (queries, true) = features(backbone, learnt), features(backbone, tested)
    names, rows = np.unique(labels, return_inverse=True)
    means = torch.stack([seen[torch.from_numpy(rows == row)].mean(0) for row in range(len(names))])
    mean = seen.mean(0, keepdim=True)
    relative = distances(queries, means, seen - means[rows]) - distances(queries, mean, seen - mean)
    return auroc(relative, torch.from_numpy(~np.isin(true, names)))


def measured(learner: Learner, tested: Iterable[Batch], other: Iterable[Batch]) -> dict[str, float | None]:
    """All columns but the reference; those of `unknown` are None where the method has no familiarity."""
    found = [(learner.classify(images), labels) for images, labels in tested]
    pairs = [pair for answer, labels in found for pair in zip(answer.labels, labels, strict=True)]
    new = torch.tensor([label not in learner.row_of for _, label in pairs])
    right = torch.tensor([predicted == label for predicted, label in pairs])
    highest = torch.cat([answer.probabilities.amax(1) for answer, _ in found])
    row: dict[str, float | None] = dict.fromkeys(("auroc", "fpr95", "auroc_other", "false_alarms", "found"))
    row |= {"auroc_probability": auroc(1 - highest, new), "accuracy": float(right[~new].double().mean())}
    shares = [answer.unknown for answer, _ in found if answer.unknown is not None]
    if not shares:
        return row
    unknown = torch.cat(shares)
    known, row["auroc"], row["fpr95"] = unknown[~new], auroc(unknown, new), fpr_at_tpr(unknown, new)
    row["false_alarms"], row["found"] = (float((some > ALARM).double().mean()) for some in (known, unknown[new]))
    both = [known, *(share for images, _ in other if (share := learner.classify(images).unknown) is not None)]
    if len(both) > 1:
        row["auroc_other"] = auroc(torch.cat(both), torch.arange(sum(map(len, both))) >= len(known))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--data")
    parser.add_argument("--other", help="a data set with none of these classes")
    parser.add_argument("--other-data")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="METHOD:OPTION,OPTION")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--learn", type=int, help="images of each known class to learn; by default all")
    parser.add_argument("--test", type=int, help="images of each class to test; by default all")
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--backbone", default="small")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    wanted = parser.parse_args()
    words = ("PATH" if word in (wanted.data, wanted.other_data) else word for word in sys.argv[1:])
    settings = {name: vars(wanted)[name] for name in SETTINGS}
    content: dict[str, Any] = {"command": " ".join(["python tools/measure_unknown.py", *words]), "settings": settings}
    earlier = json.loads(wanted.out.read_text()) if wanted.out.exists() else content
    if earlier["settings"] != settings:
        raise SystemExit(f"{wanted.out} has rows of other settings: choose another file")
    content["rows"] = rows = earlier.get("rows", [])
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    dataset, backbone = opened(wanted.dataset, wanted.data), open_backbone(wanted.backbone, device=wanted.device)
    elsewhere = opened(wanted.other, wanted.other_data).test if wanted.other else dataset.test
    for seed in map(int, wanted.seeds.split(",")):
        done = {row["method"] for row in rows if row["seed"] == seed}
        if done.issuperset(wanted.methods):
            continue
        learnt, test, tested = drawn(dataset, seed, wanted)
        others = np.random.default_rng(seed).permutation(len(elsewhere.labels))[: OTHERS if wanted.other else 0]
        reference = mahalanobis(backbone, batches(dataset.train, learnt, AT_ONCE), batches(test, tested, AT_ONCE))
        for spec in [spec for spec in wanted.methods if spec not in done]:
            name, _, options = spec.partition(":")
            given = dict(pair.split("=", 1) for pair in options.split(",") if pair)
            learner, began = prol.create(name, backbone, seed=seed, **given), time.perf_counter()
            for images, labels in batches(dataset.train, learnt, CHUNK):
                learner.learn(images, labels)
            row = measured(learner, batches(test, tested, AT_ONCE), batches(elsewhere, others, AT_ONCE))
            row |= {"auroc_mahalanobis": reference, "seconds": time.perf_counter() - began}
            row = {name: None if value is None else round(value, 4) for name, value in row.items()}
            rows.append({"dataset": wanted.dataset, "seed": seed, "method": spec} | row)
            write_json(wanted.out, content)
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
