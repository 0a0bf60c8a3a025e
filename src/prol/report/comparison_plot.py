"""Plots of a comparison: accuracy after each task, and accuracy against the bytes stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, cos, floor, log10, pi, sin
from pathlib import Path
from typing import Any

from prol.report.comparison import Row
from prol.report.plot import BLUE, ORANGE, QUIET, Plot, draw_band, format_ticks, line_style, short, whole_numbers
from prol.report.table import readable

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""

_LABEL_SIZE, _FAR = 7.5, 12.0
_LEADER = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 4}
_RINGS = (8.0, 13.0, 20.0, 30.0, 42.0, 56.0, 72.0, 90.0, 110.0, 132.0, 156.0)
_ANGLES = sorted((step * pi / 8 for step in range(16)), key=lambda angle: round(abs(sin(angle)), 6))
"""Right and left before above and below: lines of text are wide and flat."""


def plot_comparison(rows: Sequence[Row], title: str, file: Path) -> None:
    """Draws the rows as PNG or SVG, best first; bands are one sample deviation over seeds up and down."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, row in enumerate(rows):
            style, tasks = line_style(number), list(range(1, len(row.history) + 1))
            label = f"{row.name}, {row.faa.mean:.1f}"
            axes.plot(tasks, [spread.mean for spread in row.history], label=label, **style)
            draw_band(axes, tasks, row.history, color=style["color"], alpha=0.15)
        axes.set(xlabel="after task", ylabel="accuracy on all test images so far, %", ylim=(0, 101))
        whole_numbers(axes.xaxis)
        figure.legend(loc="outside right center", title="method, final accuracy, %", title_fontsize=9)

    Plot(title, draw, max(4.2, 0.25 * len(rows) + 1), width=10).write(file)


def memory_plot(rows: Sequence[Row], title: str) -> Plot:
    """Final accuracy over the bytes stored besides the frozen backbone, on a logarithmic axis."""
    described = (
        f"{row.name} {row.faa.mean:.1f} % with {readable(row.bytes_kept, 'B')}"
        f"{', samples among them' if _stores_samples(row) else ''}"
        for row in rows
    )
    return Plot(
        name="accuracy-against-bytes-stored",
        title=title,
        alt=f"Final accuracy against bytes stored besides the frozen backbone. {'; '.join(described)}.",
        draw=lambda figure: _draw_memory(figure, rows),
        height=3.3 + 0.06 * min(len(rows), 40),
    )


def _stores_samples(row: Row) -> bool:
    return any(row.footprint["samples_stored"].values())


def _draw_memory(figure: Any, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    positive = [row.bytes_kept for row in rows if row.bytes_kept > 0] or [1]
    lowest, highest = floor(log10(min(positive))), ceil(log10(max(positive) + 1))
    nothing = 10.0 ** (lowest - 1)  # a logarithm has no zero: methods that store nothing are one step below
    places = [(row.bytes_kept or nothing, row.faa.mean) for row in rows]
    for samples, colour, marker, label in (
        (False, BLUE, "o", "stores no sample"),
        (True, ORANGE, "D", "stores samples"),
    ):
        chosen = [(place, row) for place, row in zip(places, rows, strict=True) if _stores_samples(row) == samples]
        if chosen:
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
                markerfacecolor="none" if samples else colour,
                markeredgewidth=1.6,
            )
    low = lowest - 1 if any(row.bytes_kept == 0 for row in rows) else lowest
    axes.set(xscale="log", xlim=(10.0 ** (low - 0.15), 10.0 ** (highest + 0.15)))
    axes.set(xlabel="bytes stored besides the frozen backbone", ylabel="final accuracy, %")
    axes.set_xticks([10.0**power for power in range(low, highest + 1)])
    axes.minorticks_off()
    format_ticks(axes.xaxis, lambda size: "nothing" if size < 10.0 ** (lowest - 0.5) else readable(round(size), "B"))
    axes.margins(y=0.12)
    figure.legend(loc="outside lower center", ncols=2)
    _name_points(figure, axes, places, [short(row.name) for row in rows])


def _name_points(figure: Any, axes: Any, places: Sequence[Point], names: Sequence[str]) -> None:
    """Writes names beside points, with a thin line to those that are far away."""
    figure.draw_without_rendering()  # only now are the places of points and the sizes of texts known
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


def place_labels(points: Sequence[Point], sizes: Sequence[Point], room: Box, radius: float = 5.0) -> list[Point]:
    """The centre of each label, as near to its point as others leave room.

    Args:
        points: where the points are; a label covers none of them where that can be helped.
        sizes: width and height of each label, in the same unit.
        room: the box that must contain all labels.
        radius: of a point.

    >>> place_labels([(50, 50)], [(20, 10)], (0, 0, 100, 100))
    [(68.0, 50.0)]
    """
    taken: list[Box] = [(x - radius, y - radius, x + radius, y + radius) for x, y in points]
    centres = []
    for point, size in zip(points, sizes, strict=True):
        candidates = [centre for centre in _around(point, size) if _within(_box(centre, size), room)]
        free = (centre for centre in candidates if not any(_overlap(_box(centre, size), box) for box in taken))
        # Where nothing is free, the nearest place within the room must do.
        centre = next(free, None) or next(iter(candidates), point)
        taken.append(_box(centre, size))
        centres.append(centre)
    return centres


def _around(point: Point, size: Point) -> Iterator[Point]:
    """Centres of a label around a point, nearest first, beginning at its right."""
    for distance in _RINGS:
        for angle in _ANGLES:
            across, up = cos(angle), sin(angle)
            yield point[0] + across * (distance + size[0] / 2), point[1] + up * (distance + size[1] / 2)


def _box(centre: Point, size: Point) -> Box:
    (x, y), (width, height) = centre, size
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _within(box: Box, room: Box) -> bool:
    return box[0] >= room[0] and box[1] >= room[1] and box[2] <= room[2] and box[3] <= room[3]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
