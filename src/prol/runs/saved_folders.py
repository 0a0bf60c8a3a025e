"""Saved learners changed on disk: their classes listed, renamed, merged and removed, and several learners merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prol.classes import Label
from prol.files import current_folder
from prol.merging import merge
from prol.runfiles import STORED
from prol.runs.format import JOINED, MERGED, REMOVED, RENAMED, operation, read_meta, read_operations
from prol.runs.loading import load
from prol.runs.saving import Origin, save

if TYPE_CHECKING:
    from prol.learner import Learner, Removal

Done = TypeVar("Done", bound="Removal | None")

_MOST_NAMED = 20
SERVICE = "service"
"""The subfolder with the checkpoints of a service."""


def list_classes(folder: str | Path) -> list[tuple[Label, int | None]]:
    """Names and, where counted, numbers of training images; no weights are opened."""
    meta = read_meta(current_folder(Path(folder).resolve()))
    counts = (meta.get("seen") or {}).get("per_class") or [None] * len(meta["classes"])
    return list(zip(meta["classes"], counts, strict=True))


def describe_saved(folder: str | Path) -> list[str]:
    """What a saved learner is, in sentences, from `meta.json` alone; no weights are opened."""
    meta, classes = read_meta(current_folder(Path(folder).resolve())), list_classes(folder)
    seen, stored = meta.get("seen") or {}, meta.get("footprint") or {}
    named = [f"{name}{'' if count is None else f' ({count:,})'}" for name, count in classes[:_MOST_NAMED]]
    more = f" and {len(classes) - _MOST_NAMED:,} more" if len(classes) > _MOST_NAMED else ""
    images = seen.get("images")
    lines = [f"{folder} is a saved learner: {meta['method']} on {meta['backbone']['name']}, by prol {meta['prol']}"]
    lines.append(f"{len(classes):,} classes: {', '.join(named)}{more}" if classes else "It has learnt nothing yet")
    lines += [] if images is None else [f"{images:,} images learnt"]
    if stored:
        size = sum(stored[kind]["bytes"] for kind in STORED)
        samples = stored["samples_stored"]["bytes"]
        lines.append(
            f"{size:,} bytes stored besides the backbone, {f'{samples:,} of them' if samples else 'no'} samples"
        )
    return lines


class ClassFolder:
    """A saved learner whose classes are changed; each change loads it, and saves it together with a log line."""

    def __init__(self, folder: str | Path, backbone: str | None = None, device: str = "auto", note: str = "") -> None:
        self.folder, self.backbone, self.device, self.note = Path(folder).resolve(), backbone, device, note

    def rename(self, old: Label, new: Label) -> None:
        self._change(lambda learner: learner.rename_class(old, new), RENAMED, new)

    def merge(self, source: Label, into: Label) -> Removal:
        return self._change(lambda learner: learner.merge_classes(source, into), MERGED, into)

    def remove(self, name: Label) -> Removal:
        return self._change(lambda learner: learner.remove_class(name), REMOVED)

    def _change(self, change: Callable[[Learner], Done], what: str, left: Label | None = None) -> Done:
        place = current_folder(self.folder)
        meta = read_meta(place)
        if (place / SERVICE).exists():
            raise ValueError(
                f"{self.folder} belongs to a service, whose checkpoints would retain the class: start the service and "
                "use DELETE or PATCH /classes/NAME"
            )
        learner = load(self.folder, self.backbone, device=self.device)
        try:
            done = change(learner)
        except LookupError as error:
            raise ValueError(str(error)) from error
        exact = None if done is None else done.exact
        line = operation(what, len(learner.classes), left, exact, self.note)
        seen, versions = meta.get("seen") or {}, meta.get("versions") or {"prol": meta["prol"]}
        images = None if seen.get("per_class") is not None and meta.get("run") is None else seen.get("images")
        origin = Origin(meta["precision"], versions, images, meta.get("run"), meta.get("left_out"), meta.get("merged"))
        save(learner, self.folder, origin, operations=(line,))
        return done


def merge_folders(
    folders: Sequence[str | Path],
    out: str | Path,
    base: str | Path | None = None,
    *,
    backbone: str | None = None,
    device: str = "auto",
    note: str = "",
) -> Learner:
    """Merges saved learners into a new folder, as `prol.merge` does.

    Args:
        folders: at least two; classes are in the order of the first, then of the next.
        out: a folder that does not exist yet.
        base: the saved learner from which all of them continued, if there was one.
        backbone: the current name of the weights, if not the saved one.
        note: a note for `operations.jsonl`.
    """
    places = [current_folder(Path(folder).resolve()) for folder in folders]
    if len(set(places)) < len(places) or len(places) < 2:
        raise ValueError("give two or more different folders to merge: each would be counted as often as it is named")
    target = Path(out).resolve()
    if current_folder(target).exists():
        raise ValueError(f"{out} exists already: choose another --out")
    origin = None if base is None else current_folder(Path(base).resolve())
    metas = [read_meta(place) for place in [*places, *([] if origin is None else [origin])]]
    for meta, place in zip(metas, [*places, origin], strict=False):
        if meta["precision"] != metas[0]["precision"]:
            raise ValueError(
                f"{place} was learnt in {meta['precision']}, {places[0]} in {metas[0]['precision']}: their features "
                "differ, so that they cannot be merged"
            )
    _require_different(metas[: len(places)], None if origin is None else metas[-1])
    first = load(places[0], backbone, device=device)
    others = [load(place, first.backbone) for place in places[1:]]
    began = None if origin is None else load(origin, first.backbone)
    merged = merge([first, *others], began)
    line = operation(JOINED, len(merged.classes), note=note) | {"learners": len(places)}
    made_of = {
        "learners": [_origin(meta) for meta in metas[: len(places)]],
        "base": None if origin is None else _origin(metas[-1]),
    }
    whence = Origin(metas[0]["precision"], _versions(metas), None, None, _left_out(metas[: len(places)]), made_of)
    save(merged, target, whence, operations=(*_operations(places), line))
    return merged


def _require_different(parts: Sequence[Mapping[str, Any]], base: Mapping[str, Any] | None) -> None:
    """A copy would be counted twice; parts that learnt nothing, or nothing since the base, may be equal."""
    learnt = [meta["model_sha256"] for meta in parts if (meta.get("seen") or {}).get("images") != 0]
    if base is not None:
        learnt = [digest for digest in learnt if digest != base["model_sha256"]]
    if len(set(learnt)) < len(learnt):
        raise ValueError("two of the folders hold the same learner, which would be counted twice: give each once")


def _origin(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a part: without its folder, which may reveal where it was trained."""
    seen = meta.get("seen") or {}
    return {
        "model_sha256": meta["model_sha256"],
        "images": seen.get("images"),
        "classes": len(meta["classes"]),
        "prol": meta["prol"],
    }


def _versions(metas: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Versions of all parts; several values where they differ."""
    all_of_them = [meta.get("versions") or {"prol": meta["prol"]} for meta in metas]
    names = dict.fromkeys(name for versions in all_of_them for name in versions)
    return {name: ", ".join(dict.fromkeys(str(one[name]) for one in all_of_them if name in one)) for name in names}


def _left_out(metas: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The parts' records of omitted small classes, combined."""
    recorded = [meta["left_out"] for meta in metas if meta.get("left_out")]
    if not recorded:
        return None
    return {
        "least_count": max(one["least_count"] for one in recorded),
        "classes": sum(one["classes"] for one in recorded),
        "remains": list(dict.fromkeys(sentence for one in recorded for sentence in one["remains"])),
    }


def _operations(places: Sequence[Path]) -> list[dict[str, Any]]:
    """Operations on the parts, each once: some may date from before they were separated."""
    lines: list[dict[str, Any]] = []
    for place in places:
        lines += [line for line in read_operations(place) if line not in lines]
    return sorted(lines, key=lambda line: str(line.get("time", "")))
