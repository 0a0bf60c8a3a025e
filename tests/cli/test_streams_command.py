from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from prol import registry
from prol.cli.app import main

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def streams(capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls `prol streams` in this process: its exit code, output and complaints."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["streams", *arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def rows(out: str) -> list[list[str]]:
    """The lines of the table that begin with a task's number."""
    return [line.split() for line in out.splitlines() if re.match(r"\s*\d", line)]


def test_without_a_data_set_the_protocols_are_listed_with_their_options(streams: Command) -> None:
    code, out, err = streams()
    assert (code, err) == (0, "")
    for name in ("disjoint", "blurry", "iblurry", "siblurry", "gradual", "imbalanced"):
        assert re.search(rf"^\s*{name}\s", out, re.MULTILINE)
    assert "drop_surplus=false: true or false" in out
    assert "minor=10: a number" in out
    assert "shape=linear: one of linear, sigmoid" in out
    assert "labels" not in out


def test_a_protocol_that_cannot_be_loaded_is_reported_in_one_line(
    streams: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = f"protocol 'spiral' of package 'other' cannot be loaded: no module named {'other_' * 20}"
    monkeypatch.setattr(registry, "load_all", lambda _: ({}, [problem]))
    code, out, _ = streams()
    assert code == 0
    assert problem in out.splitlines()


def test_the_usual_stream_of_a_data_set_is_shown_task_by_task(streams: Command) -> None:
    code, out, err = streams("digits")
    assert (code, err) == (0, "")
    table = rows(out)
    assert [row[0] for row in table] == ["1", "2", "3", "4", "5"]
    assert sum(int(row[1]) for row in table) == 1438
    assert all(row[3:] == ["2", "2", "0.0"] for row in table)
    assert "disjoint stream of digits, seed 0" in out
    assert "Given to the learner: task boundaries: yes, classes of next task: yes." in out


def test_every_argument_reaches_the_stream(streams: Command) -> None:
    code, out, _ = streams(
        *("digits", "--protocol", "iblurry", "-P", "minor=50", "-P", "disjoint=0", "--limit-per-class", "20"),
        *("--tasks", "2", "--chunk", "7", "--seed", "3", "--class-order", "shuffled", "-D", "seed=1"),
    )
    assert code == 0
    assert [row[1:] for row in rows(out)] == [["100", "15", "5", "10", "50.0"]] * 2
    assert "seed 3" in out
    assert "task boundaries: no, classes of next task: no" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--boundaries"], ("yes", "yes")),
        (["--boundaries", "--no-announce"], ("yes", "no")),
        (["--announce"], ("yes", "yes")),
        (["--no-boundaries"], ("no", "no")),
        ([], ("no", "no")),
    ],
)
def test_what_is_told_can_be_asked_for(streams: Command, arguments: list[str], told: tuple[str, str]) -> None:
    _, out, _ = streams("digits", "--protocol", "gradual", *arguments)
    assert "task boundaries: {}, classes of next task: {}.".format(*told) in out


@pytest.mark.parametrize(("name", "begins"), [("stream.png", b"\x89PNG"), ("stream.svg", b"<?xml")])
def test_a_stream_is_drawn(streams: Command, tmp_path: Path, name: str, begins: bytes) -> None:
    code, out, _ = streams("digits", "--protocol", "blurry", "--limit-per-class", "3", "--plot", str(tmp_path / name))
    assert code == 0
    assert "Plot written to" in out
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digit"], "unknown dataset 'digit'; did you mean 'digits'?"),
        (["digits", "--protocol", "blury"], "unknown protocol 'blury'; did you mean 'blurry'?"),
        (["digits", "-P", "minor=5"], "unknown option 'minor'; valid options: drop_surplus"),
        (["digits", "-P", "tasks=5"], "'tasks' cannot be given here: it has its own setting"),
        (["digits", "-D", "data=here"], "'data' cannot be given here: it has its own setting"),
        (
            ["digits", "--protocol", "blurry", "-P", "minor=much"],
            "option minor='much' is not valid: it must be a number",
        ),
        (["digits", "--protocol", "blurry", "-P", "minor=101"], "minor must be a percentage from 0 to 100, got 101"),
        (["digits", "-P", "minor"], "write it as key=value"),
        (["digits", "--tasks", "11"], "tasks must be from 1 to the number of classes, 10, got 11"),
        (["digits", "--tasks", "0"], "tasks must be at least 1, got 0"),
        (["digits", "--class-order", "random"], "unknown class_order 'random'"),
        (["digits", "--no-boundaries", "--announce"], "announce=True needs boundaries=True"),
        (["digits", "--plot", "stream.jpg"], "must end in .png or .svg"),
        (["--plot", "stream.png"], "--plot draws the stream of a data set: name one"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_exit_code_2(streams: Command, arguments: list[str], message: str) -> None:
    code, _, err = streams(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
