"""Many runs: executed in this process, in several on this machine or elsewhere; summaries follow as they end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import Protocol, TypeVar, cast

from prol.files import require_real_folder
from prol.options import Count, Whole, require_ranges
from prol.runfiles import RunFiles, read_run
from prol.runs.display import Display, Lines
from prol.runs.folder import DamagedRun, RunFolder
from prol.runs.inspection import require_planned
from prol.runs.plan import Plan
from prol.runs.run import resume, start
from prol.runs.threads import free_threads
from prol.typed_json import DamagedFile

RETRIES = 2
"""How often a run whose process died is resumed."""

_LINE, _ENDED = "line", "ended"
_OLD_VERB = "settle"
"""What version 0.1 called `Executor.execute`; accepted for one version."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work other than a run that an executor executes; its result is a folder, complete or absent."""

    threads: int | None = None
    workers: int | None = None

    def finish(self, path: Path, display: Display) -> None:
        """Writes the folder, unless it exists; a process before this one may have died."""
        raise NotImplementedError


Work = TypeVar("Work", bound=Plan | Job)
Say = Callable[[str], None]
Hear = Callable[[Path, str], None]
Outcomes = Generator[tuple[Path, str | None], None, None]


class Executor(Protocol):
    """Executes runs that do not depend on each other.

    The state of a run is in its folder. Closing the generator stops the running ones, which can be resumed later.
    """

    def execute(self, pending: Mapping[Path, Plan | Job], hear: Hear) -> Outcomes:
        """Executes each plan or job in its folder.

        Yields each folder when its run ends, with the error as one sentence, None if it finished.

        Args:
            hear: receives each run's output, line by line.
        """
        ...


@dataclass(frozen=True)
class Serial:
    """One run after the other in this process; `display` shows them."""

    display: Display

    def execute(self, pending: Mapping[Path, Plan | Job], hear: Hear) -> Outcomes:
        del hear  # the display shows it
        threads = free_threads()
        for path, plan in pending.items():
            yield path, attempt(with_threads(plan, path, threads), path, self.display)


OneByOne = Serial
"""Deprecated: what version 0.1 called `Serial`."""


@dataclass(frozen=True)
class LocalProcesses:
    """`jobs` runs at a time, each in its own process; a run whose process dies is resumed in a new one.

    Runs share the threads that are free at the start, unless their plans say how many they use.
    """

    jobs: Count
    retries: Whole = RETRIES

    def __post_init__(self) -> None:
        require_ranges(self)

    def execute(self, pending: Mapping[Path, Plan | Job], hear: Hear) -> Outcomes:
        context = multiprocessing.get_context("spawn")  # a forked process could not use the GPU
        waiting = list(pending.items())
        at_once = min(self.jobs, len(pending))
        share = free_threads() / at_once if at_once > 1 else None  # before these runs are load themselves
        running: dict[Connection, tuple[SpawnProcess, Path]] = {}
        outcomes: dict[Path, str | None] = {}
        retries_left = dict.fromkeys(pending, self.retries)
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    path, plan = waiting.pop(0)
                    if share is not None:
                        plan = with_share_of_processors(plan, path, share)
                    ours, theirs = context.Pipe(duplex=False)
                    process = context.Process(target=_run_in_process, args=(theirs, plan, path), daemon=True)
                    with _interrupts_blocked():
                        process.start()
                    theirs.close()
                    running[ours] = (process, path)
                for ready in cast("list[Connection]", wait(list(running))):
                    process, path = running[ready]
                    try:
                        kind, text = ready.recv()
                    except EOFError:
                        process.join()
                        ready.close()
                        del running[ready]
                        died = f"its process ended with code {process.exitcode}"
                        if path in outcomes or not retries_left[path]:
                            yield path, outcomes.get(path, died)
                        else:
                            retries_left[path] -= 1
                            waiting.insert(0, (path, pending[path]))
                            hear(path, f"{died}; {how_resumed(pending[path])}")
                        continue
                    if kind == _ENDED:
                        outcomes[path] = text
                    else:
                        hear(path, text)
        finally:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.join()


def how_resumed(plan: Plan | Job) -> str:
    """What happens to a plan or job whose process died."""
    return "resuming from its last checkpoint" if isinstance(plan, Plan) else "starting it again"


def finish(plan: Plan, path: Path, display: Display) -> RunFolder:
    """The finished run of this plan in a folder: started, resumed or left as it is."""
    run = RunFolder(path)
    if run.status() in ("empty", "something else"):
        return start(plan, path, display)
    require_planned(plan, run)
    return resume(path, display, side_by_side=plan.side_by_side)


def attempt(plan: Plan | Job, path: Path, display: Display) -> str | None:
    """Finishes a run or job; returns the error as one sentence, None if it finished."""
    try:
        if isinstance(plan, Plan):
            finish(plan, path, display)
        else:
            plan.finish(path, display)
    except Exception as error:
        return sentence_of(error)
    return None


def with_share_of_processors(plan: Work, path: Path, cpus: float) -> Work:
    """The plan with no more threads than its share of the processors, unless it sets them or has begun."""
    if RunFolder(path).config.is_file():
        return plan
    whole = max(1, int(cpus))
    workers = max(1, whole // 2) if plan.workers is None else plan.workers
    return replace(with_threads(plan, path, whole), workers=workers)


def with_threads(plan: Work, path: Path, threads: int) -> Work:
    """The plan with this number of threads, unless it sets one or has begun."""
    return plan if plan.threads or RunFolder(path).config.is_file() else replace(plan, threads=threads)


def sentence_of(error: Exception) -> str:
    """An error in words; PROL_DEBUG=1 raises it instead."""
    if os.environ.get("PROL_DEBUG") == "1":
        raise error
    return in_words(error)


def in_words(error: BaseException) -> str:
    """An error on one line, with its type unless it is a mistake of the caller."""
    words = " ".join(str(error).split())
    return words if isinstance(error, ValueError | OSError) and words else f"{type(error).__name__}: {words}"


def _run_in_process(parent: Connection, plan: Plan | Job, path: Path) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    display = Lines(lambda line: parent.send((_LINE, line)))
    parent.send((_ENDED, attempt(plan, path, display)))


def _end_with_parent() -> None:
    """A killed parent cannot stop its children, and their folders may be needed at once."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process started meanwhile never receives Ctrl-C: its parent stops it. Ours is delivered afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, it would unblock interrupts again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class Summary:
    """Files made from runs.

    Args:
        write: writes the files again.
        ready: whether none of its runs is still to come; it is then written once. With None it is written after every
            run.
        worthwhile: whether to write it when everything is interrupted.
    """

    name: str
    write: Callable[[], None]
    ready: Callable[[], bool] | None = None
    worthwhile: Callable[[], bool] = lambda: True


def run_all(
    batches: Sequence[tuple[Executor, Mapping[Path, Plan]]],
    summaries: Sequence[Summary],
    say: Say,
    ended: Callable[[Path, str | None], str | None],
    is_finished: Callable[[Path], bool] | None = None,
) -> None:
    """Executes planned runs, batch after batch; finished ones are skipped and unfinished ones resumed.

    A run that fails does not stop the others, and neither does a summary that cannot be written: it is tried again
    later, and raises OSError only at the end.

    Args:
        batches: executors, each with plans by the folders of their runs.
        say: receives lines about the progress.
        ended: receives each run that ends, with the error that stopped it; returns the error to report.
        is_finished: whether a run need not be executed; as its folder says by default.
    """
    finished = is_finished or (lambda path: RunFolder(path).status() == "finished")
    pending = [
        (executor, {path: plan for path, plan in runs.items() if not finished(path)}) for executor, runs in batches
    ]
    for _, runs in pending:
        for path in runs:
            require_real_folder(path)
    total = sum(len(runs) for _, runs in batches)
    done = earlier = total - sum(len(runs) for _, runs in pending)
    if earlier:
        say(f"{earlier} of {total} runs are finished already")
    began, writer = time.monotonic(), _Writer(summaries, say)
    try:
        writer.update()
        for executor, runs in pending:
            execute = getattr(executor, "execute", None) or getattr(executor, _OLD_VERB)
            with closing(execute(_marked(runs, executor), lambda path, line: say(f"{path.name}: {line}"))) as outcomes:
                for path, problem in outcomes:
                    done += 1
                    problem = ended(path, problem)
                    writer.update()
                    left = _duration((time.monotonic() - began) / (done - earlier) * (total - done))
                    say(f"{path.name} {f'failed: {problem}' if problem else 'finished'} ({done} of {total} runs{left})")
    except BaseException:
        writer.interrupt()
        raise
    writer.finish()


class _Writer:
    """Writes summaries and remembers which could not be written."""

    def __init__(self, summaries: Sequence[Summary], say: Say) -> None:
        self.summaries, self.say = summaries, say
        self.written: set[str] = set()
        self.failed: dict[str, OSError] = {}

    def update(self) -> None:
        for summary in self.summaries:
            if summary.ready is None or (summary.name not in self.written and summary.ready()):
                self._try(summary)

    def interrupt(self) -> None:
        for summary in self.summaries:
            if summary.ready is None or (summary.name not in self.written and summary.worthwhile()):
                self._try(summary)

    def finish(self) -> None:
        for summary in self.summaries:
            if summary.name not in self.written:
                self._try(summary)
        for error in self.failed.values():
            raise error

    def _try(self, summary: Summary) -> None:
        try:
            summary.write()
        except OSError as error:
            if summary.name not in self.failed:
                self.say(f"{summary.name} cannot be written, runs continue without it for now: {error}")
            self.failed[summary.name] = error
            self.written.discard(summary.name)
        else:
            self.failed.pop(summary.name, None)
            self.written.add(summary.name)


def _marked(runs: Mapping[Path, Plan], executor: Executor) -> Mapping[Path, Plan]:
    """The plans, with a record of whether they run side by side."""
    alone = len(runs) < 2 or isinstance(executor, Serial) or getattr(executor, "jobs", None) == 1
    return runs if alone else {path: replace(plan, side_by_side=True) for path, plan in runs.items()}


def _duration(seconds: float) -> str:
    if seconds <= 0:
        return ""
    return f", about {seconds:.0f} s to go" if seconds < 90 else f", about {seconds / 60:.0f} min to go"


def read_finished(run: RunFolder) -> RunFiles:
    """The content of a finished run, with its times."""
    run.read(run.timing)
    try:
        return replace(read_run(run.path), folder=run.path.name)
    except DamagedFile as error:
        raise DamagedRun(f"{error}: move {run.path} away and start the run again") from error
