"""From a plan to everything a run needs, and to the `config.json` that says what it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from prol import registry
from prol.artifacts.versions import versions
from prol.backbones import Backbone, open_backbone
from prol.backbones.opening import require_precision
from prol.data import Dataset
from prol.data.split import development
from prol.data.streams import SHARED_ARGUMENTS, Stream, summarise_tasks
from prol.data.streams.builder import require_class_order
from prol.evaluation import Told
from prol.learner import Learner
from prol.options import bind_arguments, own_arguments
from prol.runs.plan import Plan

FORMAT = 3


@dataclass(frozen=True)
class Setup:
    """A learner that has learnt nothing, the data and their order, and the whole of it in words."""

    config: dict[str, Any]
    learner: Learner
    dataset: Dataset
    stream: Stream


@dataclass(frozen=True)
class Named:
    """What the names and options of a plan stand for; options are complete."""

    method: type[Learner]
    options: Any
    order: Callable[..., Stream]
    protocol_options: dict[str, Any]
    open_dataset: Callable[..., Dataset]
    dataset_options: dict[str, Any]


def look_up(plan: Plan) -> Named:
    """Finds mistakes in names and options; opens neither data nor weights."""
    kind = registry.method(plan.method)
    options = kind.read_options(_with_implied(kind, plan))
    require_precision(plan.precision)
    require_class_order(plan.class_order)
    order, open_dataset = registry.protocol(plan.protocol), registry.dataset(plan.dataset)
    asked = bind_arguments(order, _protocol_options(plan, options), reserved=SHARED_ARGUMENTS)
    dataset_options = bind_arguments(open_dataset, plan.dataset_options, reserved=("data",))
    if dataset_options.get("split") is not None:
        dataset_options["split"] = absolute(dataset_options["split"])  # the run may go on from another folder
    own_options = own_arguments(order, SHARED_ARGUMENTS) | asked
    return Named(kind, options, order, own_options, open_dataset, dataset_options)


def open_data(plan: Plan, named: Named) -> Dataset:
    """The data set as the run sees it."""
    dataset = named.open_dataset(data=plan.data, **named.dataset_options)
    if plan.development:
        dataset = development(dataset)
    return dataset if plan.limit_per_class is None else dataset.limited(plan.limit_per_class)


def set_up(plan: Plan, open_network: Callable[..., Backbone] = open_backbone) -> Setup:
    """Resolves a plan. Cheap mistakes (names, options) are found before data and weights are opened.

    The seed orders the stream and drives the learner; splits and drawn images are the same for every seed.
    `open_network` is called as `open_backbone` is, by those who look at many plans and open each network once.
    """
    named = look_up(plan)
    kind, options, order = named.method, named.options, named.order
    own_options, dataset_options = named.protocol_options, named.dataset_options
    dataset = open_data(plan, named)
    name = kind.default_backbone if plan.backbone == "auto" else plan.backbone
    backbone = open_network(name, device=plan.device, precision=plan.precision)
    learner = kind(backbone, options, plan.seed)
    protocol = {
        "tasks": plan.tasks or min(dataset.tasks, len(dataset.class_names)),
        "chunk": plan.chunk,
        "class_order": plan.class_order,
        **_told(plan, order, learner),
    }
    stream = order(dataset.train.labels, seed=plan.seed, **protocol, **own_options)
    if learner.needs_tasks() and any(task.foreign_share for task in summarise_tasks(stream, dataset.train.labels)):
        raise ValueError(
            f"{plan.method} with these options cannot learn a class that comes again in another task, as "
            f"{plan.protocol} brings it: choose another protocol or preset"
        )
    config = {
        "format": FORMAT,
        "versions": versions(),
        "method": plan.method,
        "options": dataclasses.asdict(options),
        "backbone": {"name": backbone.name, "sha256": backbone.sha256} | _from_scratch(kind),
        "preprocessing": dataclasses.asdict(learner.preprocessing),
        "precision": backbone.precision,
        "device": str(backbone.device),
        "threads": plan.threads or torch.get_num_threads(),
        "workers": (os.cpu_count() or 2) // 2 if plan.workers is None else plan.workers,
        "seed": plan.seed,
        "dataset": {
            "name": plan.dataset,
            "data": dataset.found_at if plan.data is None else absolute(plan.data),
            "options": dataset_options,
            "development": plan.development,
            "limit_per_class": plan.limit_per_class,
            "classes": len(dataset.class_names),
            "train_images": len(dataset.train.labels),
            "test_images": len(dataset.test.labels),
            "labels_sha256": _labels_sha256(dataset),
            "licence": dataset.licence,
            "cut": None if dataset.split is None else dataset.split.rule,
            "notes": list(dataset.notes),
        },
        "protocol": {"name": plan.protocol, **protocol, "options": own_options},
        "measures": dataclasses.asdict(plan.measures),
        "clock": None if plan.clock is None else dataclasses.asdict(plan.clock),
        "told": dataclasses.asdict(Told.by(learner, stream)),
        "checkpoint_every": plan.checkpoint_every,
        "checkpoint_share": plan.checkpoint_share,
    }
    # Through JSON once, so that it equals what is later read back from the file.
    return Setup(json.loads(json.dumps(config)), learner, dataset, stream)


def _from_scratch(kind: type[Learner]) -> dict[str, bool]:
    """Says of a network that none but the method gave it weights."""
    return {"from_scratch": True} if kind.from_scratch else {}


def _protocol_options(plan: Plan, options: Any) -> dict[str, Any]:
    """The protocol's own options, with what the published code does where that is asked for."""
    if getattr(options, "preset", None) != "released":
        return dict(plan.protocol_options)
    if plan.class_order != "label" or options.chunk != plan.chunk:
        raise ValueError("preset released needs --class-order label, and tests in batches of --chunk: leave out chunk=")
    # The published code leaves out classes that do not fill a task; nothing else does.
    surplus = {"drop_surplus": True} if plan.protocol == "disjoint" else {}
    return dict(plan.protocol_options) | surplus


def _told(plan: Plan, order: Callable[..., Stream], learner: Learner) -> dict[str, bool]:
    """Whether the learner is told of boundaries and classes: as asked, else as its method and the protocol have it."""
    boundaries, needed = plan.boundaries, learner.needs_tasks()
    if needed and (boundaries is False or plan.announce is False):
        raise ValueError(f"{learner.name} with these options needs task boundaries and classes to be told: let it")
    if boundaries is None:
        boundaries = needed or plan.announce or bool(own_arguments(order)["boundaries"])
    return {"boundaries": boundaries, "announce": boundaries if plan.announce is None else plan.announce}


def absolute(data: str) -> str:
    """Where data are, in a way that holds from any folder."""
    return data if data.startswith("hub:") else str(Path(data).expanduser().resolve())


def changes(then: Mapping[str, Any], now: Mapping[str, Any], above: str = "") -> dict[str, tuple[Any, Any]]:
    """Settings that differ between two configs, by their dotted name."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted(then.keys() | now.keys(), key=_what_follows_last):
        one, other = then.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found |= changes(one, other, f"{above}{name}.")
        elif one != other:
            found[f"{above}{name}"] = (one, other)
    return found


def _what_follows_last(name: str) -> tuple[bool, str]:
    """What was asked for comes before what follows from it, which explains less."""
    return name.endswith(("sha256", "_images")) or name == "classes", name


def require_same(then: Mapping[str, Any], now: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    """Data, weights and settings must be those of the start; other versions may only change the last bits."""
    for name, (old, new) in changes(then, now).items():
        if not name.startswith("versions."):
            raise ValueError(f"the run began with {name} {old!r}, now it is {new!r}: restore it, or start a new run")
        warn(f"the run began with {name.removeprefix('versions.')} {old}, now it is {new}: results may differ slightly")


def _with_implied(kind: type[Learner], plan: Plan) -> dict[str, Any]:
    """The options given, with chunk size and the data set's coefficients where the method has a use for them."""
    wanted = {field.name for field in dataclasses.fields(kind.Options)}
    implied = {"chunk": plan.chunk, "coefficients": plan.dataset}
    return {name: value for name, value in implied.items() if name in wanted} | dict(plan.options)


def _labels_sha256(dataset: Dataset) -> str:
    digest = hashlib.sha256(json.dumps(dataset.class_names).encode())
    for half in (dataset.train, dataset.test):
        digest.update(half.labels.astype("<i8").tobytes())
    return digest.hexdigest()
