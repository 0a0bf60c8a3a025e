"""Trackers in their offline modes: what they wrote is read back, and the run is the same as without them."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from integrations.read_back import (
    Written,
    mlflow_numbers,
    mlflow_run,
    tensorboard_numbers,
    tensorboard_text,
    wandb_numbers,
    wandb_settings,
    wandb_summary,
)
from prol.evaluation import Event, Measures
from prol.integrations.trackers import Tracker, make_trackers
from prol.integrations.tracking import MetricWriter
from prol.runs import Plan, RunInView, resume, start
from prol.runs.display import Silent
from runs.small_runs import contents, environment, small_plan

ALL = ("tensorboard", "wandb:project=birds,mode=offline", "mlflow")
READ = {
    "tensorboard": lambda run: tensorboard_numbers(run / "tensorboard"),
    "wandb": wandb_numbers,
    "mlflow": lambda run: mlflow_numbers(run / "mlflow"),
}


def plan_of(small_vit: str) -> Plan:
    return small_plan(small_vit, "head_only", measures=Measures(points=4, shots=1, prequential=True))


class Noting(Silent):
    """Stores warnings; stops the run after some events, if requested."""

    def __init__(self, events: int = 0) -> None:
        self.left, self.warnings = events, list[str]()

    def __call__(self, event: Event, seconds: float) -> None:
        del event, seconds
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def warn(self, line: str) -> None:
        self.warnings.append(line)


@pytest.fixture(scope="module", autouse=True)
def own_environment() -> Iterator[None]:
    """MLflow refuses to read folders without this variable, which trackers set themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_API_KEY"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory, small_vit: str) -> Path:
    return start(plan_of(small_vit), tmp_path_factory.mktemp("untracked") / "run").path


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory, small_vit: str) -> Path:
    display, was_open = Noting(), set[bool]()
    folder = tmp_path_factory.mktemp("tracked") / "run"

    def note_state(event: Event, seconds: float) -> None:
        del event, seconds
        was_open.add(json.loads((folder / "trackers" / "wandb.json").read_text())["open"])

    start(plan_of(small_vit), folder, display, [*make_trackers(ALL, every=2), note_state])
    assert display.warnings == []
    assert was_open == {True}  # by which a resumed run knows that the process was killed
    return folder


def expected_numbers(run: Path) -> Written:
    """What the log of a run comes to, but for speeds."""
    written: Written = {}
    chunk, correct, total = 0, 0, 0

    def note(name: str, value: float) -> None:
        written.setdefault(name, []).append((chunk, value))

    for line in (run / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        match event["event"]:
            case "TaskStarted":
                correct = total = 0
            case "Predicted":
                correct, total = correct + event["correct"], total + event["total"]
            case "ChunkLearnt":
                chunk = event["chunk"]
                if chunk % 2 == 0:
                    for name, value in event["report"].items():
                        note(f"learning/{name}", value)
                    note("anytime/prequential", 100 * correct / total)
            case "PointEvaluated":
                note("anytime/accuracy", 100 * event["correct"] / event["total"])
                note("anytime/classes", event["classes"])
            case "ShotEvaluated":
                note("anytime/shot_accuracy", 100 * event["correct"] / event["total"])
            case "TaskEnded":
                for task, accuracy in enumerate(event["accuracies"]):
                    note(f"accuracy/task_{task + 1}", accuracy)
                note("accuracy/average", event["average_accuracy"])
                note("classes/seen", event["classes_seen"])
    result = json.loads((run / "result.json").read_text())
    ends = [step for step, _ in written["accuracy/average"]]
    history = result["metrics"]["forgetting_history"]
    written["accuracy/forgetting"] = list(zip(ends, history, strict=True))
    return written


def without_speed(written: Written) -> Written:
    return {name: rows for name, rows in written.items() if name.split("/")[0] not in ("speed", "final", "footprint")}


def rounded(written: Written) -> dict[str, list[tuple[int, Any]]]:
    """TensorBoard keeps float32."""
    return {name: [(step, pytest.approx(value, rel=1e-6)) for step, value in rows] for name, rows in written.items()}


@pytest.mark.parametrize("tracker", READ)
def test_every_number_of_the_log_is_there_once_and_at_its_step(tracked: Path, tracker: str) -> None:
    expected = expected_numbers(tracked)
    assert {"learning/total", "accuracy/task_1", "anytime/accuracy", "anytime/prequential"} <= expected.keys()
    assert without_speed(READ[tracker](tracked)) == rounded(expected)


@pytest.mark.parametrize("tracker", READ)
def test_speed_is_written_within_and_after_tasks(tracked: Path, tracker: str) -> None:
    rows = READ[tracker](tracked)["speed/train_images_per_second"]
    assert [step for step, _ in rows] == [2, 4, 6, 7, 8, 10]
    assert all(value > 0 for _, value in rows)


def test_a_run_is_the_same_with_trackers_and_without(tracked: Path, untracked: Path) -> None:
    assert contents(tracked) == contents(untracked)


def test_the_result_and_the_footprint_stand_at_the_end(tracked: Path) -> None:
    result = json.loads((tracked / "result.json").read_text())
    stored = result["footprint"]["parameters_stored"]["bytes"]
    for written in (READ["tensorboard"](tracked), READ["mlflow"](tracked)):
        assert written["final/faa"] == [(10, pytest.approx(result["metrics"]["faa"]))]
        assert written["footprint/parameters_stored_bytes"] == [(10, stored)]
        assert "final/learning_curve_area" in written
    summary = wandb_summary(tracked)
    assert summary["final/faa"] == result["metrics"]["faa"]
    assert summary["footprint/parameters_stored_bytes"] == stored


def test_settings_and_the_folder_are_written(tracked: Path) -> None:
    text = tensorboard_text(tracked / "tensorboard", "settings")
    assert "| options.lr | `" in text
    assert str(tracked.resolve()) in text
    _, run = mlflow_run((tracked / "mlflow").as_uri())
    assert (run.data.params["method"], run.data.params["protocol.tasks"]) == ("head_only", "3")
    assert run.data.tags["model"] == str(tracked.resolve() / "model")
    assert run.info.status == "FINISHED"
    settings = wandb_settings(tracked)
    assert (settings["project"], settings["method"], settings["folder"]) == (
        "birds",
        "head_only",
        str(tracked.resolve()),
    )


def test_no_process_of_wandb_outlives_the_run(tracked: Path) -> None:
    assert tracked.is_dir()
    named = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    children = [int(number) for numbers in named for number in numbers.split()]
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [command for command in commands if b"wandb" in command]


@pytest.mark.parametrize(
    "stopped", [pytest.param(events, marks=pytest.mark.slow) for events in (3, 18, 23, "TaskEnded")] + [12]
)
def test_a_resumed_run_continues_the_run_of_each_tracker(
    tmp_path: Path, small_vit: str, tracked: Path, stopped: int | str
) -> None:
    kinds = [json.loads(line)["event"] for line in (tracked / "events.jsonl").read_text().splitlines()]
    events = stopped if isinstance(stopped, int) else 1 + kinds.index(stopped)  # just when a checkpoint is written
    folder, texts = tmp_path / "run", ALL if events == 18 else ("tensorboard", "mlflow")
    with pytest.raises(KeyboardInterrupt):
        start(plan_of(small_vit), folder, Noting(events), make_trackers(texts, every=2))
    _, run = mlflow_run((folder / "mlflow").as_uri())
    assert run.info.status == "KILLED"
    display = Noting()
    resume(folder, display, make_trackers(texts, every=2))
    assert display.warnings == []
    assert contents(folder) == contents(tracked)
    assert mlflow_run((folder / "mlflow").as_uri())[1].info.status == "FINISHED"
    expected = expected_numbers(tracked)
    for name in (text.partition(":")[0] for text in texts):
        assert without_speed(READ[name](folder)) == rounded(expected)
    if events == 18:
        assert len(list((folder / "wandb").glob("offline-run-*"))) == 2
        assert len({path.stem for path in folder.glob("wandb/offline-run-*/run-*.wandb")}) == 1


@pytest.mark.slow
def test_what_wandb_has_lost_offline_with_a_killed_process_is_written_again(
    tmp_path: Path, small_vit: str, tracked: Path
) -> None:
    folder, texts = tmp_path / "run", ["wandb:mode=offline"]
    with pytest.raises(KeyboardInterrupt):
        start(plan_of(small_vit), folder, Noting(18), make_trackers(texts, every=2))
    memory = folder / "trackers" / "wandb.json"
    state = json.loads(memory.read_text())
    assert state["open"] is False
    memory.write_text(json.dumps(state | {"open": True}))  # as a kill would leave it
    shutil.rmtree(folder / "wandb")
    resume(folder, listeners=make_trackers(texts, every=2))
    redone = min(step for rows in wandb_numbers(folder).values() for step, _ in rows)
    assert redone <= max(state["last"].values())
    expected = {name: [row for row in rows if row[0] > redone] for name, rows in expected_numbers(tracked).items()}
    later = {name: [row for row in rows if row[0] > redone] for name, rows in wandb_numbers(folder).items()}
    assert without_speed(later) == expected


def test_a_run_may_be_resumed_with_other_trackers_or_none(tmp_path: Path, small_vit: str, untracked: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start(plan_of(small_vit), folder, Noting(20), make_trackers(["tensorboard"], every=2))
    resume(folder, listeners=make_trackers(["mlflow"], every=2))
    assert contents(folder) == contents(untracked)
    later = without_speed(mlflow_numbers(folder / "mlflow"))
    assert (
        later["accuracy/average"] == expected_numbers(untracked)["accuracy/average"][-len(later["accuracy/average"]) :]
    )


class Flaky(Tracker):
    """Its writer fails after a few calls."""

    name, package = "flaky", "json"

    def __init__(self, writes: int) -> None:
        super().__init__(every=1)
        self.writes, self.closed = writes, list[bool]()

    def open(self, run: RunInView) -> MetricWriter:
        del run
        if self.writes < 0:
            raise OSError("no such server")
        return FlakyWriter(self)


class FlakyWriter(MetricWriter):
    def __init__(self, tracker: Flaky) -> None:
        super().__init__()
        self.tracker, self.left = tracker, tracker.writes

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        del step, metrics
        self.left -= 1
        if self.left < 0:
            raise OSError("no space left on device")

    def close(self, finished: bool) -> None:
        self.tracker.closed.append(finished)
        raise RuntimeError("and it cannot be closed either")


@pytest.mark.parametrize(("writes", "reason"), [(-1, "no such server"), (0, "no space"), (7, "no space")])
def test_a_tracker_that_fails_says_so_once_and_changes_nothing(
    tmp_path: Path, small_vit: str, untracked: Path, writes: int, reason: str
) -> None:
    display, tracker = Noting(), Flaky(writes)
    start(plan_of(small_vit), tmp_path / "run", display, [tracker])
    assert [line for line in display.warnings if reason in line] == display.warnings
    assert len(display.warnings) == 1
    assert display.warnings[0].startswith("tracking by flaky has stopped, the run continues without it")
    assert tracker.closed == ([] if writes < 0 else [False])
    assert contents(tmp_path / "run") == contents(untracked)


def test_real_trackers_that_cannot_write_say_so_once(
    tmp_path: Path, small_vit: str, untracked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (tmp_path / "file").write_text("not a folder")
    texts = [f"tensorboard:folder={tmp_path}/file", "mlflow:uri=http://127.0.0.1:9", f"mlflow:uri={tmp_path}/file/x"]
    display = Noting()
    start(plan_of(small_vit), tmp_path / "run", display, [*make_trackers(texts[:2]), *make_trackers(texts[2:])])
    assert sorted(line.split()[2] for line in display.warnings) == ["mlflow", "mlflow", "tensorboard"]
    assert contents(tmp_path / "run") == contents(untracked)


def test_plain_functions_can_listen_too(tmp_path: Path, small_vit: str) -> None:
    heard: list[str] = []
    start(small_plan(small_vit), tmp_path / "run", listeners=[lambda event, _: heard.append(type(event).__name__)])
    logged = [json.loads(line)["event"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert heard == logged


def test_trackers_can_go_to_another_process() -> None:
    for tracker in make_trackers(ALL, every=3):
        twin = pickle.loads(pickle.dumps(tracker))
        assert vars(twin) == vars(tracker)
        assert twin.every == 3


def test_the_command_line_follows_runs(tmp_path: Path, small_vit: str, command: Any) -> None:
    arguments = ("ncm", "digits", "--backbone", small_vit, "--device", "cpu", "--tasks", "2", "--limit-per-class", "2")
    out = str(tmp_path / "run")
    code, _, err = command(
        "run",
        *arguments,
        "--out",
        out,
        "--track",
        "tensorboard",
        "--track",
        f"mlflow:uri={tmp_path}/all,experiment=prol",
    )
    assert (code, err) == (0, "")
    assert len(tensorboard_numbers(tmp_path / "run" / "tensorboard")["accuracy/average"]) == 2
    assert len(mlflow_numbers(tmp_path / "all")["accuracy/average"]) == 2


@pytest.mark.parametrize(
    ("track", "said"),
    [
        ("comet", "unknown tracker 'comet': use one of tensorboard, wandb, mlflow"),
        ("mlflow:url=x", "did you mean 'uri'?"),
        ("mlflow:uri", "write it as key=value"),
        ("wandb:mode=never", "wandb mode must be online or offline"),
        ("tensorboard and tensorboard", "tracker tensorboard is given twice"),
    ],
)
def test_mistakes_are_reported_before_the_run_starts(tmp_path: Path, command: Any, track: str, said: str) -> None:
    flags = [word for one in track.split(" and ") for word in ("--track", one)]
    code, _, err = command("run", "ncm", "digits", "--out", str(tmp_path / "run"), *flags)
    assert code == 2
    assert said in err
    assert not (tmp_path / "run").exists()


def test_wandb_without_a_key_is_refused_instead_of_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ValueError, match="log in with `wandb login`, or track offline"):
        make_trackers(["wandb"])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ValueError, match=r"pip install 'prol\[mlflow\]'$"):
        make_trackers(["mlflow"])


@pytest.mark.slow
def test_nothing_is_imported_before_a_run_starts() -> None:
    script = (
        "import sys; from prol.integrations.trackers import make_trackers\n"
        "import prol.cli.app; make_trackers(['tensorboard', 'mlflow', 'wandb:mode=offline'])\n"
        "found = {'tensorboard', 'mlflow', 'wandb'} & sys.modules.keys(); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=environment())
