"""`learner.save`: a folder with everything needed to go on bit for bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prol
from prol.artifacts.atomic import current_folder, write_folder, write_json
from prol.artifacts.tensors import file_sha256, write_tensors

if TYPE_CHECKING:
    from prol.learner import Learner

FORMAT = 1
MODEL_FILE = "model.safetensors"
META_FILE = "meta.json"
WRITTEN = ("method", "options", "seed", "precision", "backbone", "preprocessing", "classes", "state", "model_sha256")
"""What every `meta.json` of this format holds, besides the format and the version of prol."""


def save(learner: Learner, folder: str | Path) -> None:
    """Writes a learner as `model.safetensors` and `meta.json`.

    An artifact already there is replaced as a whole: a process killed at any instant leaves the old or the new one.
    A folder that holds something else is refused.
    """
    folder = Path(folder).resolve()
    _require_replaceable(folder)
    tensors, state = learner.state()

    def fill(unfinished: Path) -> None:
        write_tensors(unfinished / MODEL_FILE, tensors)
        write_json(unfinished / META_FILE, _describe(learner, state, file_sha256(unfinished / MODEL_FILE)))

    write_folder(folder, fill)


def _describe(learner: Learner, state: dict[str, Any], model_sha256: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "prol": prol.__version__,
        "method": learner.name,
        "options": dataclasses.asdict(learner.options),
        "seed": learner.seed,
        "precision": learner.backbone.precision,
        "backbone": {"name": learner.backbone.name, "sha256": learner.backbone.sha256},
        "preprocessing": dataclasses.asdict(learner.preprocessing),
        "classes": state["classes"],
        "state": {name: value for name, value in state.items() if name != "classes"},
        "model_sha256": model_sha256,
    }


def _require_replaceable(folder: Path) -> None:
    present = current_folder(folder)
    if not present.exists():
        return
    if not present.is_dir():
        raise ValueError(f"cannot save to {folder}: it is a file; choose a folder")
    names = {part.name for part in present.iterdir()}
    if names and not names <= {MODEL_FILE, META_FILE}:
        raise ValueError(f"cannot save to {folder}: it holds other things than a saved learner; choose another folder")
