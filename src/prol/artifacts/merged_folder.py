"""`prol merge`: a saved learner out of several that learnt apart, with a word on what it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prol.artifacts.atomic import current_folder
from prol.artifacts.loading import load
from prol.artifacts.meta import read_meta
from prol.artifacts.operations import JOINED, operation, read_operations
from prol.artifacts.saving import Origin, save
from prol.merging import merge

if TYPE_CHECKING:
    from prol.learner import Learner


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
        base: the saved learner that all of them went on from, if there was one.
        backbone: where its weights are not found under the name saved.
        device: where to work.
        note: words for `operations.jsonl`.
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
    """A copy would be counted twice; parts that have learnt nothing, or nothing since the base, may be alike."""
    learnt = [meta["model_sha256"] for meta in parts if (meta.get("seen") or {}).get("images") != 0]
    if base is not None:
        learnt = [digest for digest in learnt if digest != base["model_sha256"]]
    if len(set(learnt)) < len(learnt):
        raise ValueError("two of the folders hold the same learner, which would be counted twice: give each once")


def _origin(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a part: no folder, which may tell more than it should of where it was learnt."""
    seen = meta.get("seen") or {}
    return {
        "model_sha256": meta["model_sha256"],
        "images": seen.get("images"),
        "classes": len(meta["classes"]),
        "prol": meta["prol"],
    }


def _versions(metas: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Of all of them; where they differ, one after the other."""
    all_of_them = [meta.get("versions") or {"prol": meta["prol"]} for meta in metas]
    names = dict.fromkeys(name for versions in all_of_them for name in versions)
    return {name: ", ".join(dict.fromkeys(str(one[name]) for one in all_of_them if name in one)) for name in names}


def _left_out(metas: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What was said of small classes in the parts, in one."""
    told = [meta["left_out"] for meta in metas if meta.get("left_out")]
    if not told:
        return None
    return {
        "least_count": max(one["least_count"] for one in told),
        "classes": sum(one["classes"] for one in told),
        "remains": list(dict.fromkeys(sentence for one in told for sentence in one["remains"])),
    }


def _operations(places: Sequence[Path]) -> list[dict[str, Any]]:
    """What was done to the parts before, each thing once: some may be of a time when they were one."""
    lines: list[dict[str, Any]] = []
    for place in places:
        lines += [line for line in read_operations(place) if line not in lines]
    return sorted(lines, key=lambda line: str(line.get("time", "")))
