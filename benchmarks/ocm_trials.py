"""How well OCM does after each of the first tasks of CIFAR-100, as it is and with its first task changed.

    python benchmarks/ocm_trials.py --data PATH --backbone resnet18_cifar@16 --rotations 4 --tasks 1 --out FILE.json

The plain method learns labels of the first task from the chunk alone. `labels alone` leaves out the contrast of the
chunk, `light contrast` gives it a tenth of its weight, `memory too` learns labels from the memory beside the chunk in
the first task too. ER stands beside them, and `er, all rows` with a row of the head for every class from the start, so
that those of classes to come are trained as wrong answers.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from prol import registry
from prol.backbones import Backbone, open_backbone, pick_device
from prol.bench.machine import document
from prol.learner import Learner
from prol.methods.replay.er import ER
from prol.methods.replay.learner import Drawn, Losses, Payload, summed
from prol.methods.replay.ocm import OCM
from prol.methods.replay.views import CROP_GREY, apply_views


class LabelsAlone(OCM):
    """Without the contrast of the chunk, in every task."""

    weight: ClassVar[float] = 0.0

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        values, payload = super().losses(images, rows, drawn)
        del values["total"]
        return summed(values | {"new": self.weight * values["new"]}), payload


class LightContrast(LabelsAlone):
    weight: ClassVar[float] = 0.1


class MemoryToo(OCM):
    """Labels of the first task from the chunk and from the memory."""

    def draw(self, rows: Tensor) -> Drawn:
        drawn = super().draw(rows)
        if "slots" in drawn or not len(self.memory):
            return drawn
        memory = self.draw_memory()
        views = self.contrast.draw_views(len(memory["slots"]))
        return drawn | {"first_slots": memory["slots"], "first_rows": memory["memory_rows"], "first_views": views}

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        if "first_slots" not in drawn:
            return super().losses(images, rows, drawn)
        seen = self.contrast.see(images, rows, drawn["turned"], drawn["columns"])
        together = torch.cat([images, self.recalled(drawn["first_slots"])])
        views = apply_views(CROP_GREY, together, torch.cat([drawn["views"], drawn["first_views"]]))
        labels = F.cross_entropy(self.logits(self.features(views)), torch.cat([rows, drawn["first_rows"]]))
        return summed({"new": self.contrast.of_chunk(seen, 1.0), "labels": labels}), {}


class AllRows(ER):
    """Knows from the start which classes will come."""

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.arrive(list(range(100)))


TRIALS: dict[str, type[Learner]] = {
    "er": ER,
    "er, all rows": AllRows,
    "ocm": OCM,
    "labels alone": LabelsAlone,
    "light contrast": LightContrast,
    "memory too": MemoryToo,
}
OF_OCM = [trial for trial in TRIALS if TRIALS[trial] is not AllRows]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="folder of CIFAR-100")
    parser.add_argument("--backbone", default="resnet18_cifar", help="resnet18_cifar@16 for a narrow one")
    parser.add_argument("--rotations", type=int, default=4, help="turned versions of an image, itself among them")
    parser.add_argument("--tasks", type=int, default=1, help="how many of the ten are learnt")
    parser.add_argument("--trials", nargs="+", default=OF_OCM, choices=list(TRIALS), metavar="TRIAL")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--precision", default="auto", help="as for `prol run`")
    parser.add_argument("--limit-per-class", type=int, help="images of a class in training and test")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    settings = {name: value for name, value in vars(given).items() if name not in ("out", "data", "trials")}
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    content = document("ocm_trials", pick_device(given.device), command, settings)
    for trial in given.trials:
        found = accuracies(TRIALS[trial], given)
        print(f"{trial:16}", *(f"{accuracy:6.2f}" for accuracy in found), flush=True)
        content["rows"].append({"trial": trial, "accuracy_after_task": found})
        if given.out is not None:
            given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def accuracies(kind: type[Learner], given: argparse.Namespace) -> list[float]:
    """In % of test images of the classes met, after each task."""
    data = registry.dataset("cifar100")(data=given.data)
    data = data if given.limit_per_class is None else data.limited(given.limit_per_class)
    network = open_backbone(given.backbone, device=given.device, precision=given.precision)
    options = {"rotations": given.rotations} if issubclass(kind, OCM) else {}
    learner = kind(network, kind.read_options(options), given.seed)
    stream = registry.protocol("disjoint")(data.train.labels, tasks=10, seed=given.seed, class_order="shuffled")
    found: list[float] = []
    for task in range(given.tasks):
        learner.boundary(stream.task_classes[task])
        for chunk in (chunk.indices for chunk in stream.chunks if chunk.task == task):
            learner.learn(data.train.load(chunk).images, data.train.labels[chunk].tolist())
        met = [name for classes in stream.task_classes[: task + 1] for name in classes]
        found.append(accuracy(learner, data.test, met))
    return found


def accuracy(learner: Learner, test: Any, classes: list[int]) -> float:
    met = np.flatnonzero(np.isin(test.labels, classes))
    named = np.asarray(learner.classes)
    right = [
        named[learner.predict(test.load(rows).images).argmax(1).cpu().numpy()] == test.labels[rows]
        for rows in np.array_split(met, max(1, len(met) // 250))
    ]
    return round(100 * float(np.concatenate(right).mean()), 2)


if __name__ == "__main__":
    main()
