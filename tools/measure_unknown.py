r"""How well images of classes that were never learnt are told from those of known ones.

    python tools/measure_unknown.py glyphs --learn 20 --ask 10 --observe-every 2 --out results/unknown/glyphs.json
    python tools/measure_unknown.py cifar100 --data PATH --learn 24 --ask 10 --observe-every 2 \
        --out results/unknown/cifar100.json

Half of the classes, drawn by the seed, are learnt in one pass; before a chunk is learnt its familiarity is observed, as
a service does. Then test images of all classes are asked about. Printed and written for each method: the area under the
ROC curve of `unknown`, false alarms (known classes above 0.95), strangers found (others above 0.95), and for comparison
the area that one minus the highest probability reaches. With --development the images asked about are training images
that were not learnt: on such the methods' familiarity was chosen.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import prol
from prol import registry
from prol.backbones import open_backbone
from prol.learner import Learner
from prol.novelty import Novelty

METHODS = ("ncm", "slda", "ranpac:features=2000", "prol", "prol_plus")
ALARM, CHUNK, AT_ONCE = 0.95, 10, 200
Places = NDArray[np.int64]


def area(scores: Tensor, strangers: Tensor) -> float:
    """Chance that a stranger scores above a known image, half of it where both score the same; bool `[N]`."""
    values, ranks = torch.unique(scores.double(), return_inverse=True)
    high, low = (torch.bincount(ranks[kind], minlength=len(values)).double() for kind in (strangers, ~strangers))
    below = low.cumsum(0) - low / 2
    return float((high * below).sum() / (high.sum() * low.sum()))


def drawn(labels: Places, classes: Places, count: int | None, random: np.random.Generator) -> Places:
    """Places of so many images of each class, or of all."""
    return np.concatenate([random.permutation(np.flatnonzero(labels == one))[:count] for one in classes])


def in_order(places: Places, labels: Places, known: Places, tasks: int, random: np.random.Generator) -> Places:
    """The stream: in so many tasks, shuffled within each."""
    shuffled = random.permutation(places)
    parts = [shuffled[np.isin(labels[shuffled], part)] for part in np.array_split(known, tasks)]
    return np.concatenate(parts)


def taught(learner: Learner, source: Any, places: Places, every: int) -> Novelty:
    """Learns the stream; each `every`th chunk is observed before."""
    novelty = Novelty()
    for number, start in enumerate(range(0, len(places), CHUNK)):
        loaded = source.load(places[start : start + CHUNK])
        labels = source.labels[loaded.indices].tolist()
        if number % every == 0:
            familiarity = learner.familiarity(loaded.images)
            if familiarity is not None:
                novelty.observe(familiarity, torch.tensor([label in learner.row_of for label in labels]))
        learner.learn(loaded.images, labels)
    return novelty


def asked(learner: Learner, novelty: Novelty, source: Any, places: Places) -> dict[str, float]:
    scores, found = [], []
    for part in np.array_split(places, -(-len(places) // AT_ONCE)):
        score, familiarity = learner.predict_with_familiarity(source.load(part).images)
        unknown = None if familiarity is None else novelty.unknown(familiarity)
        if unknown is None:
            raise SystemExit(f"{learner.name} cannot tell how familiar an image is")
        scores.append(score)
        found.append(unknown)
    score, unknown, labels = torch.cat(scores), torch.cat(found), source.labels[places].tolist()
    strangers = torch.tensor([label not in learner.row_of for label in labels])
    right = [learner.classes[row] == label for row, label in zip(score.argmax(1).tolist(), labels, strict=True)]
    return {
        "auroc": area(unknown, strangers),
        "false_alarms": float((unknown[~strangers] > ALARM).double().mean()),
        "strangers_found": float((unknown[strangers] > ALARM).double().mean()),
        "auroc_of_probability": area(1 - score.double().softmax(1).amax(1), strangers),
        "accuracy_on_known": float(torch.tensor(right)[~strangers].double().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--data")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="METHOD:OPTION,OPTION")
    parser.add_argument("--learn", type=int, help="images of each known class to learn; by default all")
    parser.add_argument("--ask", type=int, help="images of each class to ask about; by default all")
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--observe-every", type=int, default=1)
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    wanted = parser.parse_args()
    dataset = registry.dataset(wanted.dataset)(**({"data": wanted.data} if wanted.data else {}))
    train, test = dataset.train, dataset.train if wanted.development else dataset.test
    random = np.random.default_rng(wanted.seed)
    classes = random.permutation(len(dataset.class_names))
    known = classes[: len(classes) // 2]
    if wanted.development:
        if wanted.learn is None or wanted.ask is None:
            raise SystemExit("--development needs --learn and --ask: both take training images")
        # One draw, cut in two, so that nothing learnt is asked about.
        pool = {int(one): random.permutation(np.flatnonzero(train.labels == one)) for one in classes}
        learn = np.concatenate([pool[int(one)][: wanted.learn] for one in known])
        ask = np.concatenate([pool[int(one)][wanted.learn :][: wanted.ask] for one in classes])
    else:
        learn = drawn(train.labels, known, wanted.learn, random)
        ask = drawn(test.labels, classes, wanted.ask, random)
    stream = in_order(learn, train.labels, known, wanted.tasks, random)
    results = {}
    for spec in wanted.methods:
        name, _, options = spec.partition(":")
        given = dict(pair.split("=", 1) for pair in options.split(",") if pair)
        backbone = open_backbone("vit_tiny_patch8_64.tiny_imagenet", device=wanted.device, precision="float32")
        learner, began = prol.create(name, backbone, seed=wanted.seed, **given), time.perf_counter()
        novelty = taught(learner, train, stream, wanted.observe_every)
        found = {key: round(value, 4) for key, value in asked(learner, novelty, test, ask).items()}
        results[spec] = found | {"observed": novelty.observed, "seconds": round(time.perf_counter() - began)}
        print(f"{spec:22}", results[spec], flush=True)
    told = {key: value for key, value in vars(wanted).items() if key not in ("data", "out")}
    words = ["PATH" if word == wanted.data else word for word in sys.argv[1:]]
    text = {
        "command": " ".join(["python tools/measure_unknown.py", *words]),
        "asked": told,
        "images_learnt": len(stream),
        "images_asked": len(ask),
        "methods": results,
    }
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    wanted.out.write_text(json.dumps(text, indent=2) + "\n")


if __name__ == "__main__":
    main()
