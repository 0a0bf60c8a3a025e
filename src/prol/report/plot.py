"""A plot with its description, its files, and what all plots share: matplotlib, colours and a style."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.files import create_file
from prol.report.table import Spread

# Blue, orange and a colour map that people with any kind of colour vision can tell apart.
BLUE, ORANGE, COLOUR_MAP = "#0072B2", "#E69F00", "cividis"
INK, QUIET, LINE = "#1C2027", "#5B626E", "#D5D7DB"

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; yellow is lost on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", INK)
MARKERS = "osD^vP*X"
LINES = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

WIDTH = 4.5
"""Inches, few enough for the text in a plot to be read where it fills a phone."""
MOST_NUMBERED_TASKS = 20

# No date, version or random name, so that the same results give the same file.
_METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
_STYLE = {
    "text.parse_math": False,  # a method, a class or a file may be called anything: no name is read as a formula
    "svg.fonttype": "none",
    "svg.hashsalt": "prol",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.edgecolor": LINE,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "lines.markersize": 4,
}


@dataclass(frozen=True)
class Plot:
    """Something to draw. `name` is that of its files, `alt` describes it to readers who cannot see it."""

    title: str
    draw: Callable[[Any], None]
    height: float
    width: float = WIDTH
    name: str = ""
    alt: str = ""
    dpi: int = 200

    def bytes(self, kind: str, titled: bool = True) -> bytes:
        """The plot as "png" or "svg"; without a title it has no background either, for a page brings its own."""
        figure_type = require_matplotlib()
        from matplotlib import rc_context

        content = io.BytesIO()
        with rc_context(_STYLE), warnings.catch_warnings():
            # Names in scripts that the built-in font lacks: a page shows them in its own.
            warnings.filterwarnings("ignore", message=r"Glyph .* missing")
            figure = figure_type(figsize=(self.width, self.height), layout="constrained")
            if titled:
                # matplotlib reads a line that it may wrap as a formula, whatever the style says.
                figure.suptitle(self.title, fontsize=10, wrap="$" not in self.title)
            self.draw(figure)
            paper = "white" if titled else "none"
            figure.savefig(content, format=kind, dpi=self.dpi, facecolor=paper, metadata=_METADATA[kind])
        return content.getvalue()

    def write(self, file: Path) -> None:
        """Draws to a file that ends in .png or .svg."""
        check_figure_file(file)
        content = self.bytes(file.suffix.lower().removeprefix("."))
        with create_file(file) as new:
            new.write(content)


def check_figure_file(file: Path) -> None:
    """Refuses a file that no plot can be written to, before anything is drawn."""
    if file.suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"cannot plot to {file}: its name must end in .png or .svg")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"cannot plot to {file}: the folder {file.parent} does not exist")


def require_matplotlib() -> Any:
    """The class of figures, which needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plots need matplotlib: install it with pip install matplotlib") from None
    return Figure


def line_style(number: int) -> dict[str, Any]:
    """Colour, line and marker of one among many lines."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[(number + number // len(COLOURS)) % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def draw_band(
    axes: Any, x: Sequence[float], values: Sequence[Spread], low: float = 0, high: float = 100, **style: Any
) -> None:
    """One sample deviation up and down, within bounds."""
    widths = [value.deviation or 0.0 for value in values]
    if any(widths):
        lower = [max(value.mean - width, low) for value, width in zip(values, widths, strict=True)]
        upper = [min(value.mean + width, high) for value, width in zip(values, widths, strict=True)]
        axes.fill_between(x, lower, upper, linewidth=0, **style)


def draw_matrix(figure: Any, axes: Any = None, *, values: NDArray[np.float64], colour_bar: bool = False) -> None:
    """An accuracy matrix, alone in the figure without `axes`: test images of each task (down) after each (across)."""
    axes = axes or figure.subplots()
    row, column = np.indices(values.shape)
    # Cells as shapes, not as an image: they stay sharp at any size.
    edges = np.arange(len(values) + 1) + 0.5
    masked = np.ma.masked_where(row > column, values)
    mesh = axes.pcolormesh(edges, edges, masked, cmap=COLOUR_MAP, vmin=0, vmax=100, linewidth=0)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set(xlabel="after task", ylabel="test images of task", aspect="equal")
    ticks = np.unique(np.linspace(1, len(values), min(len(values), 10)).astype(int))
    axes.set_xticks(ticks, ticks)
    axes.set_yticks(ticks, ticks)
    numbered = len(values) <= MOST_NUMBERED_TASKS
    for task, after in zip(*np.nonzero(row <= column), strict=True) if numbered else ():
        value = values[task, after]
        axes.text(
            after + 1,
            task + 1,
            f"{value:.0f}",
            ha="center",
            va="center",
            color="#000000" if value > 50 else "#ffffff",
            fontsize=8 if len(values) <= 10 else 5.5,
            in_layout=False,
        )
    if colour_bar or not numbered:
        figure.colorbar(mesh, ax=axes, label="accuracy, %")


def short(name: str, longest: int = 28) -> str:
    """A name of at most so many characters: a longer one would leave no space for the plot.

    >>> short("prol_plus"), short("prol_plus:budget_mb=2000", 12)
    ('prol_plus', 'prol_plus:b…')
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def whole_numbers(axis: Any, most: int = 10) -> None:
    """Ticks at whole numbers, at most so many."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=most))


def format_ticks(axis: Any, text: Callable[[float], str]) -> None:
    """Writes ticks by a function of one value."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
