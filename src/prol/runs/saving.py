"""`learner.save`: a folder with everything needed to resume bit for bit."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prol
from prol.files import current_folder, publish, write_folder, write_json, write_text
from prol.method_files import file_of
from prol.runs.card import model_card
from prol.runs.format import (
    CARD_FILE,
    FORMAT,
    HUB_FILE,
    META_FILE,
    MODEL_FILE,
    NEW_MODEL_FILE,
    OPERATIONS_FILE,
    file_sha256,
    operations_text,
    read_meta,
    read_operations,
    versions,
    without_gone_names,
    write_tensors,
)

if TYPE_CHECKING:
    from prol.learner import Learner


@dataclass(frozen=True)
class Origin:
    """Where a learner comes from if it was not trained by the process that saves it.

    Args:
        precision: the precision it was trained with.
        versions: the versions it was trained with.
        images: the number of training images; None if only the learner itself may have counted them.
        run: the data and protocol of its run, if there was one.
        left_out: what was recorded about omitted small classes.
        merged: the learners it was merged from, if any.
    """

    precision: str
    versions: Mapping[str, str]
    images: int | None = None
    run: Mapping[str, Any] | None = None
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

    A saved learner in the folder is replaced as a whole: a process killed at any instant leaves the old or the new
    one. A folder that holds something else is refused.

    Args:
        least_count: classes of fewer images are omitted from the folder; the learner itself still has them.
        operations: lines to append to the folder's `operations.jsonl`.
    """
    folder = Path(folder).resolve()
    require_replaceable(folder)
    learner, left_out = without_small_classes(learner, least_count)
    lines = without_gone_names([*read_operations(current_folder(folder)), *operations], learner.classes)
    tensors, state = learner.state()

    def fill(unfinished: Path) -> None:
        write_tensors(unfinished / MODEL_FILE, tensors)
        if lines:
            (unfinished / OPERATIONS_FILE).write_text(operations_text(lines), encoding="utf-8")
        meta = _describe(learner, state, file_sha256(unfinished / MODEL_FILE), lines, origin, left_out)
        write_json(unfinished / META_FILE, meta)
        size = (unfinished / MODEL_FILE).stat().st_size
        card = model_card(meta, folder.name, size, learner.citation, learner.from_scratch)
        (unfinished / CARD_FILE).write_text(card, encoding="utf-8")

    write_folder(folder, fill)


def save_into(
    learner: Learner, folder: Path, announce: Callable[[str], None], operations: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Saves a learner into a folder that holds other files too and therefore cannot be replaced as a whole.

    A process killed at any instant leaves a folder that `load` reads as the old or as the new learner.

    Args:
        announce: receives the model's hash once it is on disk, before any existing file is changed.
        operations: lines to append to `operations.jsonl`, except those it has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished, model = folder / NEW_MODEL_FILE, folder / MODEL_FILE
    finish_saving(folder)
    recorded = read_operations(folder)
    before, new = (without_gone_names(lines, learner.classes) for lines in (recorded, operations))
    lines = [line for line in before if line not in new] + new
    tensors, state = learner.state()
    try:
        write_tensors(unfinished, tensors)
        sha256, size = file_sha256(unfinished), unfinished.stat().st_size
        known = saved_sha256(folder) == sha256
        if not known:
            announce(sha256)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if lines != recorded:
        write_text(folder / OPERATIONS_FILE, operations_text(lines))
    meta = _describe(learner, state, sha256, lines)
    if known or not model.exists():
        publish(unfinished, model)
    # From here on the new model is the valid one, under whichever of its two names.
    write_json(folder / META_FILE, meta)
    if unfinished.exists():
        publish(unfinished, model)
    card = model_card(meta, folder.name, size, learner.citation, learner.from_scratch)
    write_text(folder / CARD_FILE, card)


def finish_saving(folder: Path) -> None:
    """Completes or removes what a killed `save_into` left behind."""
    unfinished = folder / NEW_MODEL_FILE
    if not os.path.lexists(unfinished):
        return
    if (folder / MODEL_FILE).exists() and saved_sha256(folder) == file_sha256(unfinished):
        publish(unfinished, folder / MODEL_FILE)
    else:
        unfinished.unlink()


def saved_sha256(folder: Path) -> str | None:
    """The model's hash according to `meta.json`; None if there is no saved learner."""
    return str(read_meta(folder)["model_sha256"]) if (folder / META_FILE).exists() else None


def without_small_classes(learner: Learner, least_count: int) -> tuple[Learner, dict[str, Any] | None]:
    """A learner without classes of fewer than `least_count` images, and the record of what was omitted.

    The statistics of a class of few images come close to the images themselves.
    """
    if least_count < 0:
        raise ValueError(f"least_count must be at least 0, got {least_count}")
    if not least_count:
        return learner, None
    counts = learner.class_counts()
    if counts is None:
        raise ValueError(f"{learner.name} does not count the images of a class: save it without a least count")
    small = [name for name, count in zip(learner.classes, counts.tolist(), strict=True) if count < least_count]
    remains: dict[str, None] = {}
    if small:
        learner = learner.clone()
        for name in small:
            removal = learner.remove_class(name)
            remains |= {} if removal.exact else dict.fromkeys(removal.remains)
    return learner, {"least_count": least_count, "classes": len(small), "remains": list(remains)}


def require_replaceable(folder: Path) -> None:
    """Refuses to save to a folder that holds something else."""
    present = current_folder(folder)
    if not present.exists():
        return
    if not present.is_dir():
        raise ValueError(f"cannot save to {folder}: it is a file; choose a folder")
    names = {part.name for part in present.iterdir()}
    # A README.md or a model.safetensors alone is somebody else's.
    if names and not {META_FILE} <= names <= {MODEL_FILE, META_FILE, CARD_FILE, OPERATIONS_FILE, HUB_FILE}:
        raise ValueError(f"cannot save to {folder}: it holds other things than a saved learner; choose another folder")


def _describe(
    learner: Learner,
    state: dict[str, Any],
    model_sha256: str,
    operations: Sequence[Mapping[str, Any]],
    origin: Origin | None = None,
    left_out: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of `meta.json`; None stands for what was not counted, `per_class` is in the order of the classes."""
    origin = origin or Origin(learner.backbone.precision, versions())
    counted = learner.class_counts()
    per_class = None if counted is None else [round(count) for count in counted.tolist()]
    images = origin.images
    if images is None and per_class is not None:
        images = sum(per_class)
    meta = {
        "format": FORMAT,
        "prol": prol.__version__,
        "method": learner.name,
        "options": dataclasses.asdict(learner.options),
        "seed": learner.seed,
        "precision": origin.precision,
        "backbone": {"name": learner.backbone.name, "sha256": learner.backbone.sha256},
        "preprocessing": dataclasses.asdict(learner.preprocessing),
        "classes": state["classes"],
        "state": {name: value for name, value in state.items() if name != "classes"},
        "model_sha256": model_sha256,
        "versions": dict(origin.versions),
        "seen": {"images": images, "classes": len(learner.classes), "per_class": per_class},
        "footprint": dataclasses.asdict(learner.footprint()),
        "run": None if origin.run is None else dict(origin.run),
        "operations": dict(Counter(line["what"] for line in operations)),
        "left_out": left_out or origin.left_out,
    }
    if (file := file_of(type(learner))) is not None:
        meta |= {"method_file": f"{file.path.name}:{file.kind}", "method_sha256": file.sha256}
    return meta if origin.merged is None else meta | {"merged": dict(origin.merged)}
