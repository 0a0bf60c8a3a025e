"""A run with strange files beside a good one: the report is written, and has or names both."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from prol.report.page import Found, Section, find_runs, page_of, sections_of
from prol.report.page.parts import parts_of
from report.run_folders import RESULTS, write_run

GOOD, BAD = (RESULTS / "digits" / f"ncm-seed{seed}" for seed in (1, 0))
FILES = ("config.json", "result.json", "timing.json")
STRANGE = (None, "\ud800", -1, math.nan, 10**30, [], {"x": [True]})


def beside_a_good_one(folder: Path) -> Path:
    shutil.copytree(GOOD, folder / "good")
    shutil.copytree(BAD, folder / "bad")
    return folder / "bad"


def report(folder: Path) -> tuple[str, Found]:
    found = find_runs([folder])
    sections, doubles = sections_of(found)
    assert doubles == []
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
        ("result", put("metrics", "faa", value=math.nan), "result.json holds something that is not a finite number"),
        ("result", put("metrics", "caa", value="90"), "an accuracy is '90', not a number"),
        ("result", put("metrics", "faa", value=250.0), "an accuracy is 250.0, not from 0 to 100"),
        ("result", put("accuracy_matrix", 0, 0, value=10**30), "an accuracy is 1000"),
        ("result", without("footprint", "trained_now"), "no 'trained_now'"),
        ("result", put("footprint", "samples_stored", "bytes", value=-5), "what is kept is -5"),
        ("result", put("points", value=7), "damaged"),
        ("result", put("points", value=[[1, 2, "3", 4]]), "damaged"),
        ("result", put("test_sizes", value=["a", "b", "c", "d", "e"]), "damaged"),
        ("result", put("task_classes", value=[["0"], ["1"]]), "its tables do not fit together"),
        ("config", without("versions"), "no 'versions'"),
        ("config", put("versions", "prol", value=1), "versions are not words"),
        ("config", without("backbone", "sha256"), "no 'sha256'"),
        ("config", without("preprocessing", "size"), "no 'size'"),
        ("config", put("options", value=[1, 2]), "options are not by their names"),
        ("config", put("seed", value="0"), "seed is not a whole number"),
        ("config", put("seed", value=True), "seed is not a whole number"),
        ("config", put("method", value=["ncm"]), "method is not a name"),
        ("config", put("protocol", "tasks", value=4), "its tables do not fit together"),
        ("config", put("options", "ridge", value=[math.nan]), "an option is not a number"),
        ("config", put("seconds", value=[math.inf]), "config.json holds something that is not a finite number"),
        ("timing", without("tasks", 0, "train_images"), "no 'train_images'"),
        ("timing", put("hardware", value=5), "damaged"),
        ("timing", put("hardware", value="NVIDIA H200"), "hardware is not a list"),
        ("timing", put("hardware", value=["NVIDIA H200", 5]), "hardware are not words"),
        ("timing", put("train_images_per_second", value="fast"), "damaged"),
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
    assert [run.place.name for run in found.runs] == ["good"]
    assert [one.run for one in found.left_out] == [str(bad)]
    assert found.left_out[0].reason.startswith("its files are damaged or of another version of prol (")
    assert reason in found.left_out[0].reason


def places(content: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key at any depth; of a list only the first, for the others are alike."""
    keys = list(content) if isinstance(content, dict) else [0] if isinstance(content, list) and content else []
    for key in keys:
        yield (*above, key)
        yield from places(content[key], (*above, key))


def changed(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The content without each of its keys, with other values there, and with something more beside it."""
    for path in places(content):
        changes = [without(*path), *(put(*path, value=value) for value in STRANGE)]
        if isinstance(path[-1], str):
            changes.append(put(*path[:-1], f"{path[-1]}, another", value={"count": 1, "bytes": 1}))
        for change in changes:
            copy = json.loads(json.dumps(content))
            change(copy)
            yield copy


def drawn_words(sections: Sequence[Section]) -> str:
    """Drawing is slow: where the numbers are the same, so are the pictures. Settings are not drawn."""
    parts = [part for section in sections for part in parts_of(section) if part.key != "settings"]
    return str([row[1:] for part in parts for table in (*part.tables, *part.folded_tables) for row in table.rows])


@pytest.mark.parametrize("file", FILES)
def test_whatever_key_is_missing_or_strange_the_report_has_or_names_the_run(tmp_path: Path, file: str) -> None:
    bad = beside_a_good_one(tmp_path)
    drawn: set[str] = set()
    for content in changed(json.loads((bad / file).read_text())):
        (bad / file).write_text(json.dumps(content))
        found = find_runs([tmp_path])
        sections, doubles = sections_of(found)
        assert doubles == []
        told = {run.place for section in sections for runs in section.runs_of.values() for run in runs}
        told |= {Path(one.run) for one in found.left_out}
        assert told == {bad, tmp_path / "good"}
        words = drawn_words(sections)
        if found.left_out == [] and words not in drawn:
            drawn.add(words)
            page_of(sections, found.left_out).encode("utf-8")
    assert drawn


def test_an_option_without_bound_is_nothing_strange(tmp_path: Path) -> None:
    write_run(tmp_path / "finetune-seed0", method="finetune", options={"clip": math.inf})
    assert find_runs([tmp_path]).left_out == []


def test_a_strange_stream_file_is_done_without(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    content = {
        "task_starts": [0, 3, 6, 9, 12],
        "classes": [str(number) for number in range(10)],
        "presence": ["1 2"] * 10,
    }
    seen = 0
    for strange in (
        content,
        *changed(content),
        content | {"presence": ["0 0"] * 10},
        content | {"presence": [""] * 10},
    ):
        (bad / "stream.json").write_text(json.dumps(strange))
        found = find_runs([tmp_path])
        assert len(found.runs) == 2
        presence = next(run.presence for run in found.runs if run.place == bad)
        if presence is not None:
            seen += 1
            sections, _ = sections_of(found)
            page_of(sections, [])
    assert seen


def test_a_file_that_is_no_text_or_too_deep_harms_only_its_run(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    for inside in (b"\xff\xfe", b"[" * 100_000, b"", b"5"):
        (bad / "result.json").write_bytes(inside)
        assert [one.reason for one in find_runs([tmp_path]).left_out] == ["result.json is damaged"]


def test_the_page_names_what_is_strange(tmp_path: Path) -> None:
    bad = beside_a_good_one(tmp_path)
    content = json.loads((bad / "config.json").read_text())
    (bad / "config.json").write_text(json.dumps(content | {"seed": "\u202eseven"}))
    page, found = report(tmp_path)
    assert len(found.runs) == 1
    assert "Left out" in page
    assert "seed is not a whole number" in page


def test_words_of_strangers_in_notes_and_hardware_are_made_printable(tmp_path: Path) -> None:
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
