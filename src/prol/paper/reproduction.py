"""Items of the paper from one call: runs, tables and figures."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from prol.files import locked_folder, make_folder, require_folder, require_real_folder
from prol.paper.grid import Grid
from prol.paper.item_files import (
    RUNS,
    Reproduced,
    describe,
    left_out_runs,
    read_outcomes,
    sources,
    write_item,
    write_tables,
)
from prol.paper.items import Item, Want
from prol.paper.scale import PaperScale
from prol.runs.display import Silent
from prol.runs.executors import Executor, Say, Serial, Summary, run_all
from prol.runs.folder import RunFolder
from prol.runs.plan import Plan


def reproduce(
    items: Sequence[Item],
    scale: PaperScale,
    out: str | Path,
    executor: Executor | None = None,
    alone: Executor | None = None,
    say: Say | None = None,
    keep_models: bool = False,
) -> list[Reproduced]:
    """Runs what the items need and writes `OUT/ITEM/` for each: runs.json, table.md, table.csv, table.json, figures.

    Runs are stored in `OUT/runs`, named by their content: finished ones are reused and unfinished ones resumed, except
    that timed ones start again. What cannot be run is reported in the table and does not stop the rest. An item is
    written when the last of its runs ends; after an interrupt, items with finished runs get a table of those.

    Args:
        executor: executes runs whose time does not count; by default one after another.
        alone: executes timed runs.
        say: receives lines about the progress.
        keep_models: whether finished runs store their learner and last checkpoint.
    """
    say = say or (lambda _: None)
    wanted = {item: item.wants(scale) for item in items}
    if not any(wanted.values()):
        raise ValueError("--methods leaves no row of what is to be reproduced: `prol reproduce --list` names the rows")
    for item, wants in wanted.items():
        rows = f"{len(wants)} rows and settings, seeds {', '.join(map(str, scale.seeds))}"
        say(f"{item.name}: {rows if wants else '--methods leaves no row of it'}")
    folder, serial, done = Path(out), Serial(Silent()), dict[str, Reproduced]()
    with locked_folder(folder):
        say("inspecting what each run needs")
        grid = Grid(folder / RUNS, scale.seeds)
        batches: dict[bool, dict[Path, Plan]] = {False: {}, True: {}}
        for want in (want for wants in wanted.values() for want in wants):
            batches[want.timed] |= grid.places(want)
        finished = [run for run in map(RunFolder, batches[False] | batches[True]) if run.status() == "finished"]
        if keep_models and (gone := sum(not run.model.is_dir() for run in finished)):
            say(f"{gone} finished runs were made without --keep-models and have no learner")
        if not any(batches.values()) and grid.missing:
            raise ValueError(f"nothing can be run: {'; '.join(grid.missing)}")
        for sentence in grid.missing:
            say(sentence)
        require_real_folder(grid.folder)
        make_folder(grid.folder)

        def ended(path: Path, problem: str | None) -> str | None:
            if problem is not None:
                grid.problems[path] = problem
            elif not keep_models:
                # A learner may be a thousand times larger than its results, and a main table has dozens of them.
                for folder_of_run in (RunFolder(path).checkpoints, RunFolder(path).model):
                    shutil.rmtree(folder_of_run, ignore_errors=True)
            return problem

        # All runs in one line: none waits for the longest of another item.
        run_all(
            [(executor or serial, batches[False]), (alone or serial, batches[True])],
            [_summary(item, wants, grid, folder, done, say) for item, wants in wanted.items() if wants],
            say,
            ended,
        )
    return [done[item.name] for item in items if item.name in done]


def _summary(
    item: Item, wants: Sequence[Want], grid: Grid, folder: Path, done: dict[str, Reproduced], say: Say
) -> Summary:
    def write() -> None:
        outcomes = grid.outcomes(wants)
        left_out = left_out_runs(item, {path.name for want in wants for path in grid.places(want)}, folder)
        if left_out and not any(outcome.runs for outcome in outcomes):
            say(f"{item.name}: no requested run is available; its earlier files stay as they are")
            done[item.name] = describe(item, outcomes, folder)
            return
        done[item.name] = write_item(item, outcomes, folder)
        if left_out:
            say(
                f"{item.name}: finished runs of its earlier table that it is without now: {left_out}, as they are not "
                "requested or their data or weights are missing; they are not deleted, and come back with them"
            )
        say(f"{item.name}: written to {folder / item.name}")

    return Summary(
        item.name,
        write,
        ready=lambda: grid.is_over(wants),
        worthwhile=lambda: any(outcome.runs for outcome in grid.outcomes(wants)),
    )


def render(items: Sequence[Item], out: str | Path) -> list[Reproduced]:
    """The tables and figures once more, from the files of an earlier reproduction alone.

    An item that was never requested is assembled from those it is made of, if all of them exist: each may have been
    run at its own scale.
    """
    folder = Path(out)
    require_folder(folder, "the --out of a reproduction")
    there = [item for item in items if sources(folder, item)]
    if not there:
        raise ValueError(f"{folder} holds none of {', '.join(item.name for item in items)}: reproduce one first")
    with locked_folder(folder):
        return [write_tables(item, read_outcomes(folder, item), folder) for item in there]
