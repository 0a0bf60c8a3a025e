"""The service process of Weights & Biases, which runs of ours share with each other and with those of the caller."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integrations.read_back import Written
from integrations.read_back import wandb_numbers as wandb_numbers_so_far
from integrations.test_trackers import Noting
from prol.evaluation import Event
from prol.integrations.trackers import WeightsAndBiases
from prol.runs import Follower, Listener, start
from runs.small_runs import small_plan

pytestmark = pytest.mark.slow

AVERAGE = "accuracy/average"


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield
    import wandb

    wandb.teardown()


def wandb_numbers(folder: Path) -> Written:
    """What a run wrote in all: its file may still be open after `finish`, until the service has ended."""
    import wandb

    wandb.teardown()
    return wandb_numbers_so_far(folder)


def own_run(folder: Path) -> Any:
    import wandb

    folder.mkdir()
    settings = wandb.Settings(console="off", silent=True)
    return wandb.init(mode="offline", reinit="create_new", dir=str(folder), settings=settings)


def track(vit: str, out: Path, *others: Listener | Follower) -> None:
    display = Noting()
    start(small_plan(vit), out, display, [WeightsAndBiases(mode="offline"), *others])
    assert display.warnings == []


def service_is_there() -> bool:
    named = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    children = [int(number) for numbers in named for number in numbers.split()]
    found = any(b"wandb" in _command(child) for child in children)
    assert found == ("WANDB_SERVICE" in os.environ)
    return found


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def test_an_earlier_run_of_the_caller_continues(tmp_path: Path, small_vit: str) -> None:
    own = own_run(tmp_path / "own")
    own.log({"chunk": 1, "loss": 3.0})
    track(small_vit, tmp_path / "run")
    own.log({"chunk": 2, "loss": 2.0})
    own.finish()
    assert wandb_numbers(tmp_path / "own")["loss"] == [(1, 3.0), (2, 2.0)]
    assert len(wandb_numbers(tmp_path / "run")[AVERAGE]) == 3


def test_a_run_that_the_caller_starts_meanwhile_continues(tmp_path: Path, small_vit: str) -> None:
    begun: list[Any] = []

    def begin(event: Event, seconds: float) -> None:
        del event, seconds
        if not begun:
            begun.append(own_run(tmp_path / "own"))

    track(small_vit, tmp_path / "run", begin)
    begun[0].log({"chunk": 2, "loss": 2.0})
    begun[0].finish()
    assert wandb_numbers(tmp_path / "own")["loss"] == [(2, 2.0)]


def test_a_service_that_the_caller_has_set_up_stays(tmp_path: Path, small_vit: str) -> None:
    import wandb

    wandb.setup()
    track(small_vit, tmp_path / "run")
    assert service_is_there()


def test_two_tracked_runs_at_the_same_time_leave_each_other_alone_and_no_service(
    tmp_path: Path, small_vit: str
) -> None:
    """The second one begins and ends within the first."""
    heard: list[Event] = []

    def start_another(event: Event, seconds: float) -> None:
        del seconds
        heard.append(event)
        if len(heard) == 3:
            track(small_vit, tmp_path / "within")
            assert service_is_there()

    track(small_vit, tmp_path / "run", start_another)
    assert not service_is_there()
    assert len(wandb_numbers(tmp_path / "run")[AVERAGE]) == 3
    assert wandb_numbers(tmp_path / "run")[AVERAGE] == wandb_numbers(tmp_path / "within")[AVERAGE]


def test_a_run_whose_state_cannot_be_stored_leaves_no_service(tmp_path: Path, small_vit: str) -> None:
    display, folder = Noting(), tmp_path / "run"

    class InTheWay(WeightsAndBiases):
        """A file is where the folder of the tracker's state should be."""

        def open(self, run: Any) -> Any:
            (run.folder / "trackers").write_text("")
            return super().open(run)

    start(small_plan(small_vit), folder, display, [InTheWay(mode="offline")])
    [warning] = display.warnings
    assert warning.startswith("tracking by wandb has stopped")
    assert not service_is_there()
