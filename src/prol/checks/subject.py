"""What is checked: a folder of images, a saved learner, a run, or a folder of runs, read from files alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prol.data.base import Dataset
from prol.data.folder import folder
from prol.files import current_folder
from prol.runfiles import CONFIG, RESULT, RunFiles, read_run
from prol.runs.format import META_FILE, read_meta

NCM = "ncm"


@dataclass(frozen=True)
class Learnt:
    """What the files say of one learner; `counts` are images by class, None where the method does not count them.

    `values` is the JSON part of a saved learner's state; of a run it is not read.
    """

    name: str
    options: Mapping[str, Any]
    backbone: Mapping[str, Any]
    preprocessing: Mapping[str, Any] | None
    bytes_stored: int | None
    classes: tuple[str, ...]
    counts: Mapping[str, int] | None
    values: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Subject:
    """What a check looks at; parts that the path does not have are empty or None.

    Args:
        kind: what the path is, in words.
        runs: finished runs.
        rivals: finished runs of nearest class mean in the same folder, which may be among the runs.
        learners: the saved learner, or those of the runs.
        images: the images of the folder, or of the folder that a run was on.
    """

    path: Path
    kind: str
    runs: tuple[RunFiles, ...] = ()
    rivals: tuple[RunFiles, ...] = ()
    learners: tuple[Learnt, ...] = ()
    images: Dataset | None = None


def open_subject(path: str | Path) -> Subject:
    """Reads what is at a path; weights are not opened, and nothing is executed."""
    place = Path(path).expanduser()
    if not place.is_dir():
        what = "is a file" if place.exists() else "does not exist"
        raise FileNotFoundError(f"{place} {what}: give the folder of a run, of runs, of a saved learner or of images")
    if (place / CONFIG).is_file():
        if not (place / RESULT).is_file():
            raise ValueError(f"{place} holds an unfinished run: continue with `prol resume {place}`, then check it")
        run = read_run(place)
        return _of_runs(place, f"a run of {run.name}", (run,), tuple(_finished(place.resolve().parent, NCM)))
    if (current_folder(place) / META_FILE).is_file():
        learner = _of_meta(place.resolve().name, read_meta(current_folder(place)))
        return Subject(place, f"a saved learner of {learner.name}", learners=(learner,))
    runs = tuple(_finished(place))
    if runs:
        return _of_runs(place, f"a folder of {len(runs)} runs", runs, tuple(r for r in runs if _is_ncm(r)))
    try:
        images = folder(place)
    except ValueError as error:
        raise ValueError(f"{place} is no run, no folder of finished runs, no saved learner: {error}") from error
    total = len(images.train.labels) + len(images.test.labels)
    return Subject(place, f"a folder of {total:,} images of {len(images.class_names):,} classes", images=images)


def _finished(place: Path, method: str | None = None) -> list[RunFiles]:
    """The finished runs in a folder, those of one method if it is given."""
    found = []
    for path in sorted(place.iterdir()):
        named = method is None or path.name.startswith(method)
        if named and (path / CONFIG).is_file() and (path / RESULT).is_file():
            try:
                run = read_run(path)
            except (ValueError, OSError):
                if method is None:
                    raise
                continue  # damage to a run that is only compared with is not the subject
            found += [run] if method is None or run.config["method"] == method else []
    return found


def _is_ncm(run: RunFiles) -> bool:
    return run.config["method"] == NCM


def _of_runs(place: Path, kind: str, runs: tuple[RunFiles, ...], rivals: tuple[RunFiles, ...]) -> Subject:
    return Subject(place, kind, runs, rivals, tuple(map(_of_run, runs)), _images_of(runs))


def _of_run(run: RunFiles) -> Learnt:
    stored = [run.result["footprint"][name]["bytes"] for name in ("parameters_stored", "statistics_stored")]
    stored.append(run.result["footprint"]["samples_stored"]["bytes"])
    classes = tuple(name for task in run.result["task_classes"] for name in task)
    counts = None if run.presence is None else dict(zip(classes, map(sum, run.presence), strict=True))
    config = run.config
    return Learnt(
        run.folder, config["options"], config["backbone"], config.get("preprocessing"), sum(stored), classes, counts
    )


def _of_meta(name: str, meta: Mapping[str, Any]) -> Learnt:
    stored, counted = meta.get("footprint"), (meta.get("seen") or {}).get("per_class")
    size = None if stored is None else sum(part["bytes"] for kind, part in stored.items() if kind.endswith("_stored"))
    classes = tuple(map(str, meta["classes"]))
    counts = None if counted is None else dict(zip(classes, counted, strict=True))
    return Learnt(
        f"{meta['method']} in {name}",
        meta["options"],
        meta["backbone"],
        meta["preprocessing"],
        size,
        classes,
        counts,
        meta["state"]["method"],
    )


def _images_of(runs: tuple[RunFiles, ...]) -> Dataset | None:
    """The folder of images that all runs were on, where it is still there."""
    data = {repr(sorted(run.config["dataset"].items())): run.config["dataset"] for run in runs}
    if len(data) != 1:
        return None
    [known] = data.values()
    place: Any = dict(known).get("data")
    if known["name"] != "folder" or place is None or not Path(place).is_dir():
        return None
    images = folder(place, **known["options"])
    limit = known.get("limit_per_class")
    return images if limit is None else images.limited(limit)
