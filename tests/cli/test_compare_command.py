from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prol.runs.plan import read_method
from runs.small_runs import environment


def few_digits(vit: str) -> tuple[str, ...]:
    return ("--backbone", vit, "--device", "cpu", "--tasks", "2", "--limit-per-class", "3", "--threads", "1")


def test_one_table_is_printed_best_first_and_printed_again_from_the_files(
    command, micro_vit: str, tmp_path: Path
) -> None:
    out, picture = tmp_path / "out", tmp_path / "lines.png"
    code, text, errors = command(
        *("compare", "ncm", "head_only:inter=0,intra=1", "digits", "--seeds", "0,1", "--out", str(out)),
        *("--points", "2", "--plot", str(picture), *few_digits(micro_vit)),
    )
    assert (code, errors) == (0, "")
    assert "ncm on digits: 2 tasks" in text
    assert "head_only-inter=0,intra=1-seed1 finished (4 of 4 runs)" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, again, errors = command("compare", "--table", "--out", str(out))
    assert (code, errors) == (0, "")
    assert again in text
    kept = tmp_path / "kept.svg"
    assert command("compare", "--table", "--out", str(out), "--plot-memory", str(kept)).code == 0
    assert all(words in kept.read_text() for words in ("ncm", "head_only:inter=0,intra=1", "stores no sample"))
    assert all(word in again for word in ("ncm", "inter=0 intra=1", "FAA", "A_AUC", "images/s", "boundaries", "none"))


def test_a_method_that_fails_is_told_at_the_end_with_exit_code_1(command, micro_vit: str, tmp_path: Path) -> None:
    code, text, errors = command(
        *("compare", "nmc", "ncm", "digits", "--seeds", "0", "--out", str(tmp_path), *few_digits(micro_vit))
    )
    assert code == 1
    assert errors.startswith("prol: nmc-seed0: unknown method 'nmc'; did you mean 'ncm'?")
    assert errors.count("\n") == 1
    assert "ncm-seed0 finished" in text


@pytest.mark.slow
def test_an_interrupted_comparison_leaves_no_process_and_goes_on(command, micro_vit: str, tmp_path: Path) -> None:
    arguments = ("compare", "ncm", "head_only", "digits", "--seeds", "0", "--out", str(tmp_path / "out"))
    arguments += (*few_digits(micro_vit), "--chunk", "1", "--checkpoint-every", "5")
    process = subprocess.Popen(
        [sys.executable, "-m", "prol", *arguments, "--jobs", "2"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever began the tests in the background has interrupts ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    first = process.stdout.readline()  # a run has begun
    assert "digits: 2 tasks" in first
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to all of them
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped: the same command resumes it" in rest
    assert errors == "prol: interrupted; `prol resume RUN` resumes an unfinished run\n"
    _require_no_process_left(process.pid)
    code, text, _ = command(*arguments)
    assert code == 0
    assert "finished (2 of 2 runs)" in text


def _require_no_process_left(group: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("a process outlived the comparison that began it")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare",), "give at least one method and, last, the data set"),
        (("compare", "digits"), "give at least one method and, last, the data set"),
        (("compare", "ncm", "digit"), "unknown dataset 'digit'; did you mean 'digits'?"),
        (("compare", "ncm", "digits", "--seeds", "0,x"), "--seeds '0,x' is not a list of whole numbers"),
        (("compare", "ncm", "digits", "--seeds", "1,1"), "give each seed once"),
        (("compare", "ncm", "ncm", "digits"), "ncm is there twice"),
        (("compare", "prol:lr", "digits"), "'lr' is not an option: write it as key=value"),
        (("compare", "prol", "lr=0.1", "digits"), "'lr=0.1' is not a method: write its options after a colon"),
        (("compare", "ncm", "digits", "--jobs", "0"), "jobs must be at least 1, got 0"),
        (("compare", "ncm", "digits", "--plot", "lines.doc"), "must end in .png or .svg"),
        (("compare", "ncm", "digits", "--plot-memory", "kept.doc"), "must end in .png or .svg"),
        (("compare", "--table"), "give --out DIR and nothing to run"),
        (("compare", "ncm", "digits", "--table", "--out", "x"), "give --out DIR and nothing to run"),
        (("compare", "--table", "--out", "nowhere"), "nowhere does not exist"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_exit_code_2(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text, errors = command(*arguments)
    assert (code, text, errors.count("\n")) == (2, "", 1)
    assert message in errors
    assert list(tmp_path.iterdir()) == []


def test_a_comma_belongs_to_a_value_unless_an_option_follows_it() -> None:
    assert read_method("a:x=1,2,3,y=4") == ("a", {"x": "1,2,3", "y": "4"})
    assert read_method("a") == ("a", {})
