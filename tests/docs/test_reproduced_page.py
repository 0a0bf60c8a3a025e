"""The page of what a reproduction came to: its tables are those of the committed files, and those what the runs say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from docs.pages import DOCS, ROOT
from prol.paper.item_files import sources
from prol.paper.items import pick
from prol.paper.reproduction import render

REPRODUCED = ROOT / "results" / "reproduce"
ITEMS = sorted(folder.name for folder in REPRODUCED.iterdir() if (folder / "table.md").is_file())
LINKED = {"history", "appendix"}
"""Items whose tables are too long for the page."""
_TABLE = re.compile(r"(?:^<!-- from: (\S+) -->\n)?((?:^\|.*\n)+)", re.MULTILINE)


def tables_of(page: Path) -> list[tuple[str, str]]:
    """Each table, with the item in the comment right before it."""
    return _TABLE.findall(page.read_text(encoding="utf-8"))


def test_every_table_of_the_page_is_one_of_its_files() -> None:
    found = tables_of(DOCS / "reproduced.md")
    assert len(set(found)) == len(found)
    for item, table in found:
        assert item in ITEMS, f"no item before {table.splitlines()[0]}"
        assert table in [text for _, text in tables_of(REPRODUCED / item / "table.md")]
    assert {item for item, _ in found} == set(ITEMS) - LINKED
    assert sum(item == "main" for item, _ in found) == 2


def test_every_figure_is_on_the_page() -> None:
    page = (DOCS / "reproduced.md").read_text(encoding="utf-8")
    drawn = [path for item in set(ITEMS) - {"appendix"} for path in (REPRODUCED / item).glob("*.png")]
    assert len(drawn) > len(ITEMS)
    for path in drawn:  # the appendix has copies of some of them
        assert f"(../{path.relative_to(ROOT)})" in page


@pytest.mark.parametrize("item", ITEMS)
def test_tables_are_what_the_runs_say(item: str, tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(REPRODUCED / "runs")
    [asked] = pick([item])
    for source in sources(REPRODUCED, asked):
        (tmp_path / source.parent.name).mkdir()
        shutil.copy(source, tmp_path / source.parent.name)
    [done] = render([asked], tmp_path)
    assert not done.missing
    for name in ("table.md", "table.csv", "table.json"):
        assert (done.folder / name).read_text(encoding="utf-8") == (REPRODUCED / item / name).read_text(
            encoding="utf-8"
        )
