"""The notebooks of the documentation: they are stored as they were executed, and can be executed."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest

from docs.pages import DOCS, ROOT

RUNNER = ROOT / "tools" / "documentation" / "run_notebooks.py"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(notebook: Any) -> list[list[str]]:
    """Of each cell, what kinds of outputs it has: text, tables, pictures."""
    return [sorted(kind for one in cell.outputs for kind in one.get("data", {"text": ""})) for cell in cells(notebook)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_as_it_was_executed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert [cell.execution_count for cell in cells(notebook)] == list(range(1, len(cells(notebook)) + 1))
    outputs = [output for cell in cells(notebook) for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert {"image/png", "text/html"} <= {kind for found in kinds(notebook) for kind in found}
    text = path.read_text(encoding="utf-8")
    assert "/tmp" not in text
    assert "\\u001b" not in text  # colours of a terminal


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_can_be_executed(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert kinds(runpy.run_path(str(RUNNER))["executed"](path)) == kinds(stored)
