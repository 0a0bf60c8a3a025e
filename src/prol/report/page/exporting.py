"""Every picture and every table of a report as files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prol.report.page.parts import parts_of
from prol.report.page.sections import Section
from prol.report.page.table import as_csv, as_latex


def export(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Writes `FOLDER/STREAM/NAME` as .png and .svg for each picture, as .csv and .tex for each table."""
    written: list[Path] = []
    for section in sections:
        place = folder / section.key
        place.mkdir(parents=True, exist_ok=True)
        for part in parts_of(section):
            for picture in (*part.pictures, *part.folded_pictures):
                for kind in ("png", "svg"):
                    file = place / f"{picture.name}.{kind}"
                    picture.write(file)
                    written.append(file)
            for table in (*part.tables, *part.folded_tables):
                for ending, text in (("csv", as_csv(table)), ("tex", as_latex(table))):
                    file = place / f"{table.name}.{ending}"
                    file.write_text(text, encoding="utf-8")
                    written.append(file)
    return written
