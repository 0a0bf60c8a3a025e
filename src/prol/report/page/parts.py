"""The parts of a section in the order in which they are read: words, pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prol.report.comparison_table import readable
from prol.report.memory_plot import memory_picture
from prol.report.page import tables
from prol.report.page.curves import anytime_curves, history_curves
from prol.report.page.pictures import matrix_pictures, speed_picture, stream_picture, stream_words
from prol.report.page.sections import Section
from prol.report.page.table import Table
from prol.report.page.wording import printable
from prol.report.picture import Picture

MATRICES_SHOWN = 3


@dataclass(frozen=True)
class Part:
    """One heading and what stands below it; folded tables and pictures open on a click."""

    key: str
    title: str
    words: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    folded_pictures: Sequence[Picture] = ()
    folded_tables: Sequence[Table] = ()
    small: bool = False
    """Whether its pictures may stand closer together."""


def parts_of(section: Section) -> list[Part]:
    """Everything that the files of a section's runs tell."""
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
            [stream_words(section.first)],
            [stream_picture(section)],
            folded_tables=[tables.tasks(section)],
        ),
        Part("told", "What each learner was told", tables=[tables.told(section)]),
        Part(
            "settings",
            "Settings",
            _notes(section),
            tables=[tables.stream_settings(section)],
            folded_tables=[tables.method_settings(section)],
        ),
    ]


def _comparison(section: Section) -> Part:
    said = ["Bytes kept are those of parameters, statistics and samples together, besides the frozen backbone."]
    seeds = {seed for row in section.rows for seed in row.seeds}
    if any(set(row.seeds) != seeds for row in section.rows):
        said.append("Not all methods ran with the same seeds: see the last column.")
    if any(row.side_by_side for row in section.rows):
        said.append(f"{tables.BESIDE} Other runs were at work at the same time: alone it is faster.")
    return Part("comparison", "Comparison", said, tables=[tables.comparison(section)])


def _history(section: Section) -> Part:
    captions = (
        ("history", "Average accuracy after each task, in %", "average_accuracy"),
        ("forgetting", "Forgetting after each task, in %", "forgetting_history"),
    )
    return Part(
        "history",
        "After each task",
        ["Bands are one sample deviation over seeds up and down; grey lines are the other methods."],
        [picture for curves in history_curves(section) for picture in curves.pictures()],
        folded_tables=[tables.history(section, *caption) for caption in captions],
    )


def _anytime(section: Section) -> Part:
    title, curves = "At any time", anytime_curves(section)
    if curves is None:
        return Part("anytime", title, ["Left out: no run was asked between tasks (`prol run --points 20` does)."])
    said = ["Accuracy on the test images of all classes that had come by then."]
    silent = len(section.rows) - len(curves.lines)
    if silent:
        said.append(f"{silent} of {len(section.rows)} methods were not asked between tasks and are left out.")
    return Part("anytime", title, said, curves.pictures())


def _matrices(section: Section) -> Part:
    pictures = matrix_pictures(section)
    return Part(
        "matrices",
        "Accuracy matrices",
        ["In %, mean over seeds: the test images of each task (down) after each task (across)."],
        pictures[:MATRICES_SHOWN],
        folded_pictures=pictures[MATRICES_SHOWN:],
        small=True,
    )


def _memory(section: Section) -> Part:
    picture = memory_picture(section.rows, f"Final accuracy against bytes kept, {section.title}")
    said = ["Besides the frozen backbone and the optimiser's moments. Bars are one sample deviation over seeds."]
    return Part("memory", "What is kept", said, [picture], folded_tables=[tables.memory(section)])


def _speed(section: Section) -> Part:
    picture, table = speed_picture(section), tables.throughput(section)
    if picture is None or table is None:
        return Part("speed", "Speed", ["Left out: no run has a timing.json."])
    said = _timed_on(section)
    if any(row.side_by_side for row in section.rows):
        said.append("Hatched: other runs were at work at the same time, so that it says little.")
    missing = [row.name for row in section.rows if row.images_per_second is None]
    if missing:
        said.append(f"Left out, for they have no timing.json: {', '.join(missing)}.")
    if any(cell.text == "reused" for row in table.rows for cell in row):
        said.append("Where features of test images were reused, no speed of testing was measured.")
    return Part("speed", "Speed", said, [picture], folded_tables=[table])


def _timed_on(section: Section) -> list[str]:
    """A sentence, where the files say it."""
    hardware = {
        name: {printable(one) for run in runs for one in run.files.hardware} for name, runs in section.runs_of.items()
    }
    known = sorted(set().union(*hardware.values()))
    if not known:
        return []
    if all(names == set(known) for names in hardware.values()):
        return [f"Timed on {' and '.join(known)}."]
    told = "; ".join(
        f"{name} on {' and '.join(sorted(names)) or 'something unknown'}" for name, names in hardware.items()
    )
    return [f"Not timed on the same hardware, so that speeds say little beside each other: {told}."]


def _notes(section: Section) -> list[str]:
    notes = section.first.files.config["dataset"].get("notes") or []
    return [f"Note on the data: {printable(note)}" for note in notes]


def best_line(section: Section) -> str:
    """What a hurried reader takes away."""
    best = section.rows[0]
    spread = "" if best.faa.deviation is None else f" ± {best.faa.deviation:.2f}"
    samples = best.footprint["samples_stored"]["count"]
    kept = f"{samples:,} samples" if samples else "no sample"
    line = f"Highest final accuracy: {best.name}, {best.faa.mean:.2f}{spread} %, keeping {kept}"
    return f"{line} and {readable(best.bytes_kept, 'B')} in all."
