"""Deprecated alias for one version: saved learners and checkpoints moved to `prol.runs`."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

_MOVED = {
    "Checkpoints": "prol.runs.checkpoints",
    "ClassFolder": "prol.runs.saved_folders",
    "list_classes": "prol.runs.saved_folders",
    "load": "prol.runs.loading",
    "save": "prol.runs.saving",
}
__all__ = list(_MOVED)


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'prol.artifacts' has no attribute {name!r}")
    warnings.warn(f"prol.artifacts.{name} has moved: import it from {_MOVED[name]}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(_MOVED[name]), name)
