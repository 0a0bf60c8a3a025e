"""`prol.run` and `prol.compare`: what the commands do, with results that print, plot and become tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from prol.prediction import data_frame
from prol.report import plot_run, result_tables
from prol.report.comparison import Row, comparison_sheet, comparison_table, notes
from prol.report.comparison_plot import plot_comparison
from prol.runs import Display, Plan, display_for, start
from prol.runs import comparison as many
from prol.runs.display import Silent
from prol.runs.loading import load
from prol.runs.plan import read_method
from prol.verbs.progress import standard_error

if TYPE_CHECKING:
    import pandas

    from prol.learner import Learner

_WIDTH, _WIDE = 120, 200


class _Printed:
    """A result that prints as the command prints it."""

    def _parts(self) -> list[RenderableType]:
        raise NotImplementedError

    def _text(self, width: int) -> str:
        console = Console(width=width, force_jupyter=False, force_terminal=False, highlight=False, markup=False)
        with console.capture() as captured:
            console.print(*self._parts(), sep="\n")
        return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())

    def __repr__(self) -> str:
        return self._text(_WIDTH)

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre; overflow-x: auto">{escape(self._text(_WIDE))}</pre>'


@dataclass(frozen=True, repr=False)
class RunResult(_Printed):
    """A finished run: its folder, and the contents of its `config.json` and `result.json`."""

    folder: Path
    config: dict[str, Any]
    result: dict[str, Any]

    def _parts(self) -> list[RenderableType]:
        return [result_tables(self.config, self.result), f"Written to {self.folder}"]

    @property
    def metrics(self) -> dict[str, Any]:
        """The measures by name, in percent: `faa`, `caa`, `forgetting` and the others of `prol.evaluation.Metrics`."""
        return dict(self.result["metrics"])

    @property
    def learner(self) -> Learner:
        """What was learnt, opened from the folder."""
        return load(self.folder / "model", method=self.config.get("method_file"))

    def plot(self, file: str | Path) -> None:
        """Draws accuracy after each task and the accuracy matrix to a .png or .svg file; needs the extra `plot`."""
        plot_run(self.config, self.result, Path(file))

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each task: accuracy on all classes so far, and forgetting after it; needs pandas."""
        history = {name: self.metrics[name] for name in ("average_accuracy", "forgetting_history")}
        return data_frame({"task": [*range(1, len(history["average_accuracy"]) + 1)], **history})


@dataclass(frozen=True, repr=False)
class ComparisonResult(_Printed):
    """Methods on the same stream as rows, best first; `failures` are the runs that are missing, with the reasons."""

    folder: Path
    headline: str
    rows: list[Row]
    failures: dict[str, str]

    def _parts(self) -> list[RenderableType]:
        missing = [f"{run} is missing: {reason}" for run, reason in self.failures.items()]
        return [self.headline, comparison_table(self.rows), *notes(self.rows), *missing]

    def plot(self, file: str | Path) -> None:
        """Draws accuracy after each task to a .png or .svg file; needs the extra `plot`."""
        plot_comparison(self.rows, self.headline.partition(", backbone")[0], Path(file))

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each method: means and deviations over seeds, and the bytes stored; needs pandas."""
        columns: dict[str, list[Any]] = {"method": [row.name for row in self.rows]}
        for name in ("faa", "caa", "forgetting"):
            columns[name] = [getattr(row, name).mean for row in self.rows]
            columns[f"{name}_deviation"] = [getattr(row, name).deviation for row in self.rows]
        columns["seeds"] = [len(row.seeds) for row in self.rows]
        return data_frame(columns | {"bytes_stored": [row.bytes_kept for row in self.rows]})

    def to_latex(self) -> str:
        """The table for a paper."""
        return comparison_sheet(self.rows).latex()


def run(
    method: str, dataset: str, out: str | Path | None = None, *, progress: bool = True, **settings: Any
) -> RunResult:
    """Streams a data set through a method, and measures what it knows after each task; as the command `prol run`.

    Args:
        method: a name that `prol.list_methods()` lists, or "FILE.py:Class", with options after a colon: "prol:lr=0.05".
        dataset: a name that `prol.list_datasets()` lists.
        out: the folder to write; `runs/METHOD-DATASET-seedN` by default.
        progress: whether progress is shown, on standard error.
        settings: fields of `prol.runs.Plan`, such as `seed`, `tasks`, `backbone`, `data` or `limit_per_class`.
    """
    name, options = read_method(method)
    plan = Plan(name, dataset, **{**settings, "options": {**options, **settings.get("options", {})}})
    folder = start(plan, out, _display(progress))
    return RunResult(folder.path, folder.read(folder.config), folder.read(folder.result))


def compare(
    methods: Sequence[str],
    dataset: str,
    out: str | Path | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    progress: bool = True,
    **settings: Any,
) -> ComparisonResult:
    """Several methods on the same stream with the same seeds; as the command `prol compare`.

    Finished runs in the folder are reused and unfinished ones resumed.

    Args:
        methods: names that `prol.list_methods()` lists, or "FILE.py:Class", with options after a colon: "prol:lr=0.05".
        dataset: a name that `prol.list_datasets()` lists.
        out: the folder of the runs; `runs/compare-DATASET` by default.
        seeds: each method runs once with each.
        progress: whether progress is shown, on standard error.
        settings: fields of `prol.runs.Plan`, such as `tasks`, `backbone`, `data` or `limit_per_class`.
    """
    if isinstance(methods, str):
        raise ValueError(f"methods must be a list of names, got {methods!r}: write [{methods!r}]")
    folder = Path("runs") / f"compare-{dataset}" if out is None else Path(out)
    plans = [Plan(name, dataset, **{**settings, "options": options}) for name, options in map(read_method, methods)]
    done = many.compare(plans, seeds, folder, display=_display(progress))
    return ComparisonResult(folder, done.headline, done.rows, done.failures)


def _display(progress: bool) -> Display:
    return display_for(standard_error()) if progress else Silent()
