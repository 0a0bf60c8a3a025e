"""Accuracy against what is kept for it: one point a method."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

from prol.report.comparison import Row
from prol.report.comparison_table import readable
from prol.report.figures import BLUE, ORANGE, QUIET
from prol.report.label_places import place_labels
from prol.report.picture import Picture, short, written_by

_LABEL_SIZE = 7.5
_FAR = 12.0
_LEADER = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 4}


def memory_picture(rows: Sequence[Row], title: str) -> Picture:
    """Final accuracy over the bytes kept besides the frozen backbone, on a logarithmic axis."""
    return Picture(
        name="accuracy-against-bytes-kept",
        title=title,
        words="Final accuracy against bytes kept besides the frozen backbone. "
        + "; ".join(
            f"{row.name} {row.faa.mean:.1f} % with {readable(row.bytes_kept, 'B')}"
            f"{', samples among them' if keeps_samples(row) else ''}"
            for row in rows
        )
        + ".",
        draw=lambda figure: _draw(figure, rows),
        height=3.3 + 0.06 * min(len(rows), 40),
    )


def keeps_samples(row: Row) -> bool:
    """Whether anything of what is kept is a sample."""
    return any(row.footprint["samples_stored"].values())


def _draw(figure: Any, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    positive = [row.bytes_kept for row in rows if row.bytes_kept > 0] or [1]
    lowest, highest = floor(log10(min(positive))), ceil(log10(max(positive) + 1))
    nothing = 10.0 ** (lowest - 1)  # a logarithm has no zero: those who keep nothing stand one step below
    places = [(row.bytes_kept or nothing, row.faa.mean) for row in rows]
    for keeping, colour, marker, label in (
        (False, BLUE, "o", "keeps no sample"),
        (True, ORANGE, "D", "keeps samples"),
    ):
        chosen = [(place, row) for place, row in zip(places, rows, strict=True) if keeps_samples(row) == keeping]
        if not chosen:
            continue
        axes.errorbar(
            [place[0] for place, _ in chosen],
            [place[1] for place, _ in chosen],
            yerr=[row.faa.deviation or 0.0 for _, row in chosen],
            color=colour,
            marker=marker,
            markersize=6,
            linestyle="none",
            linewidth=1,
            label=label,
            markerfacecolor="none" if keeping else colour,
            markeredgewidth=1.6,
        )
    low = lowest - 1 if any(row.bytes_kept == 0 for row in rows) else lowest
    axes.set(xscale="log", xlim=(10.0 ** (low - 0.15), 10.0 ** (highest + 0.15)))
    axes.set(xlabel="bytes kept besides the frozen backbone", ylabel="final accuracy, %")
    axes.set_xticks([10.0**power for power in range(low, highest + 1)])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(
        written_by(lambda size: "nothing" if size < 10.0 ** (lowest - 0.5) else readable(round(size), "B"))
    )
    axes.margins(y=0.12)
    figure.legend(loc="outside lower center", ncols=2)
    _name_points(figure, axes, places, [short(row.name) for row in rows])


def _name_points(figure: Any, axes: Any, places: Sequence[tuple[float, float]], names: Sequence[str]) -> None:
    """Writes names beside points, with a thin line where they had to go far."""
    figure.draw_without_rendering()  # only now is it known where points lie and how large words are
    unit = 72 / figure.dpi
    texts = [axes.text(*place, name, fontsize=_LABEL_SIZE) for place, name in zip(places, names, strict=True)]
    boxes = [text.get_window_extent() for text in texts]
    sizes = [(box.width * unit + 2, box.height * unit) for box in boxes]
    points = [tuple(axes.transData.transform(place) * unit) for place in places]
    frame = axes.get_window_extent()
    room = (frame.x0 * unit, frame.y0 * unit, frame.x1 * unit, frame.y1 * unit)
    centres = place_labels(points, sizes, room)
    for text, size, place, point, centre in zip(texts, sizes, places, points, centres, strict=True):
        text.remove()
        away = (centre[0] - point[0], centre[1] - point[1])
        far = max(abs(away[0]) - size[0] / 2, abs(away[1]) - size[1] / 2) > _FAR
        axes.annotate(
            text.get_text(),
            place,
            xytext=away,
            textcoords="offset points",
            fontsize=_LABEL_SIZE,
            ha="center",
            va="center",
            in_layout=False,
            arrowprops=_LEADER if far else None,
        )
