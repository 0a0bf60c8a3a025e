"""Writes the drawings of the documentation: `python tools/documentation/draw.py`."""

from __future__ import annotations

from pathlib import Path

from draw_packages import packages
from draw_prol import prol
from draw_topology import topology
from drawing import DARK, LIGHT

ASSETS = Path(__file__).parent.parent.parent / "docs" / "assets"
PALETTES = {"light": LIGHT, "dark": DARK}


def drawings() -> dict[str, str]:
    """Every drawing in every palette, by the name of its file."""
    return {
        f"{draw.__name__}-{name}.svg": draw().svg(palette)
        for draw in (packages, topology, prol)
        for name, palette in PALETTES.items()
    }


if __name__ == "__main__":
    for file, text in drawings().items():
        (ASSETS / file).write_text(text, encoding="utf-8")
        print(ASSETS / file)
