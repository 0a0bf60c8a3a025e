"""`prol.load`: a learner from a saved folder. Nothing in the folder is run; names are looked up in the registry."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prol import registry
from prol.artifacts.atomic import current_folder
from prol.artifacts.saving import FORMAT, META_FILE, MODEL_FILE, WRITTEN
from prol.artifacts.tensors import file_sha256, read_tensors

if TYPE_CHECKING:
    from prol.backbones import Backbone
    from prol.learner import Learner


def load(
    folder: str | Path,
    backbone: Backbone | None = None,
    *,
    device: str = "auto",
    precision: str | None = None,
    method: type[Learner] | None = None,
) -> Learner:
    """A learner that goes on where the saved one was.

    Args:
        folder: what `learner.save` wrote.
        backbone: an open one to use; without it, the one named in the artifact is opened.
        device: where to open the backbone.
        precision: of the backbone to open; as saved when not given, but float32 for bf16 on a CPU.
        method: the learner's class, for a method that is not registered under a name.
    """
    place = current_folder(Path(folder).resolve())
    meta = _read_meta(place)
    if file_sha256(place / MODEL_FILE) != meta["model_sha256"]:
        raise ValueError(f"{place / MODEL_FILE} is damaged: its checksum is not the one saved; copy the folder again")
    kind = method or registry.method(meta["method"])
    if kind.name != meta["method"]:
        raise ValueError(f"{place} was saved by method {meta['method']!r}, not by {kind.name!r}")
    if backbone is None:
        backbone = _open_backbone(meta["backbone"]["name"], device, precision, meta["precision"])
    _require_same_weights(backbone, meta["backbone"], place)
    learner = kind(backbone, kind.read_options(meta["options"]), meta["seed"])
    _require_same_preprocessing(learner, meta["preprocessing"], place)
    try:
        learner.load_state(read_tensors(place / MODEL_FILE), meta["state"] | {"classes": meta["classes"]})
    except (KeyError, RuntimeError) as error:
        raise ValueError(f"{place} does not fit method {kind.name!r} of this version: {error}") from error
    return learner


def _read_meta(place: Path) -> dict[str, Any]:
    if not place.is_dir():
        raise FileNotFoundError(f"no saved learner at {place}: give the folder that learner.save wrote")
    for name in (META_FILE, MODEL_FILE):
        if not (place / name).is_file():
            raise FileNotFoundError(f"{place} is not a saved learner: it has no {name}")
    try:
        meta: dict[str, Any] = json.loads((place / META_FILE).read_text(encoding="utf-8"))
        version = meta["format"]
        _ = [meta[name] for name in WRITTEN]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place / META_FILE} is damaged: {error}; copy the folder again") from error
    if version != FORMAT:
        raise ValueError(
            f"{place} has format {version}, this version of prol reads format {FORMAT}: use a matching prol"
        )
    return meta


def _open_backbone(name: str, device: str, precision: str | None, saved: str) -> Backbone:
    from prol.backbones import open_backbone, pick_device

    if precision is None:
        # What is learnt is float32 in both; only the frozen trunk is read differently.
        precision = "float32" if saved == "bf16" and pick_device(device).type == "cpu" else saved
    return open_backbone(name, device=device, precision=precision)


def _require_same_weights(backbone: Backbone, saved: dict[str, str], place: Path) -> None:
    if backbone.sha256 != saved["sha256"]:
        raise ValueError(
            f"{place} was learnt on backbone {saved['name']!r} with weights {saved['sha256'][:12]}, but "
            f"{backbone.name!r} has weights {backbone.sha256[:12]}: open the original weights and pass backbone="
        )


def _require_same_preprocessing(learner: Learner, saved: dict[str, Any], place: Path) -> None:
    # Compared as JSON, where a tuple and a list are one.
    present = json.loads(json.dumps(dataclasses.asdict(learner.preprocessing)))
    if present != saved:
        raise ValueError(f"{place} was learnt with preprocessing {saved}, but the backbone brings {present}")
