"""The site, built once for all tests of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built into a folder for the tests."""
    place = tmp_path_factory.mktemp("site")
    variables = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return place
