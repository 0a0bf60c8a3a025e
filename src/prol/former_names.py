"""Modules of version 0.1 under their former names, which work for one version, with a warning."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MOVED = {
    "prol.answers": ("prol.ranking", "prol.prediction"),
    "prol.artifacts": ("prol.runs.checkpoints", "prol.runs.loading", "prol.runs.saved_folders", "prol.runs.saving"),
    "prol.datasets": ("prol.data", "prol.data.split"),
    "prol.experiments": ("prol.runs", "prol.paper"),
    "prol.streams": ("prol.data.streams",),
}
"""Where the content of each former module is now."""

_STREAMS = ("base", "presence", "disjoint", "blurry", "iblurry", "siblurry", "gradual", "imbalanced")
_INSIDE = {
    "prol.answers": {},
    "prol.artifacts": {},
    "prol.datasets": {
        **{name: f"prol.data.{name}" for name in ("base", "cifar100", "cub200", "folder", "parquet", "prefetch")},
        "cutting": "prol.datasets",
        "digits": "prol.data.builtin",
        "glyphs": "prol.data.builtin",
        **dict.fromkeys(("imagenet_a", "imagenet_r"), "prol.data.imagenet_variants"),
    },
    "prol.experiments": {
        **{name: f"prol.runs.{name}" for name in ("comparison", "executors", "grid", "rate_curve", "sweep")},
        **{name: f"prol.{name}" for name in ("paper", "paper.items", "paper.reproduction", "paper.scale")},
        "sweep_file": "prol.runs.grid",
    },
    "prol.streams": dict.fromkeys(_STREAMS, "prol.data.streams"),
}
"""The modules that were inside each, and what they are now."""

_RENAMED = {"Answer": "RankedLabel", "Cut": "TrainTestSplit", "cut_content": "split_content"}


class FormerModules(MetaPathFinder, Loader):
    """Makes modules without content of their own: names are looked up where they are now."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(fullname, self) if fullname in _MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        former, places = module.__name__, _MOVED[module.__name__]
        warnings.warn(f"{former} is deprecated: import from {' or '.join(places)}", DeprecationWarning, stacklevel=2)
        for name, place in _INSIDE[former].items():
            sys.modules[f"{former}.{name}"] = import_module(place)

        def find(name: str) -> Any:
            for place in map(import_module, places):
                if hasattr(place, now := _RENAMED.get(name, name)):
                    return getattr(place, now)
            if f"{former}.{name}" in sys.modules:
                return sys.modules[f"{former}.{name}"]
            raise AttributeError(f"module {former!r} has no attribute {name!r}")

        module.__getattr__ = find  # type: ignore[method-assign]
