"""Optional packages are imported on demand, and a missing one is named."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_prol_itself_imports_neither() -> None:
    script = (
        "import sys, prol, prol.integrations, prol.cli.app; "
        "found = {'sklearn', 'river', 'narwhals'} & sys.modules.keys(); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("room", "package"),
    [("scikit", "sklearn"), ("river_models", "river"), ("capymoa", "capymoa"), ("avalanche", "avalanche")],
)
def test_a_missing_package_is_named(room: str, package: str) -> None:
    script = f"import sys; sys.modules[{package!r}] = None; import prol.integrations.{room}"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith(f"pip install 'prol[{package}]'")
