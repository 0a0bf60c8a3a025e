"""Deprecated alias for one version: many runs moved to `prol.runs`, the paper to `prol.paper`."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

warnings.warn("prol.experiments has moved to prol.runs and prol.paper", DeprecationWarning, stacklevel=2)
_RUNS = ("comparison", "executors", "grid", "rate_curve", "sweep")
_PAPER = ("paper", "paper.items", "paper.reproduction", "paper.scale")
_MOVED = {name: f"prol.runs.{name}" for name in _RUNS} | {name: f"prol.{name}" for name in _PAPER}
_MOVED["sweep_file"] = "prol.runs.grid"
for _old, _new in _MOVED.items():
    globals()[_old] = sys.modules[f"{__name__}.{_old}"] = import_module(_new)
