"""A few strokes for drawings in SVG, in a light and a dark palette."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

LIGHT = {
    "paper": "#ffffff", "ink": "#1c2733", "faint": "#5b6875", "line": "#8a97a5", "panel": "#f5f7fa", "edge": "#d5dce4",
    "frozen": "#e3e8ee", "frozen-edge": "#8a97a5", "trained": "#fbdcb4", "trained-edge": "#c26a00",
    "sums": "#c4e8d8", "sums-edge": "#00805a", "made": "#cfe6f7", "made-edge": "#0072b2",
    "kept": "#f0d3e4", "kept-edge": "#a8447f", "path": "#0072b2",
}  # fmt: skip
DARK = {
    "paper": "#16202c", "ink": "#e6edf4", "faint": "#a5b3c1", "line": "#74859a", "panel": "#1d2937", "edge": "#34455a",
    "frozen": "#2b3a4b", "frozen-edge": "#7d8fa3", "trained": "#55380f", "trained-edge": "#f0a63c",
    "sums": "#123f34", "sums-edge": "#3fc79a", "made": "#143a56", "made-edge": "#6cb6e8",
    "kept": "#4a2440", "kept-edge": "#e08fc0", "path": "#6cb6e8",
}  # fmt: skip
"""Fills and edges after Okabe and Ito, which colour-blind people can tell apart; kinds differ in their names, too."""

Point = tuple[float, float]


class Drawing:
    """Collects elements; `svg` writes them down in a palette."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        lines: str | Sequence[str] = (),
        kind: str = "panel",
        size: float = 13,
        radius: float = 6,
        bold: bool = True,
        dashed: bool = False,
    ) -> None:
        """A rounded box with text in its middle: the first line bold, the others smaller."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" class="{kind}"{dash}/>'
        )
        texts = [lines] if isinstance(lines, str) else list(lines)
        step = size * 1.32
        top = y + height / 2 - step * (len(texts) - 1) / 2 + size * 0.35
        for number, text in enumerate(texts):
            first = number == 0 and bold
            self.text(
                x + width / 2,
                top + number * step,
                text,
                size=size if first else size - 1.5,
                anchor="middle",
                bold=first,
                kind="ink" if first or not bold else "faint",
            )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 13,
        anchor: str = "start",
        bold: bool = False,
        kind: str = "ink",
        italic: bool = False,
    ) -> None:
        style = (' font-weight="600"' if bold else "") + (' font-style="italic"' if italic else "")
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        look = f'font-size="{size:g}" class="t-{kind}"{place}{style}'
        self.parts.append(f'<text x="{x:g}" y="{y:g}" {look}>{_lowered(text, size)}</text>')

    def arrow(
        self, *points: Point, kind: str = "line", dashed: bool = False, head: bool = True, width: float = 1.5
    ) -> None:
        """A line through the points, with its corners rounded, that ends in an arrow head."""
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        end = f' marker-end="url(#head-{kind})"' if head else ""
        self.parts.append(
            f'<path d="{_rounded(points)}" class="w-{kind}" fill="none" stroke-width="{width:g}"{dash}{end}/>'
        )

    def dot(self, x: float, y: float, number: int) -> None:
        """A numbered place on the way."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="10.5" class="number"/>')
        self.parts.append(
            f'<text x="{x:g}" y="{y + 4.5:g}" font-size="12.5" font-weight="700" text-anchor="middle" '
            f'class="t-paper">{number}</text>'
        )

    def shape(self, path: str, kind: str) -> None:
        self.parts.append(f'<path d="{path}" class="{kind}"/>')

    def svg(self, palette: dict[str, str]) -> str:
        p = palette
        kinds = ["frozen", "trained", "sums", "made", "kept"]
        style = [
            "text{font-family:Inter,system-ui,'Segoe UI','Helvetica Neue',Arial,sans-serif}",
            f".paper{{fill:{p['paper']}}}.panel{{fill:{p['panel']};stroke:{p['edge']}}}",
            f".plain{{fill:{p['paper']};stroke:{p['line']}}}.number{{fill:{p['path']}}}",
            *(f".{kind}{{fill:{p[kind]};stroke:{p[kind + '-edge']};stroke-width:1.3}}" for kind in kinds),
            *(f".t-{name}{{fill:{p[name]}}}" for name in ("ink", "faint", "paper", "path")),
            *(f".t-{kind}{{fill:{p[kind + '-edge']}}}" for kind in kinds),
            f".w-line{{stroke:{p['line']}}}.w-path{{stroke:{p['path']}}}",
            *(f".w-{kind}{{stroke:{p[kind + '-edge']}}}" for kind in kinds),
        ]
        colours = {"line": p["line"], "path": p["path"]} | {kind: p[f"{kind}-edge"] for kind in kinds}
        heads = [
            f'<marker id="head-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.6 8 4 0 7.4z" fill="{colour}"/></marker>'
            for name, colour in colours.items()
        ]
        frame = f'<rect width="{self.width}" height="{self.height}" rx="10" class="paper"/>'
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                f"<title>{escape(self.title)}</title>",
                "<style>" + "\n".join(style) + "</style>",
                "<defs>" + "".join(heads) + "</defs>",
                frame,
                *self.parts,
                "</svg>\n",
            ]
        )


def _lowered(text: str, size: float) -> str:
    """Text whose `_words` are subscripts."""
    down = f'<tspan dy="{size * 0.2:.3g}" font-size="{size * 0.78:.3g}">'
    return re.sub(r"_(\w+)", rf'{down}\1</tspan><tspan dy="-{size * 0.2:.3g}">&#8203;</tspan>', escape(text))


def _rounded(points: Sequence[Point], radius: float = 7) -> str:
    """A path through points whose corners are rounded."""
    path = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        path.append("L{:g} {:g}".format(*_towards(corner, before, radius)))
        path.append("Q{:g} {:g} {:g} {:g}".format(*corner, *_towards(corner, after, radius)))
    path.append(f"L{points[-1][0]:g} {points[-1][1]:g}")
    return " ".join(path)


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
    share = min(distance, length / 2) / max(length, 1e-9)
    return round(start[0] + (end[0] - start[0]) * share, 2), round(start[1] + (end[1] - start[1]) * share, 2)
