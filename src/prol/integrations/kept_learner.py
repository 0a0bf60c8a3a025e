"""A prol learner inside somebody else's object: opened when it is needed, copied and pickled without its network."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prol.creation import create
from prol.learner import Learner
from prol.runs.loading import load


@dataclass(frozen=True)
class Recipe:
    """What `prol.create` is called with."""

    method: str
    backbone: str
    options: Mapping[str, Any] | None
    seed: int
    device: str
    precision: str

    def __post_init__(self) -> None:
        if not isinstance(self.backbone, str):
            raise ValueError(
                "backbone must be a name, such as 'builtin' or 'ARCH@FILE.safetensors': an open network would be "
                "copied and pickled together with the classifier"
            )

    def create(self) -> Learner:
        return create(
            self.method,
            self.backbone,
            device=self.device,
            precision=self.precision,
            seed=self.seed,
            **dict(self.options or {}),
        )


class KeptLearner:
    """Holds a learner, or the files of one that `learner.save` wrote.

    A pickle or a copy holds the files: what was learnt, and the name and hash of the backbone, which is opened again on
    first use.
    """

    def __init__(self) -> None:
        self._learner: Learner | None = None
        self._files: dict[str, bytes] | None = None
        self._backbone: str | None = None

    def open(self, recipe: Recipe) -> Learner:
        """The learner; of the recipe, one that has learnt something follows only backbone, device and precision."""
        if self._learner is None:
            self._learner = recipe.create() if self._files is None else self._load(self._files, recipe)
            self._files, self._backbone = None, recipe.backbone
        return self._learner

    def _load(self, files: Mapping[str, bytes], recipe: Recipe) -> Learner:
        moved = None if recipe.backbone == self._backbone else recipe.backbone
        precision = None if recipe.precision == "auto" else recipe.precision
        with tempfile.TemporaryDirectory() as place:
            for name, content in files.items():
                Path(place, name).write_bytes(content)
            return load(place, moved, device=recipe.device, precision=precision)

    def __getstate__(self) -> dict[str, Any]:
        files = self._files
        if self._learner is not None:
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place, "learner")
                self._learner.save(folder)
                files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
        return {"files": files, "backbone": self._backbone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._learner, self._files, self._backbone = None, state["files"], state["backbone"]
