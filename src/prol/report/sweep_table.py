"""A sweep as a table for a terminal, as Markdown, and as rows for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from prol.report.comparison import Spread
from prol.report.sweep import MEASURES, Setting, SweepRun, best_of, settings_of

ON_TEST = (
    "Chosen on the test images: such a choice makes its own numbers look better than they are. "
    "`--development` chooses on a split of the training images."
)


def best_table(runs: Sequence[SweepRun]) -> Table:
    """The best setting of each method on each data set."""
    table = Table(box=SIMPLE, padding=(0, 0, 0, 1))
    titles = ("data set", "under", "method", "best", "FAA", "CAA", "forgetting", "seeds", "tried")
    for title in titles:
        table.add_column(title, justify="right" if title in titles[4:] else "left", overflow="fold")
    settings = settings_of(runs)
    for one in best_of(settings):
        table.add_row(*_cells(one, " "), _seeds(one), str(_tried(one, settings)))
    return table


def sweep_markdown(runs: Sequence[SweepRun], development: bool, commands: Sequence[str]) -> str:
    """A page: the best settings, all settings, what is not finished, and what to run next."""
    settings, names = settings_of(runs), list(dict.fromkeys(run.dataset for run in runs))
    finished = sum(run.state == "finished" for run in runs)
    choice = "Chosen on the development split; the test images are untouched." if development else ON_TEST
    lines = [
        f"# Sweep on {', '.join(names)}",
        "",
        f"{finished} of {len(runs)} runs finished. Accuracies and forgetting in %, as mean ± sample deviation over "
        f"seeds. Best is the highest mean FAA. {choice}",
        "",
        "## Best settings",
        "",
        *_table(best_of(settings)),
        "",
        "## All settings",
        "",
        *_table(settings),
    ]
    if commands:
        lines += ["", "## Measuring them on the test images", "", *(f"    {command}" for command in commands)]
    lost = [run for run in runs if run.state != "finished"]
    if lost:
        lines += ["", "## Not finished", "", *(f"- {run.folder}: {run.problem or run.state}" for run in lost)]
    return "\n".join(lines) + "\n"


def sweep_csv(runs: Sequence[SweepRun]) -> str:
    """One row a run, with a column for each option and condition of any of them."""
    options = list(dict.fromkeys(name for run in runs for name in run.options))
    conditions = list(dict.fromkeys(name for run in runs for name in run.condition))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    first = ["folder", "dataset", "method", "seed", "state"]
    writer.writerow([*first, *conditions, *(f"option.{name}" for name in options), *MEASURES, "problem"])
    for run in runs:
        writer.writerow(
            [
                *(getattr(run, name) for name in first),
                *(run.condition.get(name) for name in conditions),
                *(run.options.get(name) for name in options),
                *(getattr(run, name) for name in MEASURES),
                run.problem,
            ]
        )
    return file.getvalue()


def _table(settings: Sequence[Setting]) -> list[str]:
    titles = ("data set", "under", "method", "options", "FAA", "CAA", "forgetting", "seeds")
    lines = [f"| {' | '.join(titles)} |", f"|{'|'.join(['---'] * 4 + ['---:'] * 4)}|"]
    return lines + [f"| {' | '.join((*_cells(one, ', '), _seeds(one)))} |" for one in settings]


def _cells(one: Setting, gap: str) -> tuple[str, ...]:
    said = (one.dataset, _pairs(one.condition, gap), one.method, _pairs(one.options, gap))
    return (*said, *map(_spread, (one.faa, one.caa, one.forgetting)))


def _pairs(values: Mapping[str, Any], gap: str) -> str:
    return gap.join(f"{name}={value}" for name, value in sorted(values.items()))


def _spread(spread: Spread) -> str:
    return f"{spread.mean:.2f}" if spread.deviation is None else f"{spread.mean:.2f} ± {spread.deviation:.2f}"


def _seeds(one: Setting) -> str:
    given = ", ".join(map(str, one.seeds))
    return given if len(one.seeds) == one.asked else f"{given} of {one.asked}"


def _tried(one: Setting, settings: Sequence[Setting]) -> int:
    mine = (one.dataset, one.condition, one.method)
    return sum((other.dataset, other.condition, other.method) == mine for other in settings)
