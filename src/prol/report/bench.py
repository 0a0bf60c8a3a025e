"""Measurements of speed as tables and plots, made from what `prol bench --out` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from prol.report.plot import BLUE, ORANGE, Plot, check_figure_file
from prol.report.table import Table
from prol.runfiles import Content

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], str]]
"""A title, and the text of a row below it."""


def require_table(bench: str) -> None:
    """Refuses kinds of measurements that are not known."""
    if bench not in _TABLES:
        raise ValueError(f"measurements of {bench!r} have no table; those of {', '.join(_TABLES)} do")


def bench_tables(content: Content) -> Group:
    """What was measured and on what, the rows, and what failed."""
    require_table(content["bench"])
    columns = _TABLES[content["bench"]]
    rows = [[text(row) for _, text in columns] for row in content["rows"] if "error" not in row]
    table = Table.of([title for title, _ in columns], rows)
    parts: list[RenderableType] = [headline(content), table.rich(), *_notes(content)]
    for row in content["rows"]:
        parts += [f"warned: {_named(row)}: {text}" for part in _timed(row) for text in part.get("warnings", [])]
    parts += [f"failed: {line(row)}" for row in content["rows"] if "error" in row]
    return Group(*parts)


def headline(content: Content) -> str:
    """What was measured, on what machine, in one line."""
    machine, settings = content["machine"], content["settings"]
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    place = machine["device"] if machine["device"] != "cpu" else f"{machine['processor']}, {threads}"
    known = [settings[name] for name in ("backbone", "precision") if name in settings]
    known += [
        f"{name} {settings[name]}" for name in ("chunk", "classes", "workers") if isinstance(settings.get(name), int)
    ]
    about = ", ".join([" ".join(settings.get("methods", [])), *known]).strip(", ")
    return f"{content['bench']}: {about + '; ' if about else ''}{place}, torch {content['versions']['torch']}"


def line(row: Row) -> str:
    """A row in one line."""
    name = _named(row)
    if "error" in row:
        return f"{name}: {row['error']}"
    if "images_per_second" in row:
        return f"{name}: {rate(row['images_per_second'])} images/s"
    return f"{name}: {milliseconds(row['train' if 'train' in row else 'median'])} ms"


def _named(row: Row) -> str:
    return " ".join(str(row[key]) for key in ("method", "rung", "what", "classes", "images") if key in row)


def _timed(row: Row) -> list[Row]:
    """The timed parts of a row: itself, or its step and its prediction."""
    return [row[what] for what in ("train", "predict") if what in row] or [row]


def rate(number: float) -> str:
    """Images per second, three digits at least."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def milliseconds(seconds: float | Row) -> str:
    """A time, or the median of a timed row."""
    value = 1000 * (seconds if isinstance(seconds, int | float) else seconds["median"])
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def _range(row: Row) -> str:
    return f"{milliseconds(row['low'])} to {milliseconds(row['high'])}"


def _share(row: Row) -> str:
    share = row.get("share_of_peak")
    return "" if share is None else f"{100 * share:.1f}"


def _peak(row: Row) -> str:
    if "flop_per_second" in row:
        return f"{row['flop_per_second'] / 1e12:,.2f} TFLOP/s"
    return f"{row['bytes_per_second'] / 1e9:,.1f} GB/s"


def _ratio(name: str) -> Callable[[Row], str]:
    return lambda row: f"{row[name]:.2f}" if name in row else ""


def _plain(name: str) -> Column:
    return name, lambda row: str(row[name])


_SPEED: Column = ("images/s", lambda row: rate(row["images_per_second"]))
_TIME: Sequence[Column] = (("ms", milliseconds), ("ms, lowest to highest", _range))
_TABLES: Mapping[str, Sequence[Column]] = {
    "speed": (*map(_plain, ("method", "what", "images")), _SPEED, *_TIME, ("% of matrix peak", _share)),
    "ladder": (("way", lambda row: row["rung"]), _SPEED, *_TIME, ("times the first", _ratio("ratio"))),
    "growth": (
        ("classes", lambda row: f"{row['classes']:,}"),
        ("step, ms", lambda row: milliseconds(row["train"])),
        ("ratio", _ratio("train_ratio")),
        ("prediction, ms", lambda row: milliseconds(row["predict"])),
        ("ratio", _ratio("predict_ratio")),
        ("most memory, GiB", lambda row: f"{row['memory_bytes'] / 2**30:.2f}"),
    ),
    "files": (_plain("what"), _plain("images"), _SPEED, *_TIME),
    "peak": (_plain("what"), ("rate", _peak), *_TIME),
    "precision": (
        _plain("part"),
        ("gradient in bf16 against float32, difference in %", lambda row: f"{100 * row['difference']:.2f}"),
    ),
    "new sizes": (
        ("images", lambda row: str(row["size"])),
        ("step, ms", lambda row: milliseconds(row["as it is"])),
        ("with attention planned, ms", lambda row: milliseconds(row["planned"])),
        ("ratio", lambda row: f"{row['planned'] / row['as it is']:.1f}"),
    ),
}


def _notes(content: Content) -> list[str]:
    rows = [row for row in content["rows"] if "error" not in row]
    if content["bench"] == "growth" and rows:
        return [f"Ratios are against 100 classes, or the first row. Memory: {rows[0]['memory']}."]
    if content["bench"] == "ladder" and content.get("times_bare") is not None:
        return [f"The last way takes {content['times_bare']:.2f} times as long as the bare passes."]
    if content["bench"] == "files" and rows:
        share = 100 * content["share_of_limit"]
        return [f"The limit is {content['limit']}; both together reach {share:.0f} % of it."]
    if content["bench"] == "speed" and "peak" in content:
        peak = content["peak"]
        return [f"Matrix peak, measured: {peak['flop_per_second'] / 1e12:,.2f} TFLOP/s ({peak['what']})."]
    return []


def plot_bench(content: Content, file: Path) -> None:
    """Draws what `prol bench ladder` or `prol bench growth` measured as PNG or SVG."""
    check_figure_file(file)
    draw = {"ladder": _draw_ladder, "growth": _draw_growth}.get(content["bench"])
    if draw is None:
        raise ValueError(f"there is no plot of {content['bench']}: measurements of ladder and growth are drawn")
    rows = [row for row in content["rows"] if "error" not in row]
    if not rows:
        raise ValueError("nothing was measured that could be drawn")
    Plot(headline(content), lambda figure: draw(figure, rows), 4.2, width=9).write(file)


def _draw_ladder(figure: Any, rows: list[Mapping[str, Any]]) -> None:
    axes = figure.subplots()
    names, ratios = [row["rung"] for row in rows], [row["ratio"] for row in rows]
    # A bound is not a way to learn: it has its own colour.
    colours = [ORANGE if name == "bare passes" else BLUE for name in names]
    bars = axes.barh(range(len(rows)), ratios, color=colours)
    speeds = [f"{row['ratio']:.2f}, {rate(row['images_per_second'])} images/s" for row in rows]
    axes.bar_label(bars, speeds, padding=3, fontsize=8)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set(xlabel=f"times as fast as {names[0]}", xlim=(0, 1.35 * max(ratios)))
    axes.grid(visible=False, axis="y")


def _draw_growth(figure: Any, rows: list[Mapping[str, Any]]) -> None:
    times, memory = figure.subplots(1, 2)
    classes = [row["classes"] for row in rows]
    for what, label, colour, style in (("train", "step", BLUE, "o-"), ("predict", "prediction", ORANGE, "s--")):
        images = rows[0][what]["images"]
        milliseconds = [1000 * row[what]["median"] for row in rows]
        times.plot(classes, milliseconds, style, color=colour, label=f"{label}, {images} images")
    times.set(xscale="log", xlabel="classes known", ylabel="ms")
    times.legend(loc="best")
    memory.plot(classes, [row["memory_bytes"] / 2**30 for row in rows], "o-", color=BLUE)
    memory.set(xscale="log", xlabel="classes known", ylabel=f"GiB, {rows[0]['memory']}")
    for axes in (times, memory):
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
