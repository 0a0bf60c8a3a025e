"""One engine for many runs: executes those that are not finished, and updates summaries as they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from prol.files import require_real_folder
from prol.runfiles import DamagedFile, RunFiles, read_run
from prol.runs.executors import Executor, Serial
from prol.runs.folder import DamagedRun, RunFolder
from prol.runs.plan import Plan

_OLD_VERB = "settle"
"""What version 0.1 called `Executor.execute`; accepted for one version."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Summary:
    """Files made from runs.

    Args:
        write: writes the files anew.
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
    finished = is_finished or _is_finished
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


def _is_finished(path: Path) -> bool:
    return RunFolder(path).status() == "finished"


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
