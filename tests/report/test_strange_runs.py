"""A run with strange files beside a good one: the report is written, and has or names both."""

from __future__ import annotations

import json
import math
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prol.report.page import FoundRuns, find_runs, page_of, sections_of
from prol.report.page.document import parts_of
from prol.runfiles import read_run
from prol.typed_json import DamagedFile
from report.run_folders import RESULTS, write_run

GOOD, BAD = (RESULTS / "digits" / f"ncm-seed{seed}" for seed in (1, 0))
FILES = ("config.json", "result.json", "timing.json")
STRANGE = (None, "\ud800", -1, math.nan, 10**30, [], {"x": [True]}, math.inf)
REASON = "; the file is damaged or was written by another version of prol"


def beside_a_good_one(folder: Path) -> Path:
    shutil.copytree(GOOD, folder / "good")
    shutil.copytree(BAD, folder / "bad")
    return folder / "bad"


def report(folder: Path) -> tuple[str, FoundRuns]:
    found = find_runs([folder])
    sections, duplicates = sections_of(found)
    assert duplicates == []
    return page_of(sections, found.left_out), found


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        inner: Any = content
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


def without(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        inner: Any = content
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]

    return change


@pytest.mark.parametrize(
    ("file", "change", "reason"),
    [
        ("result", put("metrics", "faa", value=math.nan), "it cannot be read as JSON (it holds NaN"),
        ("result", put("metrics", "faa", value=math.inf), "metrics.faa is inf, not from 0 to 100"),
        ("result", put("metrics", "caa", value="90"), "metrics.caa is '90', not a number"),
        ("result", put("metrics", "faa", value=250.0), "metrics.faa is 250.0, not from 0 to 100"),
        ("result", put("accuracy_matrix", 0, 0, value=10**30), "accuracy_matrix[0][0] is 1000"),
        ("result", without("footprint", "trained_now"), "footprint.trained_now is missing"),
        ("result", put("footprint", "samples_stored", "bytes", value=-5), "footprint.samples_stored.bytes is -5, not"),
        ("result", put("points", value=7), "points is 7, not a list"),
        ("result", put("points", value=[[1, 2, "3", 4]]), "points[0][2] is '3', not a whole number"),
        ("result", put("points", value=[[1, 2, 3]]), "points are not all of four counts"),
        ("result", put("test_sizes", value=["a", "b", "c", "d", "e"]), "test_sizes[0] is 'a', not a whole number"),
        ("result", put("task_classes", value=[["0"], ["1"]]), "not every list is of 5 tasks"),
        ("result", put("class_accuracy", "x", value=[]), "class_accuracy.x is [], not a number"),
        ("config", without("versions"), "versions is missing"),
        ("config", put("versions", "prol", value=1), "versions.prol is 1, not text"),
        ("config", without("backbone", "sha256"), "backbone.sha256 is missing"),
        ("config", without("preprocessing", "size"), "preprocessing.size is missing"),
        ("config", put("options", value=[1, 2]), "options is [1, 2], not {}"),
        ("config", put("seed", value="0"), "seed is '0', not a whole number"),
        ("config", put("seed", value=True), "seed is True, not a whole number"),
        ("config", put("method", value=["ncm"]), "method is ['ncm'], not text"),
        ("config", put("method", value=""), "method is empty"),
        ("config", put("options", "ridge", value=[math.nan]), "it cannot be read as JSON (it holds NaN"),
        ("config", put("dataset", "deep", value=json.loads("[" * 30 + "]" * 30)), "nested deeper than 20 levels"),
        ("timing", without("tasks", 0, "train_images"), "tasks[0].train_images is missing"),
        ("timing", put("hardware", value=5), "hardware is 5, not a list"),
        ("timing", put("hardware", value="NVIDIA H200"), "hardware is 'NVIDIA H200', not a list"),
        ("timing", put("hardware", value=["NVIDIA H200", 5]), "hardware[1] is 5, not text"),
        ("timing", put("train_images_per_second", value="fast"), "train_images_per_second is 'fast', not a number"),
    ],
)
def test_a_strange_run_is_left_out_with_the_reason_and_the_rest_is_reported(
    tmp_path: Path, file: str, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    bad = beside_a_good_one(tmp_path)
    content = json.loads((bad / f"{file}.json").read_text())
    change(content)
    (bad / f"{file}.json").write_text(json.dumps(content))
    found = find_runs([tmp_path])
    assert [run.path.name for run in found.runs] == ["good"]
    assert [one.run for one in found.left_out] == [str(bad)]
    assert found.left_out[0].reason.startswith(f"{file}.json: ")
    assert found.left_out[0].reason.endswith(REASON)
    assert reason in found.left_out[0].reason
    with pytest.raises(DamagedFile, match=f"{file}.json: "):
        read_run(bad)


def test_a_number_of_tasks_that_is_not_that_of_the_result_is_named(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    content = json.loads((bad / "config.json").read_text())
    put("protocol", "tasks", value=4)(content)
    (bad / "config.json").write_text(json.dumps(content))
    assert [one.reason for one in find_runs([tmp_path]).left_out] == [
        f"result.json: not every list is of 4 tasks{REASON}"
    ]


def places(content: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key at any depth; of a list, or by the name of classes, only the first, for the others are alike."""
    keys = list(content) if isinstance(content, dict) else [0] if isinstance(content, list) and content else []
    keys = keys[:1] if "class_accuracy" in above else keys
    for key in keys:
        yield (*above, key)
        yield from places(content[key], (*above, key))


def changes(content: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], list[Callable[[Any], None]]]]:
    """For each place in a content: without it, with other values there, and with something more beside it."""
    for path in places(content):
        each = [without(*path), *(put(*path, value=value) for value in STRANGE)]
        if isinstance(path[-1], str):
            each.append(put(*path[:-1], f"{path[-1]}, another", value={"count": 1, "bytes": 1}))
        yield path, each


def changed(content: dict[str, Any], *some: Callable[[Any], None]) -> dict[str, Any]:
    copy: dict[str, Any] = pickle.loads(pickle.dumps(content))
    for change in some:
        change(copy)
    return copy


def test_whatever_is_missing_or_strange_the_run_is_read_or_refused_and_what_is_read_is_reported(
    tmp_path: Path,
) -> None:
    bad, folder = beside_a_good_one(tmp_path / "one"), tmp_path / "all"
    shutil.copytree(GOOD, folder / "good")
    accepted: dict[str, dict[tuple[str | int, ...], list[Callable[[Any], None]]]] = {}
    for file in FILES:
        whole = json.loads((bad / file).read_text())
        accepted[file] = {}
        for path, each in changes(whole):
            for change in each:
                (bad / file).write_text(json.dumps(changed(whole, change)))
                try:
                    read_run(bad)
                except DamagedFile:
                    continue
                accepted[file].setdefault(path, []).append(change)
        (bad / file).write_text(json.dumps(whole))
    # Pages take time: each section reports one accepted change of every place in all files at once.
    for number in range(4):
        strange = shutil.copytree(BAD, folder / f"strange-{number}")
        for file, places_of in accepted.items():
            done: list[tuple[str | int, ...]] = []
            some = []
            for place, (path, each) in enumerate(places_of.items()):
                if not any(path[: len(above)] == above for above in done):
                    done.append(path)
                    some.append(each[(number + place) % len(each)])
            if file == "config.json":
                some.append(put("seed", value=number + 2))  # none is the double of another
            (strange / file).write_text(json.dumps(changed(json.loads((BAD / file).read_text()), *some)))
    page, found = report(folder)
    page.encode("utf-8")
    assert found.left_out == []
    assert len(found.runs) == 5
    for section in sections_of(found)[0]:
        for part in parts_of(section):
            for table in (*part.tables, *part.folded_tables):
                (table.csv() + table.latex()).encode("utf-8")


def test_an_option_without_bound_is_nothing_strange(tmp_path: Path) -> None:
    write_run(tmp_path / "finetune-seed0", method="finetune", options={"clip": math.inf})
    assert find_runs([tmp_path]).left_out == []


def test_an_infinite_number_where_nothing_is_declared_harms_nobody(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    content = json.loads((bad / "config.json").read_text())
    (bad / "config.json").write_text(json.dumps(content | {"seconds": [math.inf]}))
    assert len(report(tmp_path)[1].runs) == 2


def test_a_strange_stream_file_is_ignored(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    content = {
        "task_starts": [0, 3, 6, 9, 12],
        "classes": [str(number) for number in range(10)],
        "presence": ["1 2"] * 10,
    }
    others = [changed(content, change) for _, each in changes(content) for change in each]
    others += [content | {"presence": ["0 0"] * 10}, content | {"presence": [""] * 10}]
    read = []
    for strange in (content, *others):
        (bad / "stream.json").write_text(json.dumps(strange))
        run = read_run(bad)
        if run.presence is not None:
            assert run.presence == ((1, 2),) * 10
            read.append(run)
    assert len(read) < len(others)
    found = FoundRuns(
        [run for number, run in enumerate(read) if run.task_starts not in [r.task_starts for r in read[:number]]], []
    )
    assert len(found.runs) > 1
    for run in found.runs:
        sections, _ = sections_of(FoundRuns([run], []))
        stream = next(part for part in parts_of(sections[0]) if part.key == "stream")
        assert stream.plots[0].bytes("svg")


def test_a_file_that_is_no_text_or_too_deep_harms_only_its_run(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    for inside in (b"\xff\xfe", b"[" * 100_000, b"", b"5"):
        (bad / "result.json").write_bytes(inside)
        [left_out] = find_runs([tmp_path]).left_out
        assert left_out.reason.startswith("result.json: ")
        assert left_out.reason.endswith(REASON)
        assert len(left_out.reason) < 300


def test_the_page_names_what_is_strange(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    content = json.loads((bad / "config.json").read_text())
    (bad / "config.json").write_text(json.dumps(content | {"seed": "\u202eseven"}))
    page, found = report(tmp_path)
    assert len(found.runs) == 1
    assert "Left out" in page
    assert "not a whole number" in page


def test_text_from_untrusted_files_is_made_printable(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    config = json.loads((bad / "config.json").read_text())
    config["dataset"]["notes"] = ["a \ud800 note \u202e"]
    (bad / "config.json").write_text(json.dumps(config))
    timing = json.loads((bad / "timing.json").read_text())
    (bad / "timing.json").write_text(json.dumps(timing | {"hardware": ["a \u202e card"]}))
    page, found = report(tmp_path)
    assert found.left_out == []
    assert "\u202e" not in page
    assert "a \N{REPLACEMENT CHARACTER} card" in page
    page.encode("utf-8")
