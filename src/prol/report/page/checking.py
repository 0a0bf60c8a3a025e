"""Whether a page can say everything about a run, so that a strange file harms nothing but its own run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import isfinite, isnan
from typing import Any

from prol.report.comparison import KEPT, RunFiles
from prol.report.page.found import Found, ReadRun
from prol.report.page.parts import best_line, parts_of
from prol.report.page.sections import sections_of
from prol.report.page.table import as_csv, as_html, as_latex
from prol.report.picture import short

MOST = 2**53
"""What is more cannot be drawn; no count of images or bytes comes near."""
_LONGEST_REASON, _ROUNDED = 160, 1e-6


def require_whole(run: ReadRun) -> None:
    """Refuses what cannot be joined with other runs, then says all that a page would about this run alone."""
    try:
        _require_joinable(run.files)
        _require_drawable(run.files)
        _require_fitting(run.files)
        _say_everything(run)
    except Exception as error:  # strange files fail in strange ways, and each is only the end of its own run
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        reason = short(" ".join(what.split()), _LONGEST_REASON)
        raise ValueError(f"its files are damaged or of another version of prol ({reason})") from error


def _require_joinable(files: RunFiles) -> None:
    """What stands beside the same of other runs, or is counted together with it."""
    config = files.config
    _require(type(config["seed"]) is int, "seed is not a whole number")
    _require(isinstance(config["method"], str) and config["method"], "method is not a name")
    _require(isinstance(config["options"], dict), "options are not by their names")
    for name, words in (("versions", config["versions"].values()), ("hardware", files.hardware)):
        _require(all(isinstance(word, str) for word in words), f"{name} are not words")
    _require(isinstance((files.timing or {}).get("hardware", []), list), "hardware is not a list")
    # An option may be without bound, but not something that is unlike itself.
    _require(not any(map(isnan, _numbers(config["options"]))), "an option is not a number")
    settings = {name: value for name, value in config.items() if name != "options"}
    for name, content in (("config.json", settings), ("result.json", files.result), ("timing.json", files.timing)):
        _require(all(map(isfinite, _numbers(content))), f"{name} holds something that is not a finite number")


def _require_drawable(files: RunFiles) -> None:
    """Numbers within the axes of pictures: these are drawn only when all runs are known."""
    result, metrics = files.result, files.result["metrics"]
    a_auc = result["anytime"]["a_auc"]
    accuracies = [metrics["faa"], metrics["caa"], *([] if a_auc is None else [a_auc])]
    accuracies += [*metrics["average_accuracy"], *chain(*result["accuracy_matrix"])]
    _require_between(accuracies, 0, 100, "an accuracy is")
    _require_between([metrics["forgetting"], *metrics["forgetting_history"]], -MOST, MOST, "forgetting is")
    kept = [result["footprint"][kind][unit] for kind in ("trained_now", *KEPT) for unit in ("count", "bytes")]
    _require_between(kept, 0, MOST, "what is kept is")
    _require(all(isinstance(amount, int) for amount in kept), "what is kept is not counted in whole numbers")
    _require_between(list(_numbers([result.get("points"), files.timing])), -MOST, MOST, "a count or a time is")


def _require_fitting(files: RunFiles) -> None:
    """As many of everything as there are tasks: the same as in other runs on the stream."""
    matrix, metrics, tasks = files.result["accuracy_matrix"], files.result["metrics"], files.config["protocol"]["tasks"]
    lengths = {len(matrix), len(files.result["task_classes"]), len(files.result["test_sizes"]), *map(len, matrix)}
    lengths |= {len(metrics[name]) for name in ("average_accuracy", "forgetting_history")}
    _require(lengths == {tasks} and tasks > 0, "its tables do not fit together")


def _say_everything(run: ReadRun) -> None:
    (section,), _ = sections_of(Found([run], []))
    said = [best_line(section), section.headline]
    for part in parts_of(section):
        said += part.words
        said += [picture.words for picture in (*part.pictures, *part.folded_pictures)]
        said += [form(table) for table in (*part.tables, *part.folded_tables) for form in (as_html, as_csv, as_latex)]
    "".join(said).encode("utf-8")


def _numbers(value: Any) -> Iterator[float]:
    """Every number in a file's content, at any depth."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _numbers(inner)
    elif _is_number(value):
        yield value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_between(values: Sequence[float], low: float, high: float, what: str) -> None:
    for value in values:
        _require(_is_number(value), f"{what} {value!r}, not a number")
        _require(low - _ROUNDED <= value <= high + _ROUNDED, f"{what} {value}, not from {low} to {high}")


def _require(met: object, otherwise: str) -> None:
    if not met:
        raise ValueError(otherwise)
