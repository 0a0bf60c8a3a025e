"""Where a report searches for runs, and what it takes from the folder above them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from prol.report.page import find_runs, sections_of
from report.run_folders import change, write_run


def test_links_to_runs_are_followed_and_no_link_widens_the_search(tmp_path: Path) -> None:
    run = write_run(tmp_path / "elsewhere" / "ncm-seed0")
    write_run(tmp_path / "elsewhere" / "many" / "ncm-seed1", 1)
    folder = tmp_path / "given"
    write_run(folder / "inside" / "ncm-seed2", 2)
    (folder / "one").symlink_to(run)
    (folder / "one-again").symlink_to(run)
    (folder / "many").symlink_to(tmp_path / "elsewhere" / "many")
    (folder / "everything").symlink_to("/")
    (folder / "again").symlink_to(folder)
    (folder / "inside" / "up").symlink_to(folder)
    (folder / "link-inside").symlink_to(folder / "inside")
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "nowhere").symlink_to(folder / "missing")
    found = find_runs([folder])
    assert sorted(run.config["seed"] for run in found.runs) == [0, 2]
    assert {(Path(one.run).name, one.reason) for one in found.left_out} == {
        ("everything", "it is a link to another folder: give / to search it"),
        ("many", f"it is a link to another folder: give {tmp_path / 'elsewhere' / 'many'} to search it"),
    }


def test_a_given_link_is_followed_and_runs_in_two_given_folders_count_once(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "ncm-seed0")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    found = find_runs([tmp_path / "link", tmp_path / "runs"])
    assert [run.config["seed"] for run in found.runs] == [0]
    assert found.left_out == []


def test_a_run_whose_file_is_a_broken_link_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-seed0")
    broken = tmp_path / "ncm-seed1"
    broken.mkdir()
    (broken / "config.json").symlink_to(broken / "config.json")
    found = find_runs([tmp_path])
    assert [(one.run, one.reason.partition(",")[0]) for one in found.left_out] == [
        (str(broken), "it has no config.json")
    ]


def test_a_folder_that_cannot_be_searched_is_named_and_the_rest_is_found(tmp_path: Path) -> None:
    write_run(tmp_path / "a-seed0")
    write_run(tmp_path / "z-seed1", 1)
    # So deep that its path is longer than the system takes, which holds for every user.
    inside = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=inside)
        deeper = os.open("d" * 250, os.O_RDONLY, dir_fd=inside)
        os.close(inside)
        inside = deeper
    os.close(inside)
    found = find_runs([tmp_path])
    assert [run.config["seed"] for run in found.runs] == [0, 1]
    assert [one.reason for one in found.left_out] == ["it cannot be searched: File name too long"]


def test_a_folder_without_permission_is_named_and_the_rest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "a-seed0")
    (tmp_path / "closed").mkdir()
    write_run(tmp_path / "z-seed1", 1)
    listed = Path.iterdir

    def iterdir(path: Path) -> object:
        if path.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    found = find_runs([tmp_path])
    assert [run.config["seed"] for run in found.runs] == [0, 1]
    assert [(one.run, one.reason) for one in found.left_out] == [
        (str(tmp_path / "closed"), "it cannot be searched: Permission denied")
    ]


@pytest.mark.parametrize("summary", ["comparison.json", "sweep.json"])
def test_runs_beside_others_are_known_from_the_file_above(tmp_path: Path, summary: str) -> None:
    write_run(tmp_path / "ncm-seed0")
    write_run(tmp_path / "slda-seed0", method="slda")
    (tmp_path / summary).write_text(json.dumps({"side_by_side": {"ncm-seed0": True, "slda-seed0": False}}))
    sections, _ = sections_of(find_runs([tmp_path]))
    assert {row.name: row.side_by_side for row in sections[0].rows} == {"ncm": True, "slda": False}


def test_what_a_run_records_counts_more_than_the_file_above(tmp_path: Path) -> None:
    for seed, recorded in enumerate((True, False)):
        change(write_run(tmp_path / f"ncm-seed{seed}", seed) / "config.json", side_by_side=recorded)
    (tmp_path / "comparison.json").write_text(json.dumps({"side_by_side": {"ncm-seed1": True}}))
    assert [run.side_by_side for run in find_runs([tmp_path]).runs] == [True, False]


@pytest.mark.parametrize("inside", ["{", "[]", "{}", '{"side_by_side": ["ncm-seed0"]}'])
def test_a_strange_file_above_says_nothing(tmp_path: Path, inside: str) -> None:
    write_run(tmp_path / "ncm-seed0")
    (tmp_path / "comparison.json").write_text(inside)
    assert [run.side_by_side for run in find_runs([tmp_path]).runs] == [False]
    (tmp_path / "sweep.json").write_text(json.dumps({"side_by_side": {"ncm-seed0": True}}))
    assert [run.side_by_side for run in find_runs([tmp_path]).runs] == [True]
