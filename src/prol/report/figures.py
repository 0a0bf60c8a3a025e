"""What every picture needs: matplotlib, a file it can be written to, and colours that everyone can tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Blue, orange and a colour map that people with any kind of colour vision can tell apart.
BLUE, ORANGE, COLOUR_MAP = "#0072B2", "#E69F00", "cividis"
INK, QUIET, LINE = "#1C2027", "#5B626E", "#D5D7DB"

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; yellow is lost on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", INK)
MARKERS = "osD^vP*X"
LINES = ("-", "--", ":", "-.")

SAME_FILE = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
"""What a file says of how it was made is left out, so that the same results give the same file."""


def check_figure_file(file: Path) -> None:
    """Refuses a file that no picture can be written to, before anything is drawn."""
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


def save_alike(figure: Any, file: Path, dpi: int) -> None:
    """Writes a figure so that the same one gives the same file: an SVG would have a date in it, and random names."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "prol"}):
        figure.savefig(file, dpi=dpi, metadata=SAME_FILE[file.suffix[1:]])
