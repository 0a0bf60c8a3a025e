from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

import prol
from prol.cli.app import app, main
from prol.cli.inspect import _options as listed_options
from prol.runs import RunFolder
from runs.small_runs import environment

ANSI = re.compile(r"\x1b\[")


@pytest.fixture
def run_folder(finished: Callable[[str], Path]) -> Path:
    return finished("ncm")


def test_the_version_is_printed(command) -> None:
    assert command("--version").out == f"prol {prol.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_the_verbs(command, arguments: tuple[str, ...]) -> None:
    outcome = command(*arguments)
    assert outcome.code == 0
    assert all(
        verb in outcome.out for verb in ("run", "resume", "show", "export", "predict", "params", "methods", "datasets")
    )


def test_methods_and_datasets_are_listed(command) -> None:
    assert all(name in command("methods").out for name in ("head_only", "ncm", "prol"))
    assert all(name in command("datasets").out for name in ("digits", "folder", "glyphs"))


def test_the_options_of_a_method_are_listed_with_their_defaults(command) -> None:
    lines = command("methods", "prol").out.splitlines()
    assert any(line.split()[:2] == ["threshold", "0.8"] for line in lines)
    [rate] = [line for line in lines if line.split()[:1] == ["lr"]]
    assert "a number of at least 0" in rate
    assert "Nominal learning rate" in rate


@pytest.mark.parametrize("method", prol.list_methods())
def test_every_option_has_a_sentence_and_a_range(method: str) -> None:
    for name, _, allowed, meaning in listed_options(method):
        assert re.fullmatch(r"[A-Z][^ ]* .+[.]", meaning), name
        assert allowed not in ("a number", "a whole number"), name


def test_every_argument_and_flag_has_a_help_text() -> None:
    commands = [("prol", get_command(app))]
    for place, one in commands:
        commands += [(f"{place} {name}", inner) for name, inner in getattr(one, "commands", {}).items()]
        assert one.help, place
        for parameter in one.params:
            words = getattr(parameter, "help", None) or ""
            assert getattr(parameter, "hidden", False) or words.endswith("."), f"{place} {parameter.name}: {words}"


def test_a_run_prints_plain_lines_and_a_result_table(command, tmp_path: Path, micro_vit: str) -> None:
    outcome = command(
        *("run", "prol", "digits", "blocks=2", "lr=0.1", "--backbone", micro_vit, "--device", "cpu"),
        *("--tasks", "2", "--chunk", "6", "--seed", "3", "--limit-per-class", "3", "--precision", "float64"),
        *("--class-order", "shuffled", "--no-announce", "--threads", "1", "--checkpoint-every", "4"),
        *("--out", str(tmp_path / "run")),
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert not ANSI.search(outcome.out)
    assert "\r" not in outcome.out
    assert re.search(r"task 2/2: \d+ images/s; [\d.]+ % on the 10 classes so far", outcome.out)
    assert "FAA" in outcome.out
    assert "task boundaries: yes, classes of next task: no" in outcome.out
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["options"]["lr"], config["options"]["chunk"], config["options"]["coefficients"]) == (
        0.1,
        6,
        "digits",
    )
    assert (config["seed"], config["precision"], config["checkpoint_every"]) == (3, "float64", 4)
    assert (config["protocol"]["class_order"], config["protocol"]["announce"]) == ("shuffled", False)


def test_a_finished_run_is_resumed_by_saying_so(command, run_folder: Path) -> None:
    outcome = command("resume", str(run_folder))
    assert outcome.code == 0
    assert "has already finished" in outcome.out


def test_an_unfinished_run_is_resumed_and_shown(command, tmp_path: Path, finished: Callable[[str], Path]) -> None:
    run = RunFolder(shutil.copytree(finished("ncm"), tmp_path / "run"))
    run.result.unlink()
    assert "not finished: continue with `prol resume" in command("show", str(run.path)).out
    outcome = command("resume", str(run.path))
    assert outcome.code == 0
    assert "resuming after chunk" in outcome.out
    assert run.status() == "finished"


def test_a_finished_run_is_shown_with_its_history_measures_footprint_and_what_it_was_told(
    command, run_folder: Path
) -> None:
    out = command("show", str(run_folder)).out
    result = json.loads((run_folder / "result.json").read_text())
    for value in (*result["metrics"]["average_accuracy"], result["metrics"]["bwt"], result["metrics"]["caa_task_mean"]):
        assert f"{value:.2f}" in out
    assert f"{result['footprint']['statistics_stored']['count']:,}" in out
    assert "Given to the learner: task boundaries: yes" in out
    assert "images/s learning" in out


@pytest.mark.parametrize(("name", "begins"), [("run.png", b"\x89PNG"), ("run.svg", b"<?xml")])
def test_a_run_is_drawn(command, run_folder: Path, tmp_path: Path, name: str, begins: bytes) -> None:
    assert command("show", str(run_folder), "--plot", str(tmp_path / name)).code == 0
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_parameters_of_the_paper_are_counted_by_both_conventions(command) -> None:
    arguments = ("params", "prol", "--backbone", "vit_base_patch16_224", "--classes", "200", "--tasks", "10")
    out = command(*arguments).out
    assert "213,396" in out
    assert "365,640" in out
    assert "By the paper's convention" in out
    counts = json.loads(command(*arguments, "--json").out)
    assert set(counts["paper_convention"].values()) == {213_396, 365_640}
    assert counts["during_last_task"]["parameters_stored"]["count"] == 365_640
    assert counts["during_first_task"]["samples_stored"] == {"count": 0, "bytes": 0}


def test_counts_say_that_samples_come_on_top(command) -> None:
    small = ("--classes", "4", "--tasks", "2")
    assert (
        "Samples are stored in addition as they are learnt: memory=70 images"
        in command("params", "er", "memory=70", *small).out
    )
    assert "Samples" not in command("params", "ncm", *small).out
    assert json.loads(command("params", "ncm", *small, "--json").out)["samples"] is None


def test_parameters_follow_the_options(command) -> None:
    def stored(*options: str) -> int:
        counts = json.loads(command("params", "prol", *options, "--classes", "10", "--tasks", "2", "--json").out)
        return int(counts["during_last_task"]["parameters_stored"]["count"])

    # Ten classes with two scalers and two shifters a position.
    assert stored("length=6") - stored("length=5") == 10 * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frobnicate",), "No such command 'frobnicate'"),
        (("run", "ncm"), "Missing argument"),
        (("run", "ncm", "digits", "--chunk", "many"), "--chunk"),
        (("run", "nmc", "digits"), "unknown method 'nmc'; did you mean 'ncm'?"),
        (("run", "ncm", "digit"), "unknown dataset 'digit'; did you mean 'digits'?"),
        (("run", "ncm", "digits", "lr=0.1"), "unknown option 'lr'"),
        (("run", "ncm", "digits", "lr"), "write it as key=value"),
        (("run", "ncm", "digits", "--chunk", "0"), "chunk must be at least 1, got 0"),
        (("run", "ncm", "folder", "--data", "nowhere"), "nowhere"),
        (("run", "ncm", "digits", "--backbone", "vit_nowhere"), "vit_nowhere"),
        (("run", "ncm", "digits", "--device", "cuda:77"), "device 'cuda:77'"),
        (("resume", "nowhere"), "nowhere does not exist"),
        (("show", "nowhere"), "nowhere does not exist"),
        (("run", "ncm", "digits", "--seed", "x"), "--seed must be a whole number, got 'x'"),
        (("run", "ncm", "digits", "--threads=0.5"), "--threads must be a whole number, got '0.5'"),
        (("run", "ncm", "digits", "--rate", "fast"), "--rate must be a number, got 'fast'"),
        (("params", "ncm", "--classes", "3", "--tasks", "4"), "from 1 to the number of classes, 3, got 4"),
        (("methods", "nmc"), "unknown method 'nmc'"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_exit_code_2(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = command(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("prol: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    assert outcome.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"), [("run.doc", "must end in .png or .svg"), ("no/such/folder/run.png", "does not exist")]
)
def test_a_plot_that_cannot_be_written_is_refused(
    command, run_folder: Path, tmp_path: Path, name: str, message: str
) -> None:
    outcome = command("show", str(run_folder), "--plot", str(tmp_path / name))
    assert outcome.code == 2
    assert message in outcome.err


def test_a_saved_learner_is_shown_as_what_it_is(command, run_folder: Path) -> None:
    code, out, err = command("show", str(run_folder / "model"))
    assert (code, err) == (0, "")
    learner = prol.load(run_folder / "model")
    first, second, *rest = out.splitlines()
    assert first.startswith(f"{run_folder / 'model'} is a saved learner: ncm on {learner.backbone.name}")
    assert second.startswith(f"{len(learner.classes)} classes: {learner.classes[0]} (")
    assert rest[0] == f"{int(learner.class_counts().sum())} images learnt"
    assert rest[1] == f"{learner.footprint().statistics_stored.bytes:,} bytes stored besides the backbone, no samples"
    refused = command("show", str(run_folder / "model"), "--plot", "x.png")
    assert "only a run can be drawn" in refused.err


def test_debugging_shows_where_a_mistake_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROL_DEBUG", "1")
    with pytest.raises(ValueError, match="unknown method 'nmc'"):
        main(["run", "nmc", "digits"])


def test_an_interrupted_run_says_how_to_go_on(command, tmp_path: Path, micro_vit: str, monkeypatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("prol.runs.display.Lines.__call__", interrupt)
    outcome = command("run", "ncm", "digits", "--backbone", micro_vit, "--out", str(tmp_path / "run"))
    assert outcome.code == 130
    assert outcome.err == "prol: interrupted; `prol resume RUN` resumes an unfinished run\n"


def test_a_plot_without_matplotlib_says_what_to_install(
    command, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = command("show", str(run_folder), "--plot", str(tmp_path / "run.png"))
    assert outcome.code == 2
    assert "pip install matplotlib" in outcome.err


@pytest.mark.slow
def test_on_a_terminal_a_run_shows_a_bar_that_moves(tmp_path: Path, micro_vit: str) -> None:
    ours, theirs = pty.openpty()
    arguments = [
        "run",
        "ncm",
        "digits",
        "--backbone",
        micro_vit,
        "--limit-per-class",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "from prol.cli.app import main; main()", *arguments],
        env=environment() | {"TERM": "xterm-256color", "COLUMNS": "140"},
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed: the command has ended
            break
        shown += part
    assert process.wait() == 0
    assert process.stderr is not None
    process.stderr.close()
    text = shown.decode()
    assert ANSI.search(text)
    assert "learning task" in text
    assert "images/s" in text
    assert "% on the 10 classes so far" in text
    assert "Written to" in text


def test_asking_for_help_does_not_load_what_only_runs_need() -> None:
    code = (
        "import sys; from prol.cli.app import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print('LOADED', [name for name in ('timm', 'torchvision', 'matplotlib', 'prol.runs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"


@pytest.mark.slow
def test_a_run_goes_on_when_its_reader_has_gone(tmp_path: Path, micro_vit: str) -> None:
    arguments = ["run", "ncm", "digits", "--backbone", micro_vit, "--limit-per-class", "2", "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "prol", *arguments, "--out", str(tmp_path / "run")],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 0
    process.communicate()
    assert (tmp_path / "run/result.json").is_file()


@pytest.mark.parametrize("content", ["{}", "[]", "not json"])
@pytest.mark.parametrize("verb", ["resume", "show"])
def test_a_damaged_config_is_told_in_one_line(command, tmp_path: Path, verb: str, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    outcome = command(verb, str(tmp_path))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"{tmp_path / 'config.json'}: " in outcome.err
    assert "the file is damaged or was written by another version" in outcome.err


def test_a_seed_that_is_no_seed_is_told_in_one_line(command, tmp_path: Path, micro_vit: str) -> None:
    outcome = command(
        "run", "ncm", "digits", "--backbone", micro_vit, "--seed", "9" * 30, "--out", str(tmp_path / "run")
    )
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "seed must be" in outcome.err
