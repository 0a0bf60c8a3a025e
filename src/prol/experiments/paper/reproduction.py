"""Items of the paper from one call: runs, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from prol.artifacts.folders import at_work_in, require_folder
from prol.experiments.executors import Executor, OneByOne
from prol.experiments.paper.carrying_out import Grid, Say
from prol.experiments.paper.item_files import (
    RUNS,
    Reproduced,
    describe,
    left_out_runs,
    read_outcomes,
    sources,
    write_item,
    write_tables,
)
from prol.experiments.paper.items import Item, Want
from prol.experiments.paper.scale import Scale
from prol.experiments.told_lines import say_nothing
from prol.runs.display import Silent


def reproduce(
    items: Sequence[Item],
    scale: Scale,
    out: str | Path,
    executor: Executor | None = None,
    alone: Executor | None = None,
    say: Say | None = None,
    keep_models: bool = False,
) -> list[Reproduced]:
    """Runs what the items need and writes `OUT/ITEM/` for each: runs.json, table.md, table.csv, table.json, figures.

    Runs lie in `OUT/runs`, named by what they are: finished ones are kept and stopped ones go on, but those that are
    timed begin anew. What cannot be run is said in the table and does not stop the rest. An item is written when the
    last of its runs is over; where all is interrupted, items that have any get a table of what is finished.

    Args:
        executor: carries out runs whose time does not count; one after another by default.
        alone: carries out runs that are timed.
        say: is given lines about how the whole gets on.
        keep_models: whether finished runs keep their learner and last checkpoint.
    """
    say = say or say_nothing
    asked = {item.name: item.wants(scale) for item in items}
    if not any(asked.values()):
        raise ValueError("--methods leaves no row of what is to be reproduced: `prol reproduce --list` names the rows")
    folder = Path(out)
    here = OneByOne(Silent())
    grid = Grid(folder / RUNS, scale.seeds, executor or here, alone or here, say, keep_models)
    for name, wants in asked.items():
        told = f"{len(wants)} rows and settings, seeds {', '.join(map(str, scale.seeds))}"
        say(f"{name}: {told if wants else '--methods leaves no row of it'}")
    everything = [want for wants in asked.values() for want in wants]
    pages = _Pages(folder, grid, {item: asked[item.name] for item in items if asked[item.name]}, say)
    with at_work_in(folder):
        try:
            say("finding out what each run needs")
            grid.prepare(everything)
            pages.write_settled()
            # All runs in one line: none waits for the longest of another item.
            with closing(grid.carry_out(everything)) as over:
                for _ in over:
                    pages.write_settled()
        except KeyboardInterrupt:
            pages.write_begun()
            raise
        pages.write_rest()
    return [pages.done[item.name] for item in items if item.name in pages.done]


class _Pages:
    """Writes each item once, as soon as none of its runs is still to come."""

    def __init__(self, folder: Path, grid: Grid, waiting: Mapping[Item, Sequence[Want]], say: Say) -> None:
        self.folder, self.grid, self.waiting, self.say = folder, grid, dict(waiting), say
        self.done: dict[str, Reproduced] = {}
        self.problems: dict[str, OSError] = {}

    def write_settled(self) -> None:
        """Those that cannot be written are tried again at the end: runs at work must not be lost with them."""
        for item, wants in list(self.waiting.items()):
            if item.name not in self.problems and self.grid.settled(wants):
                self._try(item)

    def write_begun(self) -> None:
        """Those that have any finished run, as far as that is known."""
        for item, wants in list(self.waiting.items()):
            if self.grid.prepared(wants) and any(outcome.runs for outcome in self.grid.outcomes(wants)):
                self._try(item)

    def write_rest(self) -> None:
        self.problems.clear()
        for item in list(self.waiting):
            self._try(item)
        for problem in self.problems.values():
            raise problem

    def _try(self, item: Item) -> None:
        try:
            self.done[item.name] = self._write(item)
        except OSError as error:
            self.problems[item.name] = error
            self.say(f"{item.name} cannot be written: {error}")
        else:
            del self.waiting[item]

    def _write(self, item: Item) -> Reproduced:
        outcomes = self.grid.outcomes(self.waiting[item])
        left_out = left_out_runs(item, self.grid.names(self.waiting[item]), self.folder)
        if left_out and not any(outcome.runs for outcome in outcomes):
            self.say(f"{item.name}: no run of what is asked for can be had; its earlier files stay as they are")
            return describe(item, outcomes, self.folder)
        written = write_item(item, outcomes, self.folder)
        if left_out:
            self.say(
                f"{item.name}: finished runs of its earlier table that it is without now: {left_out}, as they are not "
                "asked for or their data or weights are not there; they are kept, and come back with them"
            )
        if len(self.waiting) > 1:
            self.say(f"{item.name}: written to {self.folder / item.name}")
        return written


def render(items: Sequence[Item], out: str | Path) -> list[Reproduced]:
    """The tables and figures once more, from the files of an earlier reproduction alone.

    An item that was never asked for is put together from those it is made of, where all of them are there: each may
    have been run at a scale of its own.
    """
    folder = Path(out)
    require_folder(folder, "the --out of a reproduction")
    there = [item for item in items if sources(folder, item)]
    if not there:
        raise ValueError(f"{folder} holds none of {', '.join(item.name for item in items)}: reproduce one first")
    with at_work_in(folder):
        return [write_tables(item, read_outcomes(folder, item), folder) for item in there]
