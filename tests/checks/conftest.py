"""Runs whose files were changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def run(finished: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Copies of a finished run of NCM, in which a function for each file changes its content."""

    def copy(name: str = "run", **changes: Change) -> Path:
        place = tmp_path / "runs" / name
        shutil.copytree(finished("ncm"), place)
        for file, change in changes.items():
            path = place / f"{file}.json"
            content = json.loads(path.read_text())
            change(content)
            path.write_text(json.dumps(content))
        return place

    return copy
