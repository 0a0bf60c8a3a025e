"""A learner saved into a folder that holds other things too, which therefore cannot be replaced as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prol.artifacts.atomic import publish, write_json, write_text
from prol.artifacts.card import model_card
from prol.artifacts.meta import CARD_FILE, META_FILE, MODEL_FILE, NEW_MODEL_FILE, OPERATIONS_FILE, read_meta
from prol.artifacts.operations import count_operations, operations_text, read_operations, without_gone_names
from prol.artifacts.saving import describe
from prol.artifacts.tensors import file_sha256, write_tensors

if TYPE_CHECKING:
    from prol.learner import Learner


def saved_sha256(folder: Path) -> str | None:
    """The model's hash as `meta.json` has it; None where there is no saved learner."""
    return str(read_meta(folder)["model_sha256"]) if (folder / META_FILE).exists() else None


def save_into(
    learner: Learner, folder: Path, announce: Callable[[str], None], operations: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Writes model, `meta.json` and card, and touches nothing else; the folder may be the root of a disk.

    `operations` come behind those that the folder tells of, but for what it tells of already.

    `announce` is told the model's hash after it is on disk and before anything that was there is changed. A process
    killed at any instant leaves a folder that `load` reads as the old or as the new one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished, model = folder / NEW_MODEL_FILE, folder / MODEL_FILE
    finish_saving(folder)
    told = read_operations(folder)
    before, new = (without_gone_names(lines, learner.classes) for lines in (told, operations))
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
    if lines != told:
        write_text(folder / OPERATIONS_FILE, operations_text(lines))
    meta = describe(learner, state, sha256) | {"operations": count_operations(lines), "left_out": None}
    if known or not model.exists():
        publish(unfinished, model)
    # From here on the new model is the valid one, whichever of its two names it has.
    write_json(folder / META_FILE, meta)
    if unfinished.exists():
        publish(unfinished, model)
    card = model_card(meta, folder.name, size, learner.citation, learner.from_scratch)
    write_text(folder / CARD_FILE, card)


def finish_saving(folder: Path) -> None:
    """Puts a model in its place that a killed process has left beside it; removes one that came to nothing."""
    unfinished = folder / NEW_MODEL_FILE
    if not unfinished.exists():
        return
    if (folder / MODEL_FILE).exists() and saved_sha256(folder) == file_sha256(unfinished):
        publish(unfinished, folder / MODEL_FILE)
    else:
        unfinished.unlink()
