"""What rows of a report are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prol.report.page import find_runs, page_of, sections_of
from report.run_folders import RESULTS, Page, change, write_run

COSINE, EUCLIDEAN = {"distance": "cosine", "augment": "none"}, {"distance": "euclidean", "augment": "none"}


def rows_of(folder: Path) -> dict[str, tuple[int, ...]]:
    sections, duplicates = sections_of(find_runs([folder]))
    assert duplicates == []
    return {row.name: row.seeds for section in sections for row in section.rows}


def test_a_row_is_called_by_its_method_whatever_its_folders_are_called(tmp_path: Path) -> None:
    for seed, name in enumerate(("mine-a", "mine-b")):
        write_run(tmp_path / name, seed, options=COSINE)
    assert rows_of(tmp_path) == {"ncm": (0, 1)}


def test_folders_of_a_reproduction_are_one_row_over_their_seeds(tmp_path: Path) -> None:
    for seed, code in enumerate(("cd0ebac2762a", "02c1d2d341f2")):
        write_run(tmp_path / f"ncm-digits-seed{seed}-{code}", seed, options=COSINE)
    assert rows_of(tmp_path) == {"ncm": (0, 1)}


def test_settings_of_the_stream_in_a_sweeps_folders_are_no_options(tmp_path: Path) -> None:
    for seed in range(2):
        for lr in (0.01, 0.1):
            settings = "-chunk=5,limit_per_class=2,tasks=2" if seed else ""
            write_run(
                tmp_path / f"prol-length=3,lr={lr}-digits{settings}-seed{seed}",
                seed,
                method="prol",
                options={"length": 3, "lr": lr},
            )
    assert rows_of(tmp_path) == {"prol:lr=0.01": (0, 1), "prol:lr=0.1": (0, 1)}


def test_options_that_a_comparisons_folder_spells_are_named_as_there(tmp_path: Path) -> None:
    given: dict[str, dict[str, Any]] = {
        "prol-seed0": {"lr": 0.05, "widths": [5, 2], "gate": True, "path": None},
        "prol-lr=1e-3,widths=7,2-seed0": {"lr": 0.001, "widths": [7, 2], "gate": True, "path": None},
        "prol-gate=False-seed0": {"lr": 0.05, "widths": [5, 2], "gate": False, "path": None},
        "prol-path=a_b-seed0": {"lr": 0.05, "widths": [5, 2], "gate": True, "path": "a/b"},
    }
    for name, options in given.items():
        write_run(tmp_path / name, method="prol", options=options)
    assert set(rows_of(tmp_path)) == {"prol", "prol:lr=1e-3,widths=7,2", "prol:gate=False", "prol:path=a_b"}


def test_options_that_a_run_records_as_given_are_named_whatever_its_folder_is_called(tmp_path: Path) -> None:
    options = {"lr": 0.05, "gate": True}
    for number, given in enumerate(({}, {"gate": False}, {"lr": 0.1, "gate": True})):
        run = write_run(tmp_path / f"prol-lr=9-seed{number}", number, method="prol", options=options | given)
        change(run / "config.json", options_given=given)
    assert set(rows_of(tmp_path)) == {"prol", "prol:gate=false", "prol:gate=true,lr=0.1"}


def test_other_runs_name_what_differs_from_most_rows_of_the_method(tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-seed0", options=COSINE)
    write_run(tmp_path / "ncm-digits-seed0-cd0ebac2762a", options=EUCLIDEAN)
    write_run(tmp_path / "ncm-digits-seed1-02c1d2d341f2", 1, options=EUCLIDEAN)
    write_run(tmp_path / "mine", options={**COSINE, "augment": "flip"})
    assert rows_of(tmp_path) == {"ncm": (0,), "ncm:distance=euclidean": (0, 1), "ncm:augment=flip": (0,)}


def test_where_no_value_is_usual_all_of_them_are_named(tmp_path: Path) -> None:
    write_run(tmp_path / "a", options=COSINE)
    write_run(tmp_path / "b", options=EUCLIDEAN)
    write_run(tmp_path / "c", method="slda", options={"shrink": 1})
    assert set(rows_of(tmp_path)) == {"ncm:distance=cosine", "ncm:distance=euclidean", "slda"}


def test_what_most_rows_of_a_method_have_is_not_named(tmp_path: Path) -> None:
    usual = {"ablation": "none", "length": 5, "lr": 0.05}
    for number, own in enumerate(({}, {"length": 3}, {"length": 7}, {"ablation": "keys", "length": 9})):
        write_run(tmp_path / f"mine-{number}", method="prol", options=usual | own)
    write_run(tmp_path / "mine-4", 1, method="prol", options=usual | {"length": 5, "ablation": "norms"})
    assert set(rows_of(tmp_path)) == {
        "prol",
        "prol:length=3",
        "prol:length=7",
        "prol:ablation=keys,length=9",
        "prol:ablation=norms",
    }


def test_a_folder_that_says_something_else_than_its_run_is_not_believed(tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-distance=cosine-seed0", options=EUCLIDEAN)
    write_run(tmp_path / "slda-seed0", options=COSINE)
    assert set(rows_of(tmp_path)) == {"ncm:distance=euclidean", "ncm:distance=cosine"}


def test_rows_that_options_do_not_tell_apart_say_what_else_does(tmp_path: Path) -> None:
    write_run(tmp_path / "one" / "ncm-seed0")
    write_run(tmp_path / "two" / "ncm-seed0", announce=False)
    assert set(rows_of(tmp_path)) == {"ncm (announce true)", "ncm (announce false)"}


def test_rows_that_words_do_not_tell_apart_say_their_folder(tmp_path: Path) -> None:
    long = [0.1] * 20
    for name, last in (("one", 1), ("two", 2), ("more/two", 3)):
        write_run(tmp_path / name, options={"weights": [*long, last]})
    names = set(rows_of(tmp_path))
    assert len(names) == 3
    alike = "ncm:weights=21 values (weights 21 values)"
    assert names == {f"{alike} (in one)", f"{alike} (in two)", f"{alike} (in two) (2)"}


def test_the_settings_name_the_method_of_each_row(tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-distance=cosine-seed0", options=COSINE)
    sections, _ = sections_of(find_runs([tmp_path]))
    table = Page(page_of(sections, [])).table("Method and options of each row")
    assert table[0] == ["row", "method", "options", "runs"]
    assert table[1][:3] == ["ncm:distance=cosine", "ncm", "distance=cosine, augment=none"]


def test_every_run_that_is_stored_here_is_called_by_its_method() -> None:
    sections, _ = sections_of(find_runs([RESULTS]))
    for section in sections:
        for row in section.rows:
            assert row.name.partition(":")[0].partition(" (")[0] == row.method
            assert "seed" not in row.name
            assert len(row.name) < 160
            configs = [json.loads((run.path / "config.json").read_text()) for run in section.runs_of[row.name]]
            assert all(config["options"] == row.options and config["method"] == row.method for config in configs)


def test_a_missing_option_is_not_the_same_as_one_that_is_none(tmp_path: Path) -> None:
    write_run(tmp_path / "a", options={"crop": None})
    change(write_run(tmp_path / "b", options={"crop": None}) / "config.json", options={})
    assert len(rows_of(tmp_path)) == 2
