"""The page of what a reproduction came to: its tables are those of the committed files, and those what the runs say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from docs.pages import DOCS, ROOT
from prol.experiments.paper.items import pick
from prol.experiments.paper.reproduction import render

REPRODUCED = ROOT / "results" / "reproduce"
_TABLE = re.compile(r"^<!-- from: (\S+) -->\n((?:\|.*\n)+)", re.MULTILINE)
ITEMS = sorted(folder.name for folder in REPRODUCED.iterdir() if (folder / "runs.json").is_file())


def test_every_table_of_the_page_stands_in_its_file() -> None:
    found = _TABLE.findall((DOCS / "reproduced.md").read_text(encoding="utf-8"))
    assert {item for item, _ in found} == set(ITEMS) - {"history"}  # whose tables are only linked
    for item, table in found:
        assert table in (REPRODUCED / item / "table.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("item", ITEMS)
def test_tables_are_what_the_runs_say(item: str, tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(REPRODUCED / "runs")
    (tmp_path / item).mkdir()
    shutil.copy(REPRODUCED / item / "runs.json", tmp_path / item)
    [done] = render(pick([item]), tmp_path)
    assert not done.missing
    for name in ("table.md", "table.csv", "table.json"):
        assert (done.folder / name).read_text(encoding="utf-8") == (REPRODUCED / item / name).read_text(
            encoding="utf-8"
        )
