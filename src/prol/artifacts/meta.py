"""`meta.json`: what stands in it, and reading one that anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prol.labels import read_labels, require_distinct

FORMAT = 1
MODEL_FILE = "model.safetensors"
NEW_MODEL_FILE = ".model.safetensors.new"
"""A model on its way into a folder that holds other things too."""
META_FILE = "meta.json"
CARD_FILE = "README.md"
OPERATIONS_FILE = "operations.jsonl"
"""What was done to the classes of an artifact, a line for each operation."""
HUB_FILE = "hub.json"
"""Says where a folder was fetched from, if it was."""

_KINDS: dict[str, tuple[type, str]] = {
    "method": (str, "text"),
    "options": (dict, "an object"),
    "seed": (int, "a whole number"),
    "precision": (str, "text"),
    "backbone": (dict, "an object"),
    "preprocessing": (dict, "an object"),
    "classes": (list, "a list"),
    "state": (dict, "an object"),
    "model_sha256": (str, "text"),
}
"""What every `meta.json` of this format holds, besides the format and the version of prol."""

_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib")
"""Endings of files that are usually pickles, which can run any code when they are opened."""


def read_meta(place: Path) -> dict[str, Any]:
    """The content of an artifact's `meta.json`, each part of the kind that it must be.

    A folder that holds a pickle is refused as a whole, though none is ever opened: no artifact has any.
    """
    if not place.is_dir():
        raise FileNotFoundError(f"no saved learner at {place}: give the folder that learner.save wrote")
    require_no_pickles((part.name for part in place.iterdir()), str(place))
    for name in (META_FILE, MODEL_FILE):
        if not (place / name).is_file():
            near = f"; that of the run is in {place / 'model'}" if (place / "model" / name).is_file() else ""
            raise FileNotFoundError(f"{place} is not a saved learner: it has no {name}{near}")
    file = place / META_FILE
    try:
        meta = json.loads(file.read_text(encoding="utf-8"))
        version = meta["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {_said(error)}; copy the folder again") from error
    if version != FORMAT:
        raise ValueError(
            f"{place} has format {version!r}, this version of prol reads format {FORMAT}: use a matching prol"
        )
    try:
        _require_kinds(meta)
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}; copy the folder again") from error
    return dict(meta)


def require_no_pickles(names: Iterable[str], place: str) -> None:
    """Refuses what holds a file of a kind that can run code."""
    pickles = sorted(name for name in names if name.lower().endswith(_PICKLES))
    if pickles:
        raise ValueError(
            f"{place} is not opened: it holds {pickles[0]}, and files of that kind can run code; take it out"
        )


def _require_kinds(meta: Mapping[str, Any]) -> None:
    for name, (kind, words) in _KINDS.items():
        _require(meta, name, kind, words)
    for name in ("name", "sha256"):
        _require(meta["backbone"], name, str, "text", "backbone.")
    _require(meta["state"], "method", dict, "an object", "state.")
    require_distinct(read_labels(meta["classes"]))


def _require(content: Mapping[str, Any], name: str, kind: type, words: str, above: str = "") -> None:
    if name not in content:
        raise ValueError(f"it has no {above}{name}")
    value = content[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{above}{name} must be {words}, got {str(value)[:40]!r}")


def _said(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
