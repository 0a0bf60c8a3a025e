"""Progress of a run: a live bar on a terminal, plain lines elsewhere, nothing from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from prol.evaluation import Cursor, Event, events
from prol.runs.setup import Setup


class Display(Protocol):
    """Shows a run while it is running."""

    def showing(self, setup: Setup, folder: Path, cursor: Cursor) -> AbstractContextManager[None]: ...

    def __call__(self, event: Event, seconds: float) -> None: ...

    def warn(self, line: str) -> None: ...


def display_for(console: Console) -> Display:
    """The display that suits where the output goes."""
    return LiveBar(console) if console.is_terminal else Lines(partial(_print, console))


def _print(console: Console, line: str) -> None:
    """Names of files and classes are printed as they are, and only a terminal breaks lines."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


class Silent:
    """Shows nothing."""

    def showing(self, setup: Setup, folder: Path, cursor: Cursor) -> AbstractContextManager[None]:
        del setup, folder, cursor
        return nullcontext()

    def __call__(self, event: Event, seconds: float) -> None: ...

    def warn(self, line: str) -> None: ...


class Lines:
    """One line per task, and one every half minute in between; `say` receives each, and may pass it on anywhere."""

    def __init__(self, say: Callable[[str], None], seconds_between: float = 30.0) -> None:
        self.say, self.seconds_between = say, seconds_between
        self.tasks = self.chunks = 0
        self.speed, self.silent_for = Speed(), 0.0

    @contextmanager
    def showing(self, setup: Setup, folder: Path, cursor: Cursor) -> Iterator[None]:
        self.tasks, self.chunks = len(setup.stream.task_classes), len(setup.stream.chunks)
        self._print(headline(setup, folder, cursor))
        yield

    def __call__(self, event: Event, seconds: float) -> None:
        self.speed(event, seconds)
        self.silent_for += seconds
        match event:
            case events.TaskEnded():
                self._print(f"task {event.task + 1}/{self.tasks}: {self.speed}; {accuracy_now(event)}")
            case events.ImagesSkipped():
                self.warn(skipped_line(event))
            case events.PointEvaluated():
                self._print(f"after {event.images} images: {point_line(event)}")
            case events.ChunkLearnt() if self.silent_for >= self.seconds_between:
                self._print(f"task {event.task + 1}/{self.tasks}: chunk {event.chunk} of {self.chunks}; {self.speed}")

    def warn(self, line: str) -> None:
        self._print(f"warning: {line}")

    def _print(self, line: str) -> None:
        self.silent_for = 0.0
        self.say(line)


class LiveBar:
    """A bar over all chunks, with the speed and the accuracy so far."""

    def __init__(self, console: Console) -> None:
        self.console, self.speed = console, Speed()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self.row = self.bar.add_task("", total=None, speed="", accuracy="", start=False)
        self.tasks = 0

    @contextmanager
    def showing(self, setup: Setup, folder: Path, cursor: Cursor) -> Iterator[None]:
        self.tasks = len(setup.stream.task_classes)
        _print(self.console, headline(setup, folder, cursor))
        self.bar.update(self.row, total=len(setup.stream.chunks), completed=cursor.chunks)
        self.bar.start_task(self.row)
        with self.bar:
            yield

    def __call__(self, event: Event, seconds: float) -> None:
        self.speed(event, seconds)
        match event:
            case events.TaskStarted():
                self._update(description=f"learning task {event.task + 1}/{self.tasks}", refresh=True)
            case events.ChunkLearnt():
                self._update(completed=event.chunk, speed=str(self.speed))
            case events.ChunkMissed():
                self._update(completed=event.chunk)
            case events.PointEvaluated():
                self._update(accuracy=point_line(event), refresh=True)
            case events.Evaluated():
                self._update(description=f"testing task {event.tested + 1}/{self.tasks}")
            case events.TaskEnded():
                self._update(accuracy=accuracy_now(event), refresh=True)
            case events.ImagesSkipped():
                self.warn(skipped_line(event))

    def warn(self, line: str) -> None:
        _print(self.console, f"warning: {line}")

    def _update(self, **fields: object) -> None:
        self.bar.update(self.row, **fields)  # type: ignore[arg-type]


class Speed:
    """Training images per second in the current task."""

    def __init__(self) -> None:
        self.images, self.seconds = 0, 0.0

    def __call__(self, event: Event, seconds: float) -> None:
        if isinstance(event, events.TaskStarted):
            self.images, self.seconds = 0, 0.0
        if isinstance(event, events.ChunkLearnt):
            self.images += event.images
        if isinstance(event, events.ChunkLearnt | events.StepTimed | events.ChunkRead):  # all of one step
            self.seconds += seconds

    def __str__(self) -> str:
        return f"{self.images / self.seconds:.0f} images/s" if self.images and self.seconds > 0 else "nothing learnt"


def headline(setup: Setup, folder: Path, cursor: Cursor) -> str:
    config = setup.config
    clock = config["clock"]
    pace = "" if clock is None else f", {clock['rate']:g} images/s arriving"
    threads = f"{config['threads']} thread{'' if config['threads'] == 1 else 's'}"
    begin = f"resuming after chunk {cursor.chunks}" if cursor.chunks else "from the start"
    return (
        f"{config['method']} on {config['dataset']['name']}: {len(setup.stream.task_classes)} tasks, "
        f"{len(setup.stream.chunks)} chunks of {config['protocol']['chunk']}{pace}, seed {config['seed']}, "
        f"{config['device']} {config['precision']}, {threads}, backbone {config['backbone']['name']}, "
        f"{begin}; writing to {folder}"
    )


def accuracy_now(event: events.TaskEnded) -> str:
    return f"{event.average_accuracy:.2f} % on the {event.classes_seen} classes so far"


def point_line(event: events.PointEvaluated) -> str:
    share = 100 * event.correct / event.total if event.total else 0.0
    return f"{share:.2f} % on the {event.classes} classes so far"


def skipped_line(event: events.ImagesSkipped) -> str:
    more = f" and {len(event.paths) - 1} more" if len(event.paths) > 1 else ""
    return f"skipped unreadable {event.half} image {event.paths[0]} ({event.reasons[0]}){more}"
