"""The files of a run as they are on disk: each declared once, with its own keys, and checked once while reading.

Keys that are not declared here are ignored, so that files of later versions can be read as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict, cast

from prol.files import read_text
from prol.options import spell_method
from prol.typed_json import LARGEST, Count, DamagedFile, read_file

Content = Mapping[str, Any]

CONFIG, RESULT, TIMING, STREAM = "config.json", "result.json", "timing.json", "stream.json"
STORED = ("parameters_stored", "statistics_stored", "samples_stored")
"""The kinds of state that a learner stores besides the frozen backbone."""

Percent = Annotated[float, (0, 100)]


class Backbone(TypedDict):
    name: str
    sha256: str
    from_scratch: NotRequired[bool]


class Preprocessing(TypedDict):
    size: int
    crop_pct: float
    interpolation: str
    mean: list[float]
    std: list[float]


class Dataset(TypedDict):
    name: str
    options: dict[str, Any]
    train_images: Count
    test_images: Count
    development: NotRequired[bool]
    limit_per_class: NotRequired[int | None]
    classes: Count
    labels_sha256: NotRequired[str | None]
    licence: NotRequired[str | None]
    notes: NotRequired[list[str] | None]


class Protocol(TypedDict):
    name: str
    tasks: Annotated[int, (1, LARGEST)]
    chunk: int
    class_order: str
    boundaries: bool
    announce: bool
    options: dict[str, Any]


class Measures(TypedDict):
    points: int


class Versions(TypedDict):
    prol: str


class Clock(TypedDict):
    rate: NotRequired[float | None]


class Config(TypedDict):
    """`config.json`: what was run."""

    format: int
    method: str
    options: dict[str, Any]
    options_given: NotRequired[dict[str, Any]]
    method_file: NotRequired[str]
    method_sha256: NotRequired[str]
    seed: int
    backbone: Backbone
    preprocessing: NotRequired[Preprocessing | None]
    precision: str
    device: str
    dataset: Dataset
    protocol: Protocol
    measures: Measures
    clock: Clock | None
    versions: Versions
    threads: int
    workers: int
    checkpoint_every: int | None
    checkpoint_share: NotRequired[float]
    side_by_side: NotRequired[bool]
    load_start: NotRequired[float | None]
    processors: NotRequired[Count | None]


class Metrics(TypedDict):
    faa: Percent
    caa: Percent
    faa_task_mean: Percent
    caa_task_mean: Percent
    forgetting: float
    forgetting_paper: float
    bwt: float
    average_accuracy: list[Percent]
    average_accuracy_task_mean: list[Percent]
    forgetting_history: list[float]


class Anytime(TypedDict):
    a_auc: Percent | None
    prequential: Percent | None
    learning_curve_area: Percent | None
    calibration_error: Percent | None


class Amount(TypedDict):
    count: Count
    bytes: Count


class Footprint(TypedDict):
    trained_now: Amount
    parameters_stored: Amount
    statistics_stored: Amount
    samples_stored: Amount


class Given(TypedDict):
    """The information given to the learner besides images and labels."""

    task_boundaries: bool
    classes_of_next_task: bool
    task_identity_in_training: NotRequired[bool | None]
    task_identity_at_test: NotRequired[bool | None]
    number_of_classes: NotRequired[bool | None]
    passes_over_the_data: NotRequired[int | None]
    tasks_found_by_rule: NotRequired[bool | None]
    samples_stored: NotRequired[int | None]
    sample_bytes_stored: NotRequired[int | None]
    weights: str
    weights_sha256: str
    preprocessing: Preprocessing


class Skipped(TypedDict):
    train: Count
    test: Count


class OnClock(TypedDict):
    rate: float
    keep: int
    missed_chunks: Count
    missed_share: float
    mean_lag: float
    most_lag: float


class Result(TypedDict):
    """`result.json`: what was measured. `accuracy_matrix[i][t]` is the accuracy on task i after task t.

    `points` holds `[images, classes, correct, total]` for each point of the stream.
    """

    accuracy_matrix: list[list[Percent]]
    test_sizes: list[Count]
    task_classes: list[list[str]]
    metrics: Metrics
    anytime: Anytime
    footprint: Footprint
    told: Given
    class_accuracy: dict[str, Percent]
    points: NotRequired[list[list[Count]] | None]
    skipped: Skipped
    clock: OnClock | None


class TaskTiming(TypedDict):
    train_images: Count
    train_seconds: float
    test_seconds: float


class Timing(TypedDict):
    """`timing.json`: times and speeds; `hardware` is what they were measured on."""

    train_images_per_second: float
    train_seconds: float
    test_images_per_second: NotRequired[float | None]
    test_seconds: float
    test_features_reused: bool
    hardware: NotRequired[list[str]]
    tasks: list[TaskTiming]
    load_end: NotRequired[float | None]


class Stream(TypedDict):
    """`stream.json`: when each class came. `presence` holds one line of counts for each class."""

    task_starts: list[Count]
    classes: list[str]
    presence: list[str]


@dataclass(frozen=True)
class RunFiles:
    """What the files of one finished run hold; `folder` is its name, `METHOD[-OPTIONS]-seedN`."""

    folder: str
    config: Config
    result: Result
    timing: Timing | None
    side_by_side: bool = False
    """Whether other runs were running at the same time, so that its speed says little."""
    label: str | None = None
    """Its name in a table where the folder's name is unsuitable."""
    path: Path = Path()
    presence: tuple[tuple[int, ...], ...] | None = None
    """Images of each class, by task, in equal stretches of the stream, where the run recorded them."""
    task_starts: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The method with its options, as on the command line."""
        known = self.name_as_given if self.label is None else self.label
        if known is not None:
            return known
        spelt, method = self.folder.removesuffix(f"-seed{self.config['seed']}"), self.config["method"]
        return f"{method}:{spelt.removeprefix(f'{method}-')}" if spelt.startswith(f"{method}-") else spelt

    @property
    def name_as_given(self) -> str | None:
        """The method with the options that were given; None for runs of versions that did not record them."""
        method, given = self.config["method"], self.config.get("options_given")
        return None if given is None else spell_method(method, given)

    @property
    def metrics(self) -> Content:
        """The measures of the result, for readers that choose one by a variable."""
        return self.result["metrics"]

    @property
    def hardware(self) -> list[str]:
        """What it was timed on; several where it was resumed elsewhere, none where older files do not say."""
        return [] if self.timing is None else self.timing.get("hardware", [])


def read_run(path: str | Path) -> RunFiles:
    """Reads a finished run; after this every declared key is there and holds what it must.

    Raises:
        DamagedFile: if a file is not what it must be.
        OSError: if config.json or result.json cannot be read; timing.json and stream.json may be missing.

    >>> read_run("results/digits/ncm-seed0").result["metrics"]["faa"]
    82.45125348189416
    """
    folder = Path(path)
    config = cast(Config, read_file(folder / CONFIG, Config))
    result = cast(Result, read_file(folder / RESULT, Result))
    timing = cast(Timing, read_file(folder / TIMING, Timing)) if (folder / TIMING).is_file() else None
    if not config["method"]:
        raise DamagedFile(folder / CONFIG, "method is empty")
    matrix, metrics = result["accuracy_matrix"], result["metrics"]
    by_task: list[list[Any]] = [matrix, *matrix, result["task_classes"], result["test_sizes"]]
    by_task += [metrics["average_accuracy"], metrics["average_accuracy_task_mean"], metrics["forgetting_history"]]
    if {len(values) for values in by_task} != {config["protocol"]["tasks"]}:
        raise DamagedFile(folder / RESULT, f"not every list is of {config['protocol']['tasks']} tasks")
    if any(len(point) != 4 for point in result.get("points") or []):
        raise DamagedFile(folder / RESULT, "points are not all of four counts")
    classes = [name for task in result["task_classes"] for name in task]
    presence, starts = _read_presence(folder / STREAM, classes)
    return RunFiles(
        folder=folder.resolve().name,
        config=config,
        result=result,
        timing=timing,
        side_by_side=config["side_by_side"] if "side_by_side" in config else _ran_beside(folder.resolve()),
        path=folder,
        presence=presence,
        task_starts=starts,
    )


def _ran_beside(place: Path) -> bool:
    """Whether the summary of a comparison or sweep above says that others ran then, for runs that do not record it."""
    for name in ("comparison.json", "sweep.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            if json.loads(read_text(place.parent / name))["side_by_side"].get(place.name, False):
                return True
    return False


def _read_presence(file: Path, classes: list[str]) -> tuple[tuple[tuple[int, ...], ...] | None, tuple[int, ...]]:
    """When each class came; None without a file that fits the run."""
    try:
        content = read_file(file, Stream)
        counts = tuple(tuple(map(int, line.split())) for line in content["presence"])
    except (OSError, ValueError):
        return None, ()
    every = [count for row in counts for count in row]
    fits = content["classes"] == classes and len(counts) == len(classes) and len(set(map(len, counts))) == 1
    if not (fits and every and min(every) >= 0 and 0 < sum(every) <= LARGEST and content["task_starts"]):
        return None, ()
    return counts, tuple(content["task_starts"])
