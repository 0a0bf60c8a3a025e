"""A prol learner inside an object of another library: copied and pickled without its network."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from prol.creation import create
from prol.learner import Learner
from prol.method_files import is_file_word
from prol.runs.loading import load


class Recipe(Protocol):
    """A classifier with the arguments of `prol.create` as attributes."""

    method: str
    backbone: str
    options: Mapping[str, Any] | None
    seed: int
    device: str
    precision: str


class StoredLearner:
    """Holds a learner, or the files that `learner.save` wrote.

    A pickle or a copy holds the files: the learner's state, and the name and hash of the backbone, which is opened on
    first use.
    """

    def __init__(self) -> None:
        self._learner: Learner | None = None
        self._files: dict[str, bytes] | None = None
        self._backbone: str | None = None

    def open(self, recipe: Recipe) -> Learner:
        """The learner. One loaded from files uses only the backbone, device and precision of the recipe."""
        if not isinstance(recipe.backbone, str):
            raise ValueError(
                "backbone must be a name, such as 'builtin' or 'ARCH@FILE.safetensors': an open network would be "
                "copied and pickled together with the classifier"
            )
        if self._learner is None:
            self._learner = _create(recipe) if self._files is None else self._load(self._files, recipe)
            self._files, self._backbone = None, recipe.backbone
        return self._learner

    def _load(self, files: Mapping[str, bytes], recipe: Recipe) -> Learner:
        moved = None if recipe.backbone == self._backbone else recipe.backbone
        precision = None if recipe.precision == "auto" else recipe.precision
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                Path(folder, name).write_bytes(content)
            method = recipe.method if is_file_word(recipe.method) else None
            return load(folder, moved, device=recipe.device, precision=precision, method=method)

    def __getstate__(self) -> dict[str, Any]:
        files = self._files
        if self._learner is not None:
            with tempfile.TemporaryDirectory() as parent:
                folder = Path(parent, "learner")
                self._learner.save(folder)
                files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
        return {"files": files, "backbone": self._backbone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._learner, self._files, self._backbone = None, state["files"], state["backbone"]


def _create(recipe: Recipe) -> Learner:
    settings: dict[str, Any] = {"device": recipe.device, "precision": recipe.precision, "seed": recipe.seed}
    return create(recipe.method, recipe.backbone, **settings, **dict(recipe.options or {}))


# Pickles of version 0.1 name this class and its module as follows.
KeptLearner = StoredLearner
sys.modules["prol.integrations.kept_learner"] = sys.modules[__name__]


def renamed(state: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a classifier pickled by version 0.1, under their names of today."""
    return {"_stored" if name == "_kept" else name: value for name, value in state.items()}
