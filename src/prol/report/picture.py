"""One picture with its words, and its files: the same drawing as PNG, as SVG and inside a page."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prol.report.figures import INK, LINE, SAME_FILE, check_figure_file, require_matplotlib

WIDTH = 4.5
"""Inches, few enough for the words in a picture to be read where it fills a phone."""

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
class Picture:
    """Something to draw. `name` is that of its files, `words` say what is to be seen to whoever cannot see it."""

    name: str
    title: str
    words: str
    draw: Callable[[Any], None]
    height: float
    width: float = WIDTH

    def bytes(self, kind: str, titled: bool = True) -> bytes:
        """The picture as "png" or "svg"; without a title it has no background either, for a page brings its own."""
        with _style():
            figure = require_matplotlib()(figsize=(self.width, self.height), layout="constrained")
            if titled:
                figure.suptitle(self.title, fontsize=10, wrap=True)
            self.draw(figure)
            paper = "white" if titled else "none"
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=200, facecolor=paper, metadata=SAME_FILE[kind])
        return content.getvalue()

    def write(self, file: Path) -> None:
        """Draws to a file that ends in .png or .svg."""
        check_figure_file(file)
        file.write_bytes(self.bytes(file.suffix.lower().removeprefix(".")))


@contextmanager
def _style() -> Iterator[None]:
    require_matplotlib()
    from matplotlib import rc_context

    with rc_context(_STYLE), warnings.catch_warnings():
        # Names in scripts that the built-in font lacks: a page shows them in its own.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")
        yield


def short(name: str, longest: int = 28) -> str:
    """A name of at most so many signs: a longer one would leave a picture nothing else to show.

    >>> short("prol_plus"), short("prol_plus:budget_mb=2000", 12)
    ('prol_plus', 'prol_plus:b…')
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def whole_numbers(axis: Any, most: int = 10) -> None:
    """Counts have no halves; `most` of them stand beside each other."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=most))


def written_by(write: Callable[[float], str]) -> Any:
    """A formatter of an axis from a function of one value."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(partial(_first, write))


def _first(write: Callable[[float], str], value: float, _: int | None) -> str:
    return write(value)
