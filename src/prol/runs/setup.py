"""From a plan to everything a run needs, and to the `config.json` and `stream.json` that describe it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prol import registry
from prol.backbones import Backbone, open_backbone
from prol.backbones.opening import require_precision
from prol.creation import require_blocks
from prol.data import ArraySplit, Dataset, Split, Subset
from prol.data.folder import FileSplit
from prol.data.parquet_files import ParquetSplit
from prol.data.split import development
from prol.data.streams import SHARED_ARGUMENTS, Stream, class_presence, summarise_tasks
from prol.data.streams.stream import require_class_order
from prol.evaluation import Given
from prol.learner import Learner
from prol.method_files import file_of, label
from prol.options import bind_arguments, current_names, own_arguments
from prol.runs.format import versions
from prol.runs.plan import Plan

FORMAT = 3
NOT_SETTINGS = ("options_given", "method_file", "side_by_side", "load_start", "processors")
"""Keys of `config.json` that do not influence the result; they do not enter its hash and may differ on resume."""


@dataclass(frozen=True)
class Setup:
    """An untrained learner, the data and their order, and the content of `config.json`."""

    config: dict[str, Any]
    learner: Learner
    dataset: Dataset
    stream: Stream


@dataclass(frozen=True)
class Named:
    """The objects and complete options that a plan names."""

    method: type[Learner]
    options: Any
    order: Callable[..., Stream]
    protocol_options: dict[str, Any]
    open_dataset: Callable[..., Dataset]
    dataset_options: dict[str, Any]


@dataclass(frozen=True)
class Network:
    """What `config.json` records of an open backbone."""

    name: str
    sha256: str
    precision: str
    device: str

    @classmethod
    def of(cls, backbone: Backbone) -> Network:
        return cls(backbone.name, backbone.sha256, backbone.precision, str(backbone.device))


def look_up(plan: Plan) -> Named:
    """Finds mistakes in names and options; opens neither data nor weights."""
    kind = registry.method(plan.method)
    options = kind.read_options(_with_implied(kind, plan))
    require_precision(plan.precision)
    require_class_order(plan.class_order)
    order, open_dataset = registry.protocol(plan.protocol), registry.dataset(plan.dataset)
    given = bind_arguments(order, _protocol_options(plan, options), reserved=SHARED_ARGUMENTS)
    dataset_options = bind_arguments(open_dataset, plan.dataset_options, reserved=("data",))
    if dataset_options.get("split") is not None:
        dataset_options["split"] = absolute(dataset_options["split"])  # the run may be resumed from another folder
    own_options = own_arguments(order, SHARED_ARGUMENTS) | given
    return Named(kind, options, order, own_options, open_dataset, dataset_options)


def open_data(plan: Plan, named: Named) -> Dataset:
    dataset = named.open_dataset(data=plan.data, **named.dataset_options)
    if plan.development:
        dataset = development(dataset)
    return dataset if plan.limit_per_class is None else dataset.limited(plan.limit_per_class)


def set_up(plan: Plan) -> Setup:
    """Resolves a plan. Cheap mistakes (names, options) are found before data and weights are opened.

    The seed orders the stream and drives the learner; splits and selected images are the same for every seed.
    """
    named = look_up(plan)
    dataset = open_data(plan, named)
    backbone = open_backbone(backbone_name(plan), device=plan.device, precision=plan.precision)
    require_blocks(named.method, backbone)
    learner = named.method(backbone, named.options, plan.seed)
    config, stream = describe(plan, named, dataset, learner, Network.of(backbone))
    return Setup(config, learner, dataset, stream)


def backbone_name(plan: Plan) -> str:
    return registry.method(plan.method).default_backbone if plan.backbone == "auto" else plan.backbone


def describe(
    plan: Plan, named: Named, dataset: Dataset, learner: Learner, network: Network
) -> tuple[dict[str, Any], Stream]:
    """The content of `config.json`, and the stream. The learner may have shapes only; `network` is the real one."""
    known = outline(plan, named, dataset, network)
    known["protocol"] |= _information_given(plan, named.order, learner)
    arguments = {name: known["protocol"][name] for name in SHARED_ARGUMENTS if name not in ("labels", "seed")}
    stream = named.order(dataset.train.labels, seed=plan.seed, **arguments, **named.protocol_options)
    if learner.needs_tasks() and any(task.foreign_share for task in summarise_tasks(stream, dataset.train.labels)):
        raise ValueError(
            f"{plan.method} with these options cannot learn a class that comes again in another task, as "
            f"{plan.protocol} brings it: choose another protocol or preset"
        )
    given = dataclasses.asdict(Given.by(learner, stream))
    resolved = ("threads", "workers", "device", "precision")
    # The hash of a run depends on the order of its settings: the same whether or not these were given.
    config = {"format": FORMAT, "versions": versions()} | {k: v for k, v in known.items() if k not in resolved}
    config |= {
        "options_given": dict(plan.options),
        "preprocessing": dataclasses.asdict(learner.preprocessing),
        "precision": network.precision,
        "device": network.device,
        "threads": plan.threads or torch.get_num_threads(),
        "workers": (os.cpu_count() or 2) // 2 if plan.workers is None else plan.workers,
        "told": given | {"weights": network.name, "weights_sha256": network.sha256},
        "side_by_side": plan.side_by_side,
    }
    # Through JSON once, so that it equals what is later read back from the file.
    return json.loads(json.dumps(config)), stream


def outline(plan: Plan, named: Named, dataset: Dataset | None = None, network: Network | None = None) -> dict[str, Any]:
    """What `config.json` will hold, as far as it is known without a learner; values left open are absent."""
    data: dict[str, Any] = {"name": plan.dataset, "options": named.dataset_options}
    data |= {"development": plan.development, "limit_per_class": plan.limit_per_class}
    data |= {} if plan.data is None else {"data": absolute(plan.data)}
    tasks = plan.tasks
    if dataset is not None:
        tasks = plan.tasks or min(dataset.tasks, len(dataset.class_names))
        data |= {
            "data": data.get("data", dataset.found_at),
            "classes": len(dataset.class_names),
            "train_images": len(dataset.train.labels),
            "test_images": len(dataset.test.labels),
            "labels_sha256": _labels_sha256(dataset),
            "licence": dataset.licence,
            "cut": None if dataset.split is None else dataset.split.rule,
            "notes": list(dataset.notes),
        }
    protocol = {"name": plan.protocol, "chunk": plan.chunk, "class_order": plan.class_order}
    left_open = {"tasks": tasks, "boundaries": plan.boundaries, "announce": plan.announce}
    protocol |= {name: value for name, value in left_open.items() if value is not None}
    known: dict[str, Any] = {
        "method": label(plan.method),
        "options": dataclasses.asdict(named.options),
        "seed": plan.seed,
        "dataset": data,
        "protocol": protocol | {"options": named.protocol_options},
        "measures": dataclasses.asdict(plan.measures),
        "clock": None if plan.clock is None else dataclasses.asdict(plan.clock),
        "checkpoint_every": plan.checkpoint_every,
        "checkpoint_share": plan.checkpoint_share,
    }
    known |= {name: getattr(plan, name) for name in ("threads", "workers") if getattr(plan, name) is not None}
    known |= {name: getattr(plan, name) for name in ("device", "precision") if getattr(plan, name) != "auto"}
    if (file := file_of(named.method)) is not None:
        known |= {"method_file": file.word, "method_sha256": file.sha256}
    if network is not None:
        scratch = {"from_scratch": True} if named.method.from_scratch else {}
        known["backbone"] = {"name": network.name, "sha256": network.sha256} | scratch
    content: dict[str, Any] = json.loads(json.dumps(known))
    return content


def _protocol_options(plan: Plan, options: Any) -> dict[str, Any]:
    """The options of the protocol, with those of the published code if its preset is chosen."""
    if getattr(options, "preset", None) != "released":
        return dict(plan.protocol_options)
    if plan.class_order != "label" or options.chunk != plan.chunk:
        raise ValueError("preset released needs --class-order label, and tests in batches of --chunk: leave out chunk=")
    # The published code omits classes that do not fill a task; nothing else does.
    surplus = {"drop_surplus": True} if plan.protocol == "disjoint" else {}
    return dict(plan.protocol_options) | surplus


def _information_given(plan: Plan, order: Callable[..., Stream], learner: Learner) -> dict[str, bool]:
    """Whether boundaries and classes are given to the learner: as planned, else as its method and the protocol say."""
    boundaries, needed = plan.boundaries, learner.needs_tasks()
    if needed and (boundaries is False or plan.announce is False):
        raise ValueError(
            f"{learner.name} with these options needs task boundaries and classes: leave out --no-boundaries and "
            "--no-announce"
        )
    if boundaries is None:
        boundaries = needed or plan.announce or bool(own_arguments(order)["boundaries"])
    return {"boundaries": boundaries, "announce": boundaries if plan.announce is None else plan.announce}


def absolute(data: str) -> str:
    """A path of data that is valid from any folder."""
    return data if data.startswith("hub:") else str(Path(data).expanduser().resolve())


def changes(
    then: Mapping[str, Any], now: Mapping[str, Any], above: str = "", *, partial: bool = False
) -> dict[str, tuple[Any, Any]]:
    """Settings that differ between two configs, by dotted name; with `partial`, only those that `now` has."""
    found: dict[str, tuple[Any, Any]] = {}
    names = set(now) if partial else then.keys() | now.keys()

    def consequences_last(name: str) -> tuple[bool, str]:
        """Settings that were chosen come before their consequences, which explain less."""
        return name.endswith(("sha256", "_images")) or name == "classes", name

    for name in sorted(names if above else names - set(NOT_SETTINGS), key=consequences_last):
        one, other = then.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            if name == "options":
                one = current_names(one, other)
                if not partial:  # an older version had other options besides those that both have
                    one = {option: one.get(option, value) for option, value in other.items()}
            found |= changes(one, other, f"{above}{name}.", partial=partial)
        elif one != other:
            found[f"{above}{name}"] = (one, other)
    return found


def require_same(then: Mapping[str, Any], now: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    """Data, weights and settings must be those of the start; other versions may only change the last bits."""
    found = changes(then, now)
    if "backbone.sha256" not in found:  # the hash says which weights they are; their file may have moved
        found = {name: both for name, both in found.items() if name not in ("backbone.name", "told.weights")}
    for name, (old, new) in found.items():
        if not name.startswith("versions."):
            raise ValueError(f"the run began with {name} {old!r}, now it is {new!r}: restore it, or start a new run")
        warn(f"the run began with {name.removeprefix('versions.')} {old}, now it is {new}: results may differ slightly")


def _with_implied(kind: type[Learner], plan: Plan) -> dict[str, Any]:
    """The options given, with chunk size and the data set's coefficients for methods that use them."""
    wanted = {field.name for field in dataclasses.fields(kind.Options)}
    implied = {"chunk": plan.chunk, "coefficients": plan.dataset}
    return {name: value for name, value in implied.items() if name in wanted} | dict(plan.options)


def _labels_sha256(dataset: Dataset) -> str:
    digest = hashlib.sha256(json.dumps(dataset.class_names).encode())
    for half in (dataset.train, dataset.test):
        digest.update(half.labels.astype("<i8").tobytes())
    return digest.hexdigest()


_MOST_BINS = 100


def class_times(dataset: Dataset, stream: Stream) -> tuple[NDArray[np.int64], list[int], list[str]]:
    """Samples of each class in equal parts of the stream, `[classes, bins]`; starts of tasks; class names by task."""
    labels = dataset.train.labels
    sizes = [task.samples for task in summarise_tasks(stream, labels)]
    counts = class_presence(stream, labels, min(_MOST_BINS, sum(sizes)))
    names = [dataset.class_names[number] for group in stream.task_classes for number in group]
    return counts, list(accumulate(sizes[:-1], initial=0)), names


def stream_content(dataset: Dataset, stream: Stream) -> dict[str, Any]:
    """The content of `stream.json`."""
    counts, task_starts, names = class_times(dataset, stream)
    return {
        "samples": int(counts.sum()),
        "task_starts": task_starts,
        "classes": names,
        # Text: indented JSON would give each number its own line.
        "presence": [" ".join(map(str, row)) for row in counts.tolist()],
    }


def images_sha256(dataset: Dataset) -> str:
    """A hash over names and sizes of image files, or over pixels in memory; no image is decoded."""
    digest = hashlib.sha256()
    for half in (dataset.train, dataset.test):
        _update(digest, half, None)
    return digest.hexdigest()


def _update(digest: hashlib._Hash, split: Split, rows: NDArray[np.int64] | None) -> None:
    """Hashes the given images of a split, all if `rows` is None."""
    match split:
        case Subset(whole=whole, rows=own):
            _update(digest, whole, own if rows is None else own[rows])
        case ArraySplit(images=images):
            digest.update(np.ascontiguousarray(images if rows is None else images[rows]).data)
        case FileSplit(paths=paths):
            for row in range(len(paths)) if rows is None else rows.tolist():
                digest.update(_name_and_size(paths[row]))
        case ParquetSplit(files=files):
            for path in files:
                digest.update(_name_and_size(path))


def _name_and_size(path: Path) -> bytes:
    try:
        size = path.stat().st_size
    except OSError:  # a run reports unreadable images and continues
        size = -1
    return f"{path.name}\0{size}\0".encode(errors="surrogateescape")
