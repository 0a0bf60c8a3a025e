"""The classes of an artifact: listing, renaming, merging and removing them, in one step that also writes it down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prol.artifacts.atomic import current_folder
from prol.artifacts.loading import load
from prol.artifacts.meta import read_meta
from prol.artifacts.operations import MERGED, REMOVED, RENAMED, operation
from prol.artifacts.saving import Origin, save
from prol.labels import Label

if TYPE_CHECKING:
    from prol.learner import Learner, Removal

SERVICE = "service"
"""Where a service keeps its checkpoints in the folder."""


def list_classes(folder: str | Path) -> list[tuple[Label, int | None]]:
    """Names, and how many images of each were learnt where that was counted; no weights are opened."""
    meta = read_meta(current_folder(Path(folder).resolve()))
    counts = (meta.get("seen") or {}).get("per_class") or [None] * len(meta["classes"])
    return list(zip(meta["classes"], counts, strict=True))


class ClassFolder:
    """An artifact whose classes are changed; each change loads it, and saves it as a whole with a line about it."""

    def __init__(self, folder: str | Path, backbone: str | None = None, device: str = "auto", note: str = "") -> None:
        self.folder, self.backbone, self.device, self.note = Path(folder).resolve(), backbone, device, note

    def rename(self, old: Label, new: Label) -> None:
        def change(learner: Learner) -> dict[str, Any]:
            learner.rename_class(old, new)
            return operation(RENAMED, len(learner.classes), new, note=self.note)

        self._change(change)

    def merge(self, source: Label, into: Label) -> Removal:
        return self._removed(lambda learner: learner.merge_classes(source, into), MERGED, into)

    def remove(self, name: Label) -> Removal:
        return self._removed(lambda learner: learner.remove_class(name), REMOVED, None)

    def _removed(self, remove: Callable[[Learner], Removal], what: str, left: Label | None) -> Removal:
        done: list[Removal] = []

        def change(learner: Learner) -> dict[str, Any]:
            done.append(remove(learner))
            return operation(what, len(learner.classes), left, done[0].exact, self.note)

        self._change(change)
        return done[0]

    def _change(self, change: Callable[[Learner], dict[str, Any]]) -> None:
        place = current_folder(self.folder)
        meta = read_meta(place)
        if (place / SERVICE).exists():
            raise ValueError(
                f"{self.folder} is that of a service, whose checkpoints would keep the class: start the service and "
                "ask it, DELETE or PATCH /classes/NAME"
            )
        learner = load(self.folder, self.backbone, device=self.device)
        try:
            line = change(learner)
        except LookupError as error:
            raise ValueError(str(error)) from error
        seen, versions = meta.get("seen") or {}, meta.get("versions") or {"prol": meta["prol"]}
        images = None if seen.get("per_class") is not None and meta.get("run") is None else seen.get("images")
        origin = Origin(meta["precision"], versions, images, meta.get("run"), meta.get("left_out"), meta.get("merged"))
        save(learner, self.folder, origin, operations=(line,))
