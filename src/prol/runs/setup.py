"""From a plan to everything a run needs, and to the `config.json` that says what it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import prol
from prol import registry
from prol.backbones import open_backbone
from prol.datasets import Dataset
from prol.evaluation import Told
from prol.learner import Learner
from prol.runs.plan import Plan
from prol.streams import Stream

FORMAT = 1


@dataclass(frozen=True)
class Setup:
    """A learner that has learnt nothing, the data and their order, and the whole of it in words."""

    config: dict[str, Any]
    learner: Learner
    dataset: Dataset
    stream: Stream


def set_up(plan: Plan) -> Setup:
    """Resolves a plan. Cheap mistakes (names, options) are found before data and weights are opened.

    The seed orders the stream and drives the learner; splits and drawn images are the same for every seed.
    """
    kind = registry.method(plan.method)
    options = kind.read_options(_with_implied(kind, plan))
    released = getattr(options, "preset", None) == "released"
    if released and (plan.class_order != "label" or options.chunk != plan.chunk):
        raise ValueError("preset released needs --class-order label, and tests in batches of --chunk: leave out chunk=")
    order = registry.protocol(plan.protocol)
    dataset = registry.dataset(plan.dataset)(data=plan.data)
    if plan.limit_per_class is not None:
        dataset = dataset.limited(plan.limit_per_class)
    protocol = {
        "tasks": plan.tasks or min(dataset.tasks, len(dataset.class_names)),
        "chunk": plan.chunk,
        "class_order": plan.class_order,
        "boundaries": plan.boundaries,
        "announce": plan.announce and plan.boundaries,
        # The published code leaves out classes that do not fill a task; nothing else does.
        "drop_surplus": released,
    }
    stream = order(dataset.train.labels, seed=plan.seed, **protocol)
    backbone = open_backbone(plan.backbone, device=plan.device, precision=plan.precision)
    learner = kind(backbone, options, plan.seed)
    config = {
        "format": FORMAT,
        "versions": _versions(),
        "method": plan.method,
        "options": dataclasses.asdict(options),
        "backbone": {"name": backbone.name, "sha256": backbone.sha256},
        "preprocessing": dataclasses.asdict(learner.preprocessing),
        "precision": backbone.precision,
        "device": str(backbone.device),
        "threads": plan.threads or torch.get_num_threads(),
        "seed": plan.seed,
        "dataset": {
            "name": plan.dataset,
            "data": None if plan.data is None else str(Path(plan.data).resolve()),
            "limit_per_class": plan.limit_per_class,
            "classes": len(dataset.class_names),
            "train_images": len(dataset.train.labels),
            "test_images": len(dataset.test.labels),
            "labels_sha256": _labels_sha256(dataset),
            "licence": dataset.licence,
        },
        "protocol": {"name": plan.protocol, **protocol},
        "told": dataclasses.asdict(Told.by(stream)),
        "checkpoint_every": plan.checkpoint_every,
    }
    # Through JSON once, so that it equals what is later read back from the file.
    return Setup(json.loads(json.dumps(config)), learner, dataset, stream)


def changes(then: Mapping[str, Any], now: Mapping[str, Any], above: str = "") -> dict[str, tuple[Any, Any]]:
    """Settings that differ between two configs, by their dotted name."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted(then.keys() | now.keys()):
        one, other = then.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found |= changes(one, other, f"{above}{name}.")
        elif one != other:
            found[f"{above}{name}"] = (one, other)
    return found


def _with_implied(kind: type[Learner], plan: Plan) -> dict[str, Any]:
    """The options given, with chunk size and the data set's coefficients where the method has a use for them."""
    wanted = {field.name for field in dataclasses.fields(kind.Options)}
    implied = {"chunk": plan.chunk, "coefficients": plan.dataset}
    return {name: value for name, value in implied.items() if name in wanted} | dict(plan.options)


def _versions() -> dict[str, str]:
    return {
        "prol": prol.__version__,
        "torch": torch.__version__,
        "timm": version("timm"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        # Sums are ordered differently on another kind of processor, and the last bits with them.
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


def _labels_sha256(dataset: Dataset) -> str:
    digest = hashlib.sha256(json.dumps(dataset.class_names).encode())
    for half in (dataset.train, dataset.test):
        digest.update(half.labels.astype("<i8").tobytes())
    return digest.hexdigest()
