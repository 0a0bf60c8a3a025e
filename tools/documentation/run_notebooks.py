"""Executes the notebooks of the documentation, each in an empty folder, and writes their outputs into them.

python tools/documentation/run_notebooks.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


def executed(path: Path) -> Any:
    """The notebook with the outputs of all cells; an error of a cell is raised."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=900, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was executed
    return notebook


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        print(path.name, flush=True)
        nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]
