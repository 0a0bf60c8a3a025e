"""TensorBoard: scalars, settings and the result in event files under the run's own folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from prol.integrations.trackers.base import EVERY, Book, Tracker
from prol.integrations.trackers.own_folder import own_folder
from prol.integrations.trackers.readings import flat_settings
from prol.runs import RunFolder, RunInView

_SETTINGS = "settings"


class TensorBoard(Tracker):
    """Look at it with `tensorboard --logdir runs`.

    Args:
        folder: where event files go, in a folder of the run's name; RUN/tensorboard by default. A run that goes on
            adds a file to its own, another one of the same name has NAME-2.
    """

    name: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"

    def __init__(self, folder: str | None = None, every: int = EVERY) -> None:
        super().__init__(every)
        self.folder = folder

    def open(self, run: RunInView) -> Book:
        if self.folder is None:
            return _EventFiles(run.folder / "tensorboard", run)
        shared = Path(self.folder)
        return _EventFiles(own_folder(shared, run, self.name, lambda place: _was_begun_by(run, place)), run)


class _EventFiles(Book):
    def __init__(self, place: Path, run: RunInView) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.settings = flat_settings(run.config)
        self.before, told = _written(place) if place.is_dir() else ({}, "")
        self.writer = SummaryWriter(str(place))
        if not told:
            rows = [f"| {name} | `{value}` |" for name, value in self.settings.items()]
            table = "\n".join(["| setting | value |", "|---|---|", *rows])
            self.writer.add_text(_SETTINGS, f"{_heading(run)}\n\n{table}", 0)

    def last_steps(self) -> dict[str, int]:
        return self.before

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def conclude(self, step: int, numbers: Mapping[str, float]) -> None:
        # In the same folder, so that the table of settings and results has one row a run.
        self.writer.add_hparams(self.settings, dict(numbers), run_name=".", global_step=step)

    def close(self, finished: bool) -> None:
        del finished
        self.writer.close()


def _heading(run: RunInView) -> str:
    return f"Run folder: `{run.folder.resolve()}`"


def _written(place: Path) -> tuple[dict[str, int], str]:
    """The last step of each number in event files, and the settings, empty if they are not there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(place), size_guidance={"scalars": 1, "tensors": 1})
    found.Reload()
    tags = found.Tags()
    last = {name: events[-1].step for name in tags["scalars"] if (events := found.Scalars(name))}
    texts = [found.Tensors(tag)[-1].tensor_proto for tag in tags["tensors"] if tag.startswith(_SETTINGS)]
    return last, texts[0].string_val[0].decode() if texts else ""


def _was_begun_by(run: RunInView, place: Path) -> bool:
    """Whether event files are of this run, and not of an earlier one whose folder was removed to make room for it."""
    ends = [file.stat().st_mtime for file in place.glob("*tfevents*")]
    if not ends or max(ends) < RunFolder(run.folder).config.stat().st_mtime:
        return False
    return _written(place)[1].startswith(f"{_heading(run)}\n")
