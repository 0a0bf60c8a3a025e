"""What a method would train and keep, from shapes alone: no weights, no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from prol import registry
from prol.backbones import open_backbone


def count_parameters(
    method: str, options: Mapping[str, Any], backbone: str, classes: int, tasks: int
) -> dict[str, Any]:
    """Footprints after the classes of the first and of the last task are announced, and the paper's own counts.

    `samples` says what is kept of samples, None for nothing: none is learnt here, so that footprints do not show them.
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
