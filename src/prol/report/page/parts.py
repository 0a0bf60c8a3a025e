"""The parts of a section in the order in which they are read: notes, plots and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prol.report.comparison_plot import memory_plot
from prol.report.comparison_table import RAN_BESIDE
from prol.report.page import tables
from prol.report.page.plots import anytime_curves, history_curves, matrix_plots, speed_plot
from prol.report.page.sections import Section
from prol.report.plot import Plot
from prol.report.stream_plot import stream_note, stream_plot
from prol.report.table import Table, printable, readable

MATRICES_SHOWN = 3


@dataclass(frozen=True)
class Part:
    """One heading and the content below it; folded tables and plots open on a click."""

    key: str
    title: str
    notes: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    folded_plots: Sequence[Plot] = ()
    folded_tables: Sequence[Table] = ()
    small: bool = False
    """Whether its plots are smaller than others."""


def parts_of(section: Section) -> list[Part]:
    """Everything in the files of a section's runs."""
    return [
        _comparison(section),
        _history(section),
        _anytime(section),
        _matrices(section),
        _memory(section),
        _speed(section),
        Part(
            "stream",
            "The stream",
            [stream_note(section.first)],
            [stream_plot(section.first)],
            folded_tables=[tables.tasks(section)],
        ),
        Part("told", "Information given to each learner", tables=[tables.given(section)]),
        Part(
            "settings",
            "Settings",
            [f"Note on the data: {printable(note)}" for note in section.first.config["dataset"].get("notes") or []],
            tables=[tables.stream_settings(section)],
            folded_tables=[tables.method_settings(section)],
        ),
    ]


def _comparison(section: Section) -> Part:
    notes = ["Bytes stored are those of parameters, statistics and samples together, besides the frozen backbone."]
    seeds = {seed for row in section.rows for seed in row.seeds}
    if any(set(row.seeds) != seeds for row in section.rows):
        notes.append("Not all methods ran with the same seeds: see the last column.")
    if any(row.side_by_side for row in section.rows):
        notes.append(RAN_BESIDE)
    return Part("comparison", "Comparison", notes, tables=[tables.comparison(section)])


def _history(section: Section) -> Part:
    return Part(
        "history",
        "After each task",
        ["Bands are one sample deviation over seeds up and down; grey lines are the other methods."],
        [plot for curves in history_curves(section) for plot in curves.plots()],
        folded_tables=[
            tables.history(section, "history", "Average accuracy after each task, in %", "average_accuracy"),
            tables.history(section, "forgetting", "Forgetting after each task, in %", "forgetting_history"),
        ],
    )


def _anytime(section: Section) -> Part:
    title, curves = "At any time", anytime_curves(section)
    if curves is None:
        return Part("anytime", title, ["Left out: no run was evaluated between tasks (`prol run --points 20` does)."])
    notes = ["Accuracy on the test images of all classes seen so far."]
    missing = len(section.rows) - len(curves.lines)
    if missing:
        notes.append(f"{missing} of {len(section.rows)} methods were not evaluated between tasks and are left out.")
    return Part("anytime", title, notes, curves.plots())


def _matrices(section: Section) -> Part:
    plots = matrix_plots(section)
    return Part(
        "matrices",
        "Accuracy matrices",
        ["In %, mean over seeds: the test images of each task (down) after each task (across)."],
        plots[:MATRICES_SHOWN],
        folded_plots=plots[MATRICES_SHOWN:],
        small=True,
    )


def _memory(section: Section) -> Part:
    plot = memory_plot(section.rows, f"Final accuracy against bytes stored, {section.title}")
    notes = ["Besides the frozen backbone and the optimiser's moments. Bars are one sample deviation over seeds."]
    return Part("memory", "Stored state", notes, [plot], folded_tables=[tables.memory(section)])


def _speed(section: Section) -> Part:
    plot, table = speed_plot(section), tables.throughput(section)
    if plot is None or table is None:
        return Part("speed", "Speed", ["Left out: no run has a timing.json."])
    notes = _timed_on(section)
    if any(row.side_by_side for row in section.rows):
        notes.append("Hatched: other runs were running at the same time, so that it says little.")
    missing = [row.name for row in section.rows if row.images_per_second is None]
    if missing:
        notes.append(f"Left out, for they have no timing.json: {', '.join(missing)}.")
    if any(cell.text == "reused" for row in table.rows for cell in row):
        notes.append("Where features of test images were reused, the speed of testing was not measured.")
    return Part("speed", "Speed", notes, [plot], folded_tables=[table])


def _timed_on(section: Section) -> list[str]:
    """The hardware, where the files say it."""
    hardware = {
        name: {printable(one) for run in runs for one in run.hardware} for name, runs in section.runs_of.items()
    }
    known = sorted(set().union(*hardware.values()))
    if not known:
        return []
    if all(names == set(known) for names in hardware.values()):
        return [f"Timed on {' and '.join(known)}."]
    each = "; ".join(
        f"{name} on {' and '.join(sorted(names)) or 'unknown hardware'}" for name, names in hardware.items()
    )
    return [f"Not timed on the same hardware, so that speeds cannot be compared: {each}."]


def best_line(section: Section) -> str:
    """The result in one sentence."""
    best = section.rows[0]
    samples = best.footprint["samples_stored"]["count"]
    stored = f"{samples:,} samples" if samples else "no sample"
    line = f"Highest final accuracy: {best.name}, {best.faa.text()} %, storing {stored}"
    return f"{line} and {readable(best.bytes_kept, 'B')} in all."
