"""`learner.save`: a folder with everything needed to go on bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prol
from prol.artifacts.atomic import current_folder, write_folder, write_json
from prol.artifacts.card import model_card
from prol.artifacts.meta import CARD_FILE, FORMAT, HUB_FILE, META_FILE, MODEL_FILE, OPERATIONS_FILE
from prol.artifacts.operations import count_operations, read_operations, without_gone_names, write_operations
from prol.artifacts.small_classes import without_small_classes
from prol.artifacts.tensors import file_sha256, write_tensors
from prol.artifacts.versions import versions

if TYPE_CHECKING:
    from prol.learner import Learner


@dataclass(frozen=True)
class Origin:
    """Where a learner comes from that was not taught by whoever saves it.

    `precision` and `versions` are those it was taught with; `images` it has learnt in all, None where only the learner
    itself may have counted them; `run` says on what, if it was a run; `left_out` is what was said of small classes;
    `merged` is what it was made of, if it was put together.
    """

    precision: str
    versions: Mapping[str, str]
    images: int | None
    run: Mapping[str, Any] | None
    left_out: Mapping[str, Any] | None = None
    merged: Mapping[str, Any] | None = None


def save(
    learner: Learner,
    folder: str | Path,
    origin: Origin | None = None,
    *,
    least_count: int = 0,
    operations: tuple[Mapping[str, Any], ...] = (),
) -> None:
    """Writes a learner as `model.safetensors`, `meta.json` and the model card `README.md`.

    An artifact already there is replaced as a whole: a process killed at any instant leaves the old or the new one.
    A folder that holds something else is refused. Classes of fewer than `least_count` images are left out, the learner
    itself keeps them. `operations` are added to those that the folder tells of.
    """
    folder = Path(folder).resolve()
    require_replaceable(folder)
    learner, left_out = without_small_classes(learner, least_count)
    lines = without_gone_names([*read_operations(current_folder(folder)), *operations], learner.classes)
    tensors, state = learner.state()

    def fill(unfinished: Path) -> None:
        write_tensors(unfinished / MODEL_FILE, tensors)
        if lines:
            write_operations(unfinished, lines)
        meta = describe(learner, state, file_sha256(unfinished / MODEL_FILE), origin)
        said = left_out or (None if origin is None else origin.left_out)
        meta |= {"operations": count_operations(lines), "left_out": said}
        meta |= {} if origin is None or origin.merged is None else {"merged": dict(origin.merged)}
        write_json(unfinished / META_FILE, meta)
        size = (unfinished / MODEL_FILE).stat().st_size
        card = model_card(meta, folder.name, size, learner.citation, learner.from_scratch)
        (unfinished / CARD_FILE).write_text(card, encoding="utf-8")

    write_folder(folder, fill)


def describe(
    learner: Learner, state: dict[str, Any], model_sha256: str, origin: Origin | None = None
) -> dict[str, Any]:
    """The content of `meta.json`."""
    return {
        "format": FORMAT,
        "prol": prol.__version__,
        "method": learner.name,
        "options": dataclasses.asdict(learner.options),
        "seed": learner.seed,
        "precision": learner.backbone.precision if origin is None else origin.precision,
        "backbone": {"name": learner.backbone.name, "sha256": learner.backbone.sha256},
        "preprocessing": dataclasses.asdict(learner.preprocessing),
        "classes": state["classes"],
        "state": {name: value for name, value in state.items() if name != "classes"},
        "model_sha256": model_sha256,
        "versions": versions() if origin is None else dict(origin.versions),
        "seen": _seen(learner, origin),
        "footprint": dataclasses.asdict(learner.footprint()),
        "run": None if origin is None or origin.run is None else dict(origin.run),
    }


def _seen(learner: Learner, origin: Origin | None) -> dict[str, Any]:
    """How much was learnt; None stands for what nobody has counted. `per_class` is in the order of the classes."""
    counted = learner.class_counts()
    per_class = None if counted is None else [round(count) for count in counted.tolist()]
    counted_here = None if per_class is None else sum(per_class)
    images = counted_here if origin is None or origin.images is None else origin.images
    return {"images": images, "classes": len(learner.classes), "per_class": per_class}


def require_replaceable(folder: Path) -> None:
    """Says why nothing can be saved to a folder that holds something else."""
    present = current_folder(folder)
    if not present.exists():
        return
    if not present.is_dir():
        raise ValueError(f"cannot save to {folder}: it is a file; choose a folder")
    names = {part.name for part in present.iterdir()}
    # A README.md or a model.safetensors alone is somebody's own.
    if names and not {META_FILE} <= names <= {MODEL_FILE, META_FILE, CARD_FILE, OPERATIONS_FILE, HUB_FILE}:
        raise ValueError(f"cannot save to {folder}: it holds other things than a saved learner; choose another folder")
