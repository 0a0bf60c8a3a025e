from __future__ import annotations

from pathlib import Path

import pytest

from prol.runs.grid import PAPER_RATES, Request, points_of, read_sweep_file

WHOLE = """
methods = ["prol:blocks=2", "ncm"]
datasets = ["digits", "glyphs"]
seeds = [4, 5]

[grid]
lr = "paper"
prol.length = [2, 4]
chunk = 5

[settings]
development = true
limit-per-class = 3
points = 2

[data]
digits = "here"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "sweep.toml"
    file.write_text(text)
    return file


def test_a_file_says_what_flags_say(tmp_path: Path) -> None:
    asked = read_sweep_file(written(tmp_path, WHOLE))
    assert asked == Request(
        methods=["prol:blocks=2", "ncm"],
        datasets=["digits", "glyphs"],
        seeds=(4, 5),
        grid={"lr": list(PAPER_RATES), "prol.length": [2, 4], "chunk": [5]},
        settings={"development": True, "limit_per_class": 3, "points": 2},
        data={"digits": "here"},
    )
    assert len(points_of(asked)) == 2 * 2 * (5 * 2 + 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("method = ['ncm']", "unknown name 'method'; did you mean 'methods'"),
        ("methods = 'ncm'", "methods must be a list, got 'ncm'"),
        ("grid = 3", "grid must be a table, got 3"),
        ("seeds = [0.5]", "seeds must be whole numbers, got 0.5"),
        ("[settings]\nchunks = 3", "settings: unknown name 'chunks'; did you mean 'chunk'"),
        ("[settings]\nchunk = 'many'", "option chunk='many' is not valid"),
        ("[settings]\npoints = -1", "points must be 0 or more"),
        ("[settings]\npoints = true", "points must be 0 or more"),
        ("[grid]\nlr = []", "grid.lr holds no value"),
        ("[grid", "is not TOML"),
        ("methods = " + "[" * 10_000, "nested too deeply"),
        ("[grid]\n" + "a." * 10_000 + "a = 3", "nested too deeply"),
        ("[settings]\n" + "chunk." * 10_000 + "a = 3", "nested too deeply"),
    ],
)
def test_mistakes_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_sweep_file(written(tmp_path, text))


def test_a_protocol_that_is_no_name_is_refused(tmp_path: Path) -> None:
    asked = read_sweep_file(written(tmp_path, "methods = ['ncm']\ndatasets = ['digits']\n[grid]\nprotocol = [[]]"))
    with pytest.raises(ValueError, match=r"protocol must be a name, got \[\]"):
        points_of(asked)


def test_the_second_run_of_a_plan_is_refused_before_the_others_are_planned() -> None:
    request = Request(["prol"], ["digits"], grid={"prol.length": [2, 2, *range(3, 10**6)], "chunk": [5] * 10**6})
    with pytest.raises(ValueError, match="is there twice"):
        points_of(request)


def test_a_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"sweep\.toml does not exist"):
        read_sweep_file(tmp_path / "sweep.toml")
