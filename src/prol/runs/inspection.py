"""Looking at plans before anything is run: what they will be, whether they can run, what they would store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from prol import registry
from prol.backbones import open_backbone
from prol.backbones.built_in import find_built_in
from prol.creation import require_blocks
from prol.data import Dataset
from prol.runs.folder import RunFolder
from prol.runs.plan import Plan
from prol.runs.setup import Named, Network, backbone_name, changes, describe, look_up, open_data, outline


class Inspection:
    """Looks at many plans: opens each network once and each data set once in a row, and builds no learner."""

    def __init__(self) -> None:
        self._networks: dict[tuple[str, str, str], Network] = {}
        self._data: tuple[str, Dataset] | None = None

    def dataset(self, plan: Plan, named: Named | None = None) -> Dataset:
        """The plan's data set; plans with the same data should follow each other."""
        named = named or look_up(plan)
        key = repr((plan.dataset, plan.data, named.dataset_options, plan.development, plan.limit_per_class))
        if self._data is None or self._data[0] != key:
            self._data = None  # the old one may be large
            self._data = key, open_data(plan, named)
        return self._data[1]

    def network(self, plan: Plan) -> Network:
        key = backbone_name(plan), plan.device, plan.precision
        if key not in self._networks:
            self._networks[key] = Network.of(open_backbone(key[0], device=plan.device, precision=plan.precision))
        return self._networks[key]

    def outline(self, plan: Plan) -> dict[str, Any]:
        """The plan's config as far as names, data and weights determine it, with what was left to the machine."""
        named, network = look_up(plan), self.network(plan)
        known = outline(plan, named, self.dataset(plan, named), network)
        return known | {"device": network.device, "precision": network.precision}

    def config(self, plan: Plan) -> dict[str, Any]:
        """The plan's whole config; the learner behind it has shapes only."""
        named = look_up(plan)
        backbone = open_backbone(backbone_name(plan), shapes_only=True)
        require_blocks(named.method, backbone)
        learner = named.method(backbone, named.options, plan.seed)
        return describe(plan, named, self.dataset(plan, named), learner, self.network(plan))[0]


def require_planned(plan: Plan, run: RunFolder) -> None:
    """A run found in a folder must be the planned one, as far as names and options show.

    What the plan leaves to the machine may have been resolved by another one. Data and weights are compared when the
    run is resumed.
    """
    config = run.read(run.config)
    found = changes(config, outline(plan, look_up(plan)), partial=True)
    if "device" in found and str(found["device"][0]).partition(":")[0] == found["device"][1]:
        del found["device"]
    if (wanted := _other_network(backbone_name(plan), config["backbone"])) is not None:
        found = {"backbone.name": (config["backbone"]["name"], wanted), **found}
    for name, (there, wanted) in found.items():
        raise ValueError(f"{run.path} holds a run with {name} {there!r}, requested is {wanted!r}: choose another --out")


def _other_network(given: str, saved: Mapping[str, str]) -> str | None:
    """What a backbone opened as `given` would be stored as, if the saved one is another; None if it is the same."""
    if (built_in := find_built_in(given)) is not None:
        return None if saved["sha256"] == built_in.sha256 else built_in.name
    (architecture, at, source), there = given.partition("@"), saved["name"]
    resolved = f"{architecture}@{Path(source).resolve()}" if at else given
    same = there in (given, resolved) or (not at and there.startswith(f"{given}."))
    return None if same else given


def count_parameters(
    method: str, options: Mapping[str, Any], backbone: str, classes: int, tasks: int
) -> dict[str, Any]:
    """Footprints after the classes of the first and of the last task are announced, and the paper's own counts.

    They follow from shapes alone. No sample is learnt, so footprints do not include any; `samples` says what a method
    stores of samples, None for nothing.
    """
    if not 1 <= tasks <= classes:
        raise ValueError(f"tasks must be from 1 to the number of classes, {classes}, got {tasks}")
    kind = registry.method(method)
    backbone = kind.default_backbone if backbone == "auto" else backbone
    learner = kind(open_backbone(backbone, shapes_only=True), kind.read_options(options))
    footprints = []
    for announced in np.array_split(np.arange(classes), tasks):
        learner.boundary(announced)
        footprints.append(asdict(learner.footprint()))
    return {
        "method": method,
        "options": asdict(learner.options),
        "backbone": backbone,
        "classes": classes,
        "tasks": tasks,
        "during_first_task": footprints[0],
        "during_last_task": footprints[-1],
        "samples": learner.exemptions().get("nothing_outlives_its_step"),
        "paper_convention": learner.paper_counts(classes, tasks),
    }
